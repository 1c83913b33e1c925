"""Linear layers that do more in one step, against the steps one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from effaudit import onednn
from effaudit.flop_counting import count_flops
from effaudit.variants import _linear
from effaudit.variants._linear import ActivatedLinear, Linear, Residual, linear_of_rows
from effaudit.variants._visibility import Rows

ROWS = _linear.MIN_FUSED_ROWS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_rows", [0, 3, ROWS])
@pytest.mark.parametrize(("activation", "function"), [("gelu", F.gelu), ("relu", F.relu)])
def test_the_activation_follows_the_product(
    activation: Any, function: Callable[[Tensor], Tensor], n_rows: int, dtype: torch.dtype
) -> None:
    layer, x = ActivatedLinear(8, 12, activation).to(dtype).eval(), torch.randn(n_rows, 8, dtype=dtype)
    with torch.inference_mode():
        found = layer(x)
    torch.testing.assert_close(found, function(F.linear(x, layer.weight, layer.bias)).detach())


@pytest.mark.skipif(not onednn.HAS_LINEAR, reason="this torch has no oneDNN")
def test_fused_op_runs_in_inference_alone_and_is_counted() -> None:
    layer, x = ActivatedLinear(8, 12, "gelu").eval(), torch.randn(ROWS, 8)
    with torch.inference_mode():
        fused = count_flops(layer, x)
    plain = count_flops(layer, x)
    assert [op for op in fused.by_op if "pointwise" in op]
    assert not [op for op in plain.by_op if "pointwise" in op]
    assert fused.total == plain.total == 2 * ROWS * 8 * 12
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    assert not [op for op in count_flops(layer.train(), x).by_op if "pointwise" in op]


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_residual_adds_in_place(shape: tuple[int, ...], has_bias: bool) -> None:
    layer, x, h = (
        Residual(4, 5, bias=has_bias).double(),
        torch.randn(*shape, 4).double(),
        torch.randn(*shape, 5).double(),
    )
    gate = torch.rand(shape).double()
    with torch.inference_mode():
        product = F.linear(x, layer.weight, layer.bias)
        torch.testing.assert_close(layer(x), product)
        for factor in (None, gate):
            onto = h.clone()
            assert layer(x, onto, factor) is onto
            torch.testing.assert_close(onto, h + (product if factor is None else factor[..., None] * product))


@pytest.mark.skipif(not onednn.HAS_LINEAR, reason="this torch has no oneDNN")
@pytest.mark.parametrize("has_bias", [True, False])
def test_either_library_gives_the_product_and_its_flops(has_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_linear, "MIN_PRODUCTS", 0)
    layer, x, h = Linear(8, 12, has_bias), torch.randn(2, 5, 8), torch.randn(2, 5, 12)
    added = Residual(8, 12, has_bias).eval()
    added.load_state_dict(layer.state_dict())
    expected = F.linear(x, layer.weight, layer.bias).detach()
    ran = []
    for is_quicker in (True, False):
        monkeypatch.setattr(onednn, "is_quicker_than_mkl", lambda is_quicker=is_quicker: is_quicker)
        with torch.inference_mode():
            torch.testing.assert_close(layer(x), expected)
            torch.testing.assert_close(added(x, h.clone()), h + expected)
            count = count_flops(layer, x)
        assert count.total == 2 * 10 * 8 * 12
        ran.append([op for op in count.by_op if "pointwise" in op])
    assert ran[0] != [] == ran[1]


@pytest.mark.skipif(not onednn.HAS_LINEAR, reason="this torch has no oneDNN")
@pytest.mark.parametrize(
    ("shape", "n_outputs", "is_left"),
    [((4096, 32), 8, False), ((4095, 32), 8, True), ((2**18, 8), 7, True)],
    ids=["large", "small", "few outputs"],
)
def test_small_products_stay_with_torch(
    shape: tuple[int, int], n_outputs: int, is_left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "is_quicker_than_mkl", lambda: True)
    layer, x = Linear(shape[1], n_outputs), torch.randn(shape)
    with torch.inference_mode():
        by_op = count_flops(layer, x).by_op
    assert ("pointwise" in "".join(by_op)) is not is_left


def test_gradients_flow_whichever_library_is_the_quicker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onednn, "is_quicker_than_mkl", lambda: True)
    monkeypatch.setattr(_linear, "MIN_PRODUCTS", 0)
    layer = Linear(8, 12)
    layer(torch.randn(3, 8)).sum().backward()
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad[0], layer.weight.grad[1])


@pytest.mark.parametrize(
    ("n_rows", "sizes"), [(0, [0]), (5, [5]), (127, [127]), (128, [128]), (129, [128, 1]), (175, [160, 15])]
)
def test_gathered_rows_are_multiplied_in_numbers_that_recur(
    n_rows: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "HAS_LINEAR", True)
    x, weight = torch.randn(n_rows, 6), torch.randn(4, 6)
    assert [len(x[span]) for span in onednn.spans(x)] == sizes
    torch.testing.assert_close(torch.cat([x[span] for span in onednn.spans(x)]), x)
    torch.testing.assert_close(linear_of_rows(x, weight), F.linear(x, weight))


@pytest.mark.parametrize("is_gated", [True, False])
def test_parts_of_rows_add_up(is_gated: bool) -> None:
    torch.manual_seed(0)
    rows = Rows.of(torch.rand(2, 150) < 0.6)
    layer, h, gate = Residual(6, 8).double(), torch.randn(2, 150, 8).double(), torch.rand(len(rows)).double()
    for x in (torch.randn(len(rows), 6).double(), torch.randn(2, 150, 6).double()):
        with torch.inference_mode():
            own = x if x.dim() == 2 else rows.take(x)
            product = F.linear(own, layer.weight, layer.bias) * (gate[:, None] if is_gated else 1)
            expected = h.flatten(0, 1).index_add(0, rows.index, product).view_as(h)
            torch.testing.assert_close(layer(x, h.clone(), gate if is_gated else None, rows), expected)
