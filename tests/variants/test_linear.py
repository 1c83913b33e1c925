"""Linear layers that do more in one step, against the steps one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from effaudit.flop_counting import count_flops
from effaudit.variants import _linear
from effaudit.variants._linear import ActivatedLinear, Residual

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


@pytest.mark.skipif(not _linear.HAS_FUSED, reason="this torch has no oneDNN")
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
