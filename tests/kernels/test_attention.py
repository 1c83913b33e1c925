"""Our kernel of attention against the formula in float64, and what happens without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from effaudit.device import threads
from effaudit.flop_counting import count_flops
from effaudit.kernels.attention import is_usable, row_attention
from effaudit.kernels.library import library
from tests import makers
from tests.makers import FLOAT32

needs_kernel = pytest.mark.skipif(library() is None, reason="no C++ compiler that makes the kernel")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with threads(1):
        yield


def plain(q: Tensor, k: Tensor, v: Tensor, dim: int, visible: Tensor) -> Tensor:
    """Queries (n, D) of one example by the formula; `visible` (n, T)."""
    split = (x.double().unflatten(-1, (-1, dim)).transpose(0, 1) for x in (q, k, v))
    heads, keys, values = split  # (H, n or T, dim)
    scores = (heads @ keys.transpose(1, 2) / dim**0.5).masked_fill(~visible, -torch.inf)
    return (scores.softmax(dim=-1) @ values).transpose(0, 1).flatten(1)


def drawn(n_examples: int, n_tokens: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Parts of one projection, as models have them: rows lie three widths apart."""
    qkv = 2 * torch.randn(n_examples, n_tokens, 3 * width, generator=torch.Generator().manual_seed(seed))
    q, k, v = qkv.chunk(3, dim=-1)
    return q, k, v


@needs_kernel
@pytest.mark.parametrize("dim", [8, 16, 24, 32, 64])
@pytest.mark.parametrize("n_tokens", [1, 7, 8, 33, 130])
@pytest.mark.parametrize("is_causal", [True, False])
def test_all_queries_equal_the_formula(dim: int, n_tokens: int, is_causal: bool) -> None:
    q, k, v = drawn(2, n_tokens, 3 * dim)
    found = row_attention(q, k, v, dim, is_causal)
    visible = torch.ones(n_tokens, n_tokens, dtype=torch.bool)
    visible = visible.tril() if is_causal else visible
    for example in range(2):
        assert makers.distance(found[example], plain(q[example], k[example], v[example], dim, visible)) <= FLOAT32


@needs_kernel
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_chosen_queries_and_padding_equal_the_formula(is_causal: bool, share: float) -> None:
    n_examples, n_tokens, dim = 5, 37, 16
    _, k, v = drawn(n_examples, n_tokens, 2 * dim)
    source = torch.Generator().manual_seed(1)
    active = torch.rand(n_examples, n_tokens, generator=source) < share
    lengths = torch.tensor([37, 20, 1, 36, 8])
    real = torch.arange(n_tokens) < lengths[:, None]
    positions = torch.cat([flags.nonzero().squeeze(1) for flags in active])
    q = torch.randn(len(positions), 2 * dim, generator=source)
    counts = active.sum(dim=1).tolist()
    found = row_attention(q, k, v, dim, is_causal, positions, counts, real)
    assert found.shape == q.shape
    for example, (rows, part) in enumerate(zip(q.split(counts), found.split(counts), strict=True)):
        visible = real[example].expand(counts[example], -1)
        if is_causal:
            visible = visible & (torch.arange(n_tokens) <= active[example].nonzero())
        if counts[example]:
            assert makers.distance(part, plain(rows, k[example], v[example], dim, visible)) <= FLOAT32


@needs_kernel
def test_large_scores_do_not_overflow() -> None:
    q, k, v = (100 * x for x in drawn(1, 20, 8))
    found = row_attention(q, k, v, 8, is_causal=True)
    visible = torch.ones(20, 20, dtype=torch.bool).tril()
    assert makers.distance(found[0], plain(q[0], k[0], v[0], 8, visible)) <= FLOAT32


@needs_kernel
def test_rows_apart_in_memory_make_no_difference() -> None:
    q, k, v = drawn(3, 9, 16)
    whole = row_attention(q, k, v, 8, is_causal=True)
    apart = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in (q, k, v)]
    torch.testing.assert_close(row_attention(*apart, 8, True), whole)  # type: ignore[arg-type]
    torch.testing.assert_close(row_attention(q, k.contiguous(), v, 8, is_causal=True), whole)


@needs_kernel
def test_gates_multiply_the_heads_outputs() -> None:
    q, k, v = drawn(3, 9, 16)
    gate = torch.rand(3, 2)
    expected = row_attention(q, k, v, 8, True).unflatten(2, (2, 8)) * gate[:, None, :, None]
    torch.testing.assert_close(row_attention(q, k, v, 8, True, gate=gate), expected.flatten(2))
    rows = row_attention(q[:, :4].flatten(0, 1), k, v, 8, True, torch.arange(4).repeat(3), [4] * 3, gate=gate)
    torch.testing.assert_close(rows.view(3, 4, 16), expected.flatten(2)[:, :4])


@needs_kernel
def test_flops_are_those_of_attention() -> None:
    q, k, v = drawn(2, 9, 16)
    assert count_flops(row_attention, q, k, v, 8, True).total == 2 * 4 * 9 * 9 * 16
    chosen = torch.tensor([0, 3, 8])
    assert count_flops(row_attention, q[0, chosen], k, v, 8, True, chosen, [1, 2]).total == 4 * 3 * 9 * 16


@needs_kernel
def test_where_it_is_used() -> None:
    q = torch.zeros(1, 1, 16)
    assert is_usable(q, 8)
    assert not is_usable(q, 12)
    assert not is_usable(q.double(), 8)
    assert not is_usable(q.to("meta"), 8)
    with threads(2):
        assert not is_usable(q, 8)


@needs_kernel
@pytest.mark.parametrize("variant", ["dense", "tsa", "early_exit", "budgetformer", "static_heads"])
@pytest.mark.parametrize("task", ["classification", "causal_lm"])
def test_models_answer_as_without_it(variant: str, task: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if (variant, task) == ("budgetformer", "causal_lm"):
        pytest.skip("it models no language")
    config = makers.config(variant, task, d_model=32, n_heads=4)
    model = makers.build(config, dtype=torch.float32)
    for seed, lengths in enumerate([(5, 5, 5), (5, 2, 1), (4,)]):
        of = makers.batch(task, lengths, seed)
        routing = makers.random_routing(config, of, 0.5, seed)
        found = makers.run(model, of, routing)
        with monkeypatch.context() as patch:
            patch.setattr("effaudit.variants._attention.is_usable", lambda *_: False)
            without = makers.run(model, of, routing)
        real = of.mask if task == "causal_lm" else slice(None)
        assert makers.distance(found.logits[real], without.logits[real]) <= FLOAT32
