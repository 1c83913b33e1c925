"""Layer norms of chosen rows, and additions onto them, each in one pass over those rows alone.

Shapes: M rows of width D, N of them chosen.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import torch
from torch import Tensor

from effaudit.kernels import library

WIDTHS = 16  # of a row: multiples of it

library.OPS.define("norm_rows(Tensor h, Tensor? index, Tensor weight, Tensor bias, float eps) -> Tensor")
library.OPS.define("add_rows(Tensor(a!) h, Tensor index, Tensor x, Tensor? gate) -> ()")


def norm_rows(h: Tensor, index: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """Layer norms (N, D) of the rows `index` (N,) of `h` (M, D), or of all of them."""
    normed: Tensor = torch.ops.effaudit.norm_rows(h, index, weight, bias, eps)
    return normed


def add_rows(h: Tensor, index: Tensor, x: Tensor, gate: Tensor | None = None) -> None:
    """Adds `x` times `gate` (N,) onto the rows `index` (N,), each once, of `h` (M, D) in place.

    `x` is (N, D), or (M, D) of which the same rows are taken.
    """
    torch.ops.effaudit.add_rows(h, index, x, gate)


def is_usable(h: Tensor) -> bool:
    return h.shape[-1] % WIDTHS == 0 and h.is_contiguous() and library.is_usable(h)


@cache
def _function(name: str, n_pointers: int, *others: Any) -> Any:
    found = library.library()
    assert found is not None, "is_usable() says whether there is a kernel"
    function = getattr(found, name)
    function.argtypes, function.restype = (*[ctypes.c_void_p] * n_pointers, *others), None
    return function


def _normed_on_cpu(h: Tensor, index: Tensor | None, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    n, width = len(h) if index is None else len(index), h.shape[1]
    out = h.new_empty(n, width)
    pointers = (h.data_ptr(), None if index is None else index.data_ptr(), weight.data_ptr(), bias.data_ptr())
    function = _function("norm_rows", 5, ctypes.c_int64, ctypes.c_int64, ctypes.c_float)
    function(*pointers, out.data_ptr(), n, width, eps)
    return out


def _added_on_cpu(h: Tensor, index: Tensor, x: Tensor, gate: Tensor | None) -> None:
    n, x = len(index), x.to(h.dtype).contiguous()
    factors = None if gate is None else gate.to(h.dtype).contiguous()
    function = _function("add_rows", 3, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    gates = None if factors is None else factors.data_ptr()
    function(h.data_ptr(), index.data_ptr(), x.data_ptr(), len(x) != n, gates, n, h.shape[1])


library.OPS.impl("norm_rows", _normed_on_cpu, "CPU")
library.OPS.impl(
    "norm_rows", lambda h, index, *_: h.new_empty(len(h) if index is None else len(index), h.shape[1]), "Meta"
)
library.OPS.impl("add_rows", _added_on_cpu, "CPU")
library.OPS.impl("add_rows", lambda *_: None, "Meta")
