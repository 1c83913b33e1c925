"""Linear layers of a CPU by oneDNN, as torch's compiler emits them: with an activation in the same pass.

The op is private to torch, so it may be missing.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from effaudit import device as devices

# oneDNN makes a kernel for each shape that it meets, which takes as long as a product of some hundred rows does, and
# keeps 1,024 of them unless told otherwise. Gathered rows, hardly twice as many, are thus multiplied in two parts: a
# multiple of GRAIN and the rest; so few shapes come again.
GRAIN, MIN_GRAINS = 16, 8
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "4096")

HAS_LINEAR = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Literal["none", "gelu", "relu"] = "none"
) -> Tensor:
    """`activation(x @ weight.T + bias)` for `x` (…, in) and `weight` (out, in); no gradient flows."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "none")
    return product


def spans(rows: Tensor) -> list[slice]:
    """The parts in which gathered rows (N, …) are multiplied."""
    n_others = len(rows) % GRAIN
    is_whole = n_others == 0 or len(rows) < MIN_GRAINS * GRAIN or not HAS_LINEAR or rows.device.type != "cpu"
    return [slice(None)] if is_whole else [slice(-n_others), slice(-n_others, None)]


@cache
def is_quicker_than_mkl() -> bool:
    """Whether torch's own products, by MKL, are the slower ones: MKL keeps its AVX-512 kernels to Intel's CPUs."""
    return HAS_LINEAR and torch.backends.mkl.is_available() and not devices.is_intel()
