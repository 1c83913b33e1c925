"""Parameter counts that the TSA paper and its code publish."""

from __future__ import annotations

import pytest

from effaudit.variants import dense, early_exit, tsa
from effaudit.variants.tsa import Router
from tests import makers

SIZES = {
    "toy": {"vocab_size": 32, "d_model": 128, "n_layers": 6, "n_heads": 4, "d_ff": 512, "max_tokens": 64},
    "shakespeare": {"vocab_size": 65, "d_model": 256, "n_layers": 6, "n_heads": 8, "d_ff": 1024, "max_tokens": 128},
    "enwik8": {"vocab_size": 6064, "d_model": 256, "n_layers": 6, "n_heads": 8, "d_ff": 1024, "max_tokens": 256},
}
MODULES = {"dense": dense, "tsa": tsa, "early_exit": early_exit}


@pytest.mark.parametrize(
    ("size", "variant", "count"),
    [
        ("toy", "dense", 1_199_104),
        ("toy", "tsa", 1_219_909),
        ("shakespeare", "dense", 4_782_336),
        ("shakespeare", "tsa", 4_864_901),
        ("shakespeare", "early_exit", 4_784_896),
        ("enwik8", "dense", 6_350_848),
        ("enwik8", "tsa", 6_433_413),
    ],
)
def test_golden_counts(size: str, variant: str, count: int) -> None:
    model = MODULES[variant].build(makers.config(variant, "causal_lm", **SIZES[size]))
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize("d", [64, 128, 256])
def test_router_parameters(d: int) -> None:
    assert sum(p.numel() for p in Router(d, -1.0).parameters()) == d * d // 4 + d // 2 + 1


def test_router_is_sixteen_wide_at_least() -> None:
    assert Router(8, -1.0).hidden.out_features == 16
