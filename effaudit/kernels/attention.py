"""Attention of chosen queries, for a whole batch in one call.

torch's kernel takes as many queries of every example, and computes all scores of short texts although half of a causal
mask hides them.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from effaudit.kernels import library

WIDTHS = 8  # of a head: multiples of it

library.OPS.define(
    "row_attention(Tensor q, Tensor k, Tensor v, int head_dim, bool is_causal, Tensor? positions, int[]? counts, "
    "Tensor? real, Tensor? gate) -> Tensor"
)


def row_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    head_dim: int,
    is_causal: bool,
    positions: Tensor | None = None,
    counts: Sequence[int] | None = None,
    real: Tensor | None = None,
    gate: Tensor | None = None,
) -> Tensor:
    """softmax(q k / sqrt(head_dim)) v, shaped as `q`: (B, T, D), or (N, D) of queries at `positions` (N,) of a text.

    `k` and `v` are (B, T, D), all float32 with heads side by side in D; `counts` are the queries of each example in
    turn, positions ascending within one; `real` (B, T) bool the keys that are no padding, `gate`
    (B, H) what heads' outputs are multiplied by.
    """
    mixed: Tensor = torch.ops.effaudit.row_attention(q, k, v, head_dim, is_causal, positions, counts, real, gate)
    return mixed


def is_usable(q: Tensor, head_dim: int) -> bool:
    return head_dim % WIDTHS == 0 and library.is_usable(q)


@cache
def _function() -> Callable[..., None]:
    found = library.library()
    assert found is not None, "is_usable() says whether there is a kernel"
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    rows = (pointer, whole, pointer, pointer, whole, *[pointer] * 5)
    function: Callable[..., None] = found.row_attention
    function.argtypes, function.restype = (*rows, *[whole] * 4, ctypes.c_int), None  # type: ignore[attr-defined]
    return function


def _on_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    head_dim: int,
    is_causal: bool,
    positions: Tensor | None,
    counts: Sequence[int] | None,
    real: Tensor | None,
    gate: Tensor | None,
) -> Tensor:
    out = q.new_empty(q.shape)
    q, k, v = (_rows(x) for x in (q, k, v))
    if v.stride(-2) != k.stride(-2):
        k, v = k.contiguous(), v.contiguous()
    n_examples, n_tokens, width = k.shape
    gate = None if gate is None else gate.to(q.dtype).expand(n_examples, width // head_dim).contiguous()
    held = None if counts is None else (ctypes.c_int64 * len(counts))(*counts)
    real = None if real is None else real.contiguous()
    _function()(
        *(q.data_ptr(), q.stride(-2), k.data_ptr(), v.data_ptr(), k.stride(-2)),
        None if positions is None else positions.data_ptr(),
        held,
        None if real is None else real.data_ptr(),
        None if gate is None else gate.data_ptr(),
        out.data_ptr(),
        *(n_examples, n_tokens, width // head_dim, head_dim, is_causal),
    )
    return out


def _rows(x: Tensor) -> Tensor:
    """`x` with its rows equally far apart in memory, as parts of a fused projection are."""
    is_even = x.stride(-1) == 1 and (x.dim() == 2 or x.shape[0] == 1 or x.stride(0) == x.shape[1] * x.stride(1))
    return x if is_even else x.contiguous()


def _on_meta(q: Tensor, *_: object) -> Tensor:
    return q.new_empty(q.shape)


library.OPS.impl("row_attention", _on_cpu, "CPU")
library.OPS.impl("row_attention", _on_meta, "Meta")
