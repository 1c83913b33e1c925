"""Dropout's own mask on a CPU, and attention under it, against torch's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from effaudit.device import threads
from effaudit.kernels.dropout import N_CODES
from effaudit.kernels.library import library
from effaudit.variants._attention import Attention
from effaudit.variants._dropout import Dropout
from effaudit.variants._visibility import Visibility

NEVER = 1e-9  # a probability that rounds to none of the codes
pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler that makes the kernels")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with threads(1):
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.999])
def test_elements_go_at_the_asked_rate_wherever_they_lie(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    kept = Dropout(p)(torch.ones(50_000, 4, dtype=dtype)) != 0
    rate, deviation = 1 - p, (p * (1 - p) / 50_000) ** 0.5
    assert torch.all((kept.double().mean(dim=0) - rate).abs() < 5 * deviation)


@pytest.mark.parametrize("p", [0.1, 0.3, 1 - 1e-7])
def test_what_stays_is_scaled_to_the_exact_mean(p: float) -> None:
    torch.manual_seed(0)
    out = Dropout(p)(torch.ones(300_000))
    n_kept = N_CODES - min(round(p * N_CODES), N_CODES - 1)
    assert set(out.unique().tolist()) == {0.0, torch.tensor(N_CODES / n_kept).item()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (3,), (5, 7), (0, 4), (3, 1000)])
def test_gradients_pass_where_elements_do(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=dtype).requires_grad_()
    out = Dropout(0.5)(x)
    out.backward(torch.ones_like(out))
    assert x.grad is not None
    assert torch.equal(x.grad * x, out)
    assert set(x.grad.unique().tolist()) <= {0.0, 2.0}
    torch.manual_seed(0)
    torch.randn(shape, dtype=dtype)
    assert torch.equal(Dropout(0.5)(x), out)
    assert x.numel() < 20 or not torch.equal(Dropout(0.5)(x), out)


def test_scaled_bfloat16_is_rounded_as_torch_rounds() -> None:
    x = torch.randn(4096).bfloat16()
    out = Dropout(0.3)(x)
    n_kept = N_CODES - round(0.3 * N_CODES)
    expected = x * torch.tensor(N_CODES / n_kept)
    assert torch.equal(out[out != 0], expected.bfloat16()[out != 0])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_other_types_take_torchs(dtype: torch.dtype) -> None:
    out = Dropout(0.5)(torch.ones(1000, dtype=dtype))
    assert set(out.unique().tolist()) == {0.0, 2.0}


def test_nothing_is_drawn_in_inference_or_at_rate_zero() -> None:
    x, before = torch.rand(9), torch.get_rng_state()
    assert torch.equal(Dropout(0.5).eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("is_padded", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_under_dropout_mixes_as_without(is_causal: bool, is_padded: bool) -> None:
    torch.manual_seed(0)
    attention = Attention(8, 2, 4, dropout=0.0)
    x = torch.randn(3, 5, 8)
    keys = torch.arange(5) < torch.tensor([[5], [3], [1]]) if is_padded else None
    visible = Visibility(is_causal, 5, x, keys)
    expected = attention(x, visible)
    attention.dropout.p = NEVER
    torch.testing.assert_close(attention(x, visible), expected)
    attention.dropout.p = 0.9
    assert not torch.allclose(attention(x, visible), expected)


def test_attention_in_bfloat16_is_that_of_float32_rounded() -> None:
    torch.manual_seed(0)
    attention, x = Attention(8, 2, 4, dropout=0.0), torch.randn(3, 5, 8)
    visible = Visibility(True, 5, x, None)
    with torch.autocast("cpu", torch.bfloat16):
        found = attention(x, visible)
    torch.testing.assert_close(found.float(), attention(x, visible), rtol=0.02, atol=0.02)
