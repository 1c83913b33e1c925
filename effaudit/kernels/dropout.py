"""Dropout in one pass, and one backward: torch draws a CPU's mask one element at a time, longer than a layer takes."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from effaudit.kernels import library

N_CODES = 2**16  # what 16 bits an element can tell apart: probabilities are rounded to as many
TYPES = {torch.float32: "dropout_float32", torch.bfloat16: "dropout_bfloat16"}


def dropout(x: Tensor, p: float) -> Tensor:
    """`x` with elements zeroed at the rate `p` and the others scaled so that the mean stays; gradients flow.

    The mask follows from one number of torch's generator.
    """
    dropped: Tensor = _Dropout.apply(x, p, int(torch.randint(2**63 - 1, ())))
    return dropped


def is_usable(x: Tensor) -> bool:
    return x.dtype in TYPES and library.is_usable(x, x.dtype)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.drawn = (p, seed)
        return _dropped(x, p, seed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _dropped(gradients[0], *ctx.drawn), None, None


def _dropped(x: Tensor, p: float, seed: int) -> Tensor:
    n_dropped = min(round(p * N_CODES), N_CODES - 1)
    x = x.contiguous()
    out = torch.empty_like(x)
    _function(TYPES[x.dtype])(x.data_ptr(), out.data_ptr(), x.numel(), seed, n_dropped, N_CODES / (N_CODES - n_dropped))
    return out


@cache
def _function(name: str) -> Any:
    found = library.library()
    assert found is not None, "is_usable() says whether there is a kernel"
    function = getattr(found, name)
    pointer = ctypes.c_void_p
    function.argtypes = (pointer, pointer, ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_float)
    function.restype = None
    return function
