"""Work beside products: by hand for each kind of op, the same on fused and plain paths, never part of the FLOPs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from effaudit import onednn
from effaudit.bench._flop_rows import Calls
from effaudit.flop_counting import FlopCount, count_flops, counted_pass
from effaudit.kernels.attention import row_attention
from effaudit.kernels.library import library
from effaudit.kernels.products import add_chain, chain, from_heads, onto_heads
from effaudit.kernels.rows import add_rows, norm_rows

GRAD_MODES = [torch.enable_grad, torch.no_grad, torch.inference_mode]
B, T, D, H, FF = 2, 5, 8, 2, 12


def ones(*shape: int) -> Tensor:
    return torch.ones(*shape)


def count(model: Callable[..., object], *inputs: object) -> FlopCount:
    with counted_pass(model, has_elements=True) as counter, counter:
        model(*inputs)
    return counter.count()


X, ROWS = ones(4, 8), torch.tensor([2, 0, 2])  # rows of 8 float32, three indices of int64
FLOPS: dict[str, tuple[Callable[[], object], int]] = {
    "sum": (lambda: X + X, 32),
    "broadcast": (lambda: X[:, None] * X, 4 * 32),
    "any function": (lambda: torch.exp(X), 32),
    "in place": (lambda: ones(4, 8).mul_(2), 32),
    "gelu": (lambda: F.gelu(X), 32),
    "comparison": (lambda: X > 0, 32),
    "of integers": (lambda: ROWS * 2, 0),
    "copy": (lambda: torch.where(X > 0, X, X.clone()).flatten(), 32),
    "softmax": (lambda: X.softmax(-1), 5 * 32),
    "log softmax": (lambda: F.log_softmax(X, -1), 5 * 32),
    "layer norm": (lambda: F.layer_norm(X, (8,)), 7 * 32),
    "reduction": (lambda: X.sum(), 32),
    "reduction of rows": (lambda: X.amax(-1), 32),
    "largest of two": (lambda: torch.maximum(X, X), 32),
    "bias": (lambda: F.linear(X, ones(3, 8), ones(3)), 4 * 3),
    "bias and activation in one": (lambda: torch._addmm_activation(ones(3), X, ones(8, 3), use_gelu=True), 2 * 4 * 3),
    "no bias": (lambda: F.linear(X, ones(3, 8)), 0),
    "convolution's bias": (lambda: nn.Conv1d(4, 6, 3)(ones(2, 4, 10)), 2 * 6 * 8),
    "sort": (lambda: X.sort(), 0),
    "scores": (lambda: F.scaled_dot_product_attention(*[ones(B, H, T, 4)] * 3), 6 * B * H * T * T),
    "masked scores": (
        lambda: F.scaled_dot_product_attention(*[ones(B, H, T, 4)] * 3, attn_mask=ones(T, T)),
        7 * B * H * T * T,
    ),
    "added onto places": (lambda: ones(4, 8).index_add_(0, ROWS, ones(3, 8)), 3 * 8),
    "scattered onto places": (lambda: X.scatter_add(0, torch.zeros(1, 8, dtype=torch.long), X), 8),
    "no dropout": (lambda: F.dropout(X, training=False), 0),
}
MOVED: dict[str, tuple[Callable[[], object], int]] = {
    "rows": (lambda: X[ROWS], 2 * 3 * 32 + 3 * 8),
    "index_select": (lambda: X.index_select(0, ROWS), 2 * 3 * 32 + 3 * 8),
    "embedding": (lambda: F.embedding(ROWS, X), 2 * 3 * 32 + 3 * 8),
    "mask": (lambda: X[torch.tensor([True, False, True, False])], 2 * 2 * 32 + 4),
    "gather": (lambda: X.gather(0, torch.zeros(1, 8, dtype=torch.long)), 2 * 8 * 4 + 8 * 8),
    "written in place": (lambda: ones(4, 8).index_copy_(0, ROWS[:2], ones(2, 8)), 2 * 2 * 32 + 2 * 8),
    "written to a copy": (lambda: X.index_copy(0, ROWS[:2], ones(2, 8)), 2 * 2 * 32 + 2 * 8 + 2 * 128),
    "added": (lambda: ones(4, 8).index_add_(0, ROWS, ones(3, 8)), 2 * 3 * 32 + 3 * 8),
    "one value to all": (lambda: ones(4, 8).index_fill_(0, ROWS, 0.0), 2 * 3 * 32 + 3 * 8),
    "put": (lambda: ones(4, 8).index_put_((ROWS,), torch.tensor(0.0)), 2 * 3 * 32 + 3 * 8),
    "integers": (lambda: torch.zeros(4, dtype=torch.long).index_copy_(0, ROWS[:2], ROWS[:2]), 2 * 2 * 8 + 2 * 8),
    "scatter": (lambda: ones(4, 8).scatter_(0, torch.zeros(1, 8, dtype=torch.long), 1.0), 2 * 8 * 4 + 8 * 8),
    "a product moves nothing": (lambda: X @ X.T, 0),
    "a slice moves nothing": (lambda: X[1:3], 0),
}


@pytest.mark.parametrize("grad_mode", GRAD_MODES)
@pytest.mark.parametrize("op", FLOPS)
def test_flops_per_element(op: str, grad_mode: Callable[[], torch.autograd.grad_mode.no_grad]) -> None:
    run, flops = FLOPS[op]
    with grad_mode():
        found = count(run)
        assert count_flops(run).total == found.total
    assert (found.elements[""].flops, found.uncounted) == (flops, {})


@pytest.mark.parametrize("op", MOVED)
def test_bytes_gathered_and_scattered(op: str) -> None:
    run, moved = MOVED[op]
    found = count(run)
    assert (found.elements[""].moved, found.uncounted) == (moved, {})


WIDE, CHOSEN, HEADS = ones(4, 16), torch.tensor([0, 2, 3]), torch.tensor([[0, 1], [1, 0]])
OWN: dict[str, tuple[Callable[[], object], int, int]] = {  # with the bytes moved
    "norm": (lambda: norm_rows(WIDE, None, ones(16), ones(16), 1e-5), 7 * 4 * 16, 0),
    "norm of rows": (
        lambda: norm_rows(WIDE, CHOSEN, ones(16), ones(16), 1e-5),
        7 * 3 * 16,
        2 * 3 * 64 + 3 * 8,
    ),
    "added": (lambda: add_rows(WIDE.clone(), CHOSEN, WIDE), 3 * 16, 2 * 3 * 64 + 3 * 8),
    "added times gates": (lambda: add_rows(WIDE.clone(), CHOSEN, WIDE[:3], ones(3)), 2 * 3 * 16, 2 * 3 * 64 + 3 * 8),
    "scores": (lambda: row_attention(*[ones(B, T, 16)] * 3, 8, True), 6 * B * 2 * T * T, 0),
    "gated scores": (
        lambda: row_attention(*[ones(B, T, 16)] * 3, 8, True, gate=ones(B, 2)),
        6 * B * 2 * T * T + B * T * 16,
        0,
    ),
    "layers": (lambda: chain(WIDE, (ones(8, 16), ones(8), ones(3, 8), None), "relu"), 4 * (8 + 8), 0),
    "layer of normed rows": (
        lambda: chain(WIDE, (ones(8, 16), None), index=CHOSEN, norm=(ones(16), ones(16))),
        3 * 7 * 16,
        2 * 3 * 64 + 3 * 8,
    ),
    "layers onto rows": (
        lambda: add_chain(WIDE.clone(), (ones(8, 16), None, ones(16, 8), ones(16)), "gelu", CHOSEN, ones(3)),
        3 * (8 + 16 + 2 * 16),
        2 * (2 * 3 * 64 + 3 * 8),
    ),
    "layer of others onto rows": (
        lambda: add_chain(WIDE.clone(), (ones(16, 16), None), index=CHOSEN, x=ones(3, 16)),
        3 * 16,
        2 * 3 * 64 + 3 * 8,
    ),
    "from heads": (lambda: from_heads(ones(2, 4, 16), HEADS[0], HEADS, ones(48, 16), 8), 0, 0),
    "onto heads": (lambda: onto_heads(ones(2, 4, 16), HEADS[0], HEADS, ones(16, 16), 8, ones(2, 4, 16)), 2 * 4 * 16, 0),
}


@pytest.mark.skipif(library() is None, reason="no C++ compiler that makes the kernels")
@pytest.mark.parametrize("op", OWN)
def test_work_of_own_kernels(op: str) -> None:
    run, flops, moved = OWN[op]
    found = count(run)
    assert (found.elements[""].flops, found.elements[""].moved, found.uncounted) == (flops, moved, {})


@pytest.mark.skipif(not onednn.HAS_LINEAR, reason="this torch has no oneDNN")
@pytest.mark.parametrize("bias", [None, ones(3)])
def test_fused_linear_has_the_work_of_the_plain_one(bias: Tensor | None) -> None:
    with torch.no_grad():
        fused = count(onednn.linear, X, ones(3, 8), bias, "gelu")
        plain = count(lambda: F.gelu(F.linear(X, ones(3, 8), bias)))
    assert fused.elements[""].flops == plain.elements[""].flops == 12 + (12 if bias is not None else 0)


@pytest.mark.parametrize("norm_first", [False, True])
def test_fused_layer_has_the_work_of_the_plain_one(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(D, H, FF, batch_first=True, norm_first=norm_first).eval()
    by_hand = B * T * (4 * D + 2 * 7 * D + 2 * D + FF + FF + D) + 6 * B * H * T * T
    plain = count(layer, ones(B, T, D))
    with torch.no_grad():
        fused = count(layer, ones(B, T, D))
        attention = count(layer.self_attn, *[ones(B, T, D)] * 3)
    assert plain.elements[""].flops == fused.elements[""].flops == by_hand
    assert attention.elements[""].flops == B * T * 4 * D + 6 * B * H * T * T


def test_rows_of_the_tree_add_up_and_stay_apart_from_the_flops() -> None:
    inner = Calls(lambda m, x: F.gelu(m.fc(x[ROWS])), fc=nn.Linear(8, 8))
    model = nn.Sequential(inner, nn.LayerNorm(8))
    found = count(model, X)
    assert found.elements is not None
    assert found.total == 2 * 3 * 8 * 8
    rows = {path: (row.flops, row.own, row.moved, row.own_moved) for path, row in found.elements.items()}
    moved = 2 * 3 * 32 + 3 * 8
    assert rows == {
        "": (24 + 24 + 168, 0, moved, 0),
        "0": (24 + 24, 24, moved, moved),
        "0.fc": (24, 24, 0, 0),
        "1": (168, 168, 0, 0),
    }


def test_nothing_is_counted_per_element_unless_asked() -> None:
    assert count_flops(lambda: X + X).elements is None


def test_rms_norm_and_dropout_work_on_each_element() -> None:
    for run in (lambda: F.rms_norm(X, (8,)), lambda: F.dropout(X, training=True)):  # versions of torch differ in how
        elements = count(run).elements
        assert elements is not None
        assert elements[""].flops >= 32
