"""Linear layers of a CPU by oneDNN, as torch's compiler emits them: with an activation in the same pass.

The op is private to torch, so it may be missing.
"""

from __future__ import annotations

from functools import cache
from typing import Literal

import torch
from torch import Tensor

from effaudit import device as devices

HAS_LINEAR = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Literal["none", "gelu", "relu"] = "none"
) -> Tensor:
    """`activation(x @ weight.T + bias)` for `x` (…, in) and `weight` (out, in); no gradient flows."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "none")
    return product


@cache
def is_quicker_than_mkl() -> bool:
    """Whether torch's own products, by MKL, are the slower ones: MKL keeps its AVX-512 kernels to Intel's CPUs."""
    return HAS_LINEAR and torch.backends.mkl.is_available() and not devices.is_intel()
