"""Our kernels of rows against torch's ops in float64, and their use by models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from effaudit.device import threads
from effaudit.flop_counting import counted_pass
from effaudit.kernels.library import library
from effaudit.kernels.rows import add_rows, is_usable, norm_rows
from tests import makers
from tests.makers import FLOAT32

needs_kernels = pytest.mark.skipif(library() is None, reason="no C++ compiler that makes the kernels")
WIDTHS = (16, 64, 80, 256, 1040)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with threads(1):
        yield


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return 3 + 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@needs_kernels
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("chosen", [None, [], [4], [0, 2, 3, 6]])
def test_norms_are_torchs(width: int, chosen: list[int] | None) -> None:
    h, weight, bias = drawn(7, width), drawn(width, seed=1), drawn(width, seed=2)
    index = None if chosen is None else torch.tensor(chosen, dtype=torch.int64)
    expected = F.layer_norm(h.double(), (width,), weight.double(), bias.double(), 1e-5)
    found = norm_rows(h, index, weight, bias, 1e-5)
    torch.testing.assert_close(found.double(), expected if index is None else expected[index], rtol=1e-5, atol=1e-5)


@needs_kernels
def test_rows_of_one_value_become_the_bias() -> None:
    bias = drawn(32)
    assert torch.equal(norm_rows(torch.full((1, 32), 1e4), None, torch.ones(32), bias, 1e-5)[0], bias)


@needs_kernels
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("is_gated", [True, False])
@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("chosen", [[], [4], [0, 2, 3, 6], list(range(7))])
def test_additions_are_torchs(width: int, is_gated: bool, is_whole: bool, chosen: list[int]) -> None:
    index = torch.tensor(chosen, dtype=torch.int64)
    h, whole, gate = drawn(7, width), drawn(7, width, seed=1), drawn(len(chosen), seed=2)
    expected = h.double().index_add(0, index, whole[index].double() * (gate[:, None] if is_gated else 1))
    assert add_rows(h, index, whole if is_whole else whole[index], gate if is_gated else None) is None
    torch.testing.assert_close(h.double(), expected, rtol=1e-6, atol=1e-5)


@needs_kernels
def test_gates_and_changes_of_another_type_are_converted() -> None:
    h, x, gate, index = drawn(4, 16), drawn(2, 16, seed=1), drawn(2, seed=2), torch.tensor([1, 3])
    expected = h.index_add(0, index, x * gate[:, None])
    add_rows(h, index, x.double(), gate.double())
    torch.testing.assert_close(h, expected)


@needs_kernels
def test_where_they_are_used() -> None:
    h = torch.zeros(4, 32)
    assert is_usable(h)
    assert not is_usable(h[:, :24].contiguous())
    assert not is_usable(h[:, :16])
    assert not is_usable(h.double())
    with threads(2):
        assert not is_usable(h)


@needs_kernels
@pytest.mark.parametrize("variant", ["tsa", "early_exit"])
@pytest.mark.parametrize("options", [{}, {"mode": "ffn"}, {"gate": "binary"}])
def test_models_answer_and_cost_as_without_them(
    variant: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if variant == "early_exit":
        options = {"state": "copy"}
    config = makers.config(variant, "causal_lm", d_model=32, n_heads=4, options=options)
    model, of = makers.build(config, dtype=torch.float32), makers.batch("causal_lm", (5, 2, 1), 0)
    routing = makers.random_routing(config, of, 0.5, 0)

    def run() -> Any:
        with torch.inference_mode():
            return model(of, routing)

    def cost() -> tuple[int, bool, int]:
        with counted_pass(run, has_elements=True) as counter, counter:
            run()
        count = counter.count()
        assert count.elements is not None
        return count.total, count.complete, count.elements[""].flops

    monkeypatch.setattr("effaudit.kernels.products.is_usable", lambda *_: False)  # which would do it at once
    found, own = run(), cost()
    monkeypatch.setattr("effaudit.kernels.rows.is_usable", lambda *_: False)
    assert makers.distance(found.logits[of.mask], run().logits[of.mask]) <= FLOAT32
    assert own == cost()
    assert own[1]
