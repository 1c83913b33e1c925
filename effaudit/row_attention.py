"""Attention of chosen queries by a kernel of our own, for a whole batch in one call, on one thread of a CPU.

torch's kernel takes as many queries of every example, and computes all scores of short texts although half of a causal
mask hides them. The C++ source beside this file is compiled once a machine, where there is a compiler; without one,
with more threads or in another type, models go by torch's kernel.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

SOURCE = Path(__file__).with_suffix(".cpp")
COMPILERS = ("c++", "g++", "clang++")  # where $CXX names none
OPTIONS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")
COMPILE_S = 120.0
WIDTHS = 8  # of a head: multiples of it

_LIBRARY = torch.library.Library("effaudit", "DEF")
_LIBRARY.define(
    "row_attention(Tensor q, Tensor k, Tensor v, int head_dim, bool is_causal, Tensor? positions, int[]? counts, "
    "Tensor? real) -> Tensor"
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
) -> Tensor:
    """softmax(q k / sqrt(head_dim)) v, shaped as `q`: (B, T, D), or (N, D) of queries at `positions` (N,) of a text.

    `k` and `v` are (B, T, D), all float32 with heads side by side in D; `counts` are the queries of each example in
    turn, positions ascending within one; `real` (B, T) bool the keys that are no padding.
    """
    mixed: Tensor = torch.ops.effaudit.row_attention(q, k, v, head_dim, is_causal, positions, counts, real)
    return mixed


def is_usable(q: Tensor, head_dim: int) -> bool:
    return (
        q.device.type == "cpu"
        and q.dtype == torch.float32
        and head_dim % WIDTHS == 0
        and not torch.compiler.is_compiling()
        and torch.get_num_threads() == 1
        and kernel() is not None
    )


@cache
def kernel() -> Callable[..., None] | None:
    """The compiled function; None where it cannot be had."""
    path = _compiled()
    try:
        function: Callable[..., None] | None = ctypes.CDLL(str(path)).row_attention if path is not None else None
    except OSError:
        return None
    if function is not None:
        pointer, whole = ctypes.c_void_p, ctypes.c_int64
        rows = (pointer, whole, pointer, pointer, whole, *[pointer] * 4)
        function.argtypes, function.restype = (*rows, *[whole] * 4, ctypes.c_int), None  # type: ignore[attr-defined]
    return function


def cpp_compiler() -> str | None:
    """The C++ compiler that $CXX names, or else the first of COMPILERS that is here."""
    names = (os.environ.get("CXX", ""), *COMPILERS)
    return next((found for name in names if (found := shutil.which(name))), None)


def _compiled() -> Path | None:
    """The library in the user's cache, compiled anew where source, compiler or CPU are other ones."""
    compiler = cpp_compiler()
    if compiler is None:
        return None
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "effaudit"
    made_of = (SOURCE.read_bytes(), compiler.encode(), repr(OPTIONS).encode(), _instructions())
    path = folder / f"row_attention-{hashlib.sha256(b'|'.join(made_of)).hexdigest()[:16]}.so"
    if path.is_file():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            part = Path(place) / path.name
            command = [compiler, *OPTIONS, str(SOURCE), "-o", str(part)]
            subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_S)
            part.replace(path)
    except (OSError, subprocess.SubprocessError):
        return None
    return path


def _instructions() -> bytes:
    """What `-march=native` depends on: a home may be shared by unlike machines."""
    from effaudit.device import cpu, instruction_sets  # which builds on this module

    return repr((cpu()[0], instruction_sets())).encode()


def _on_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    head_dim: int,
    is_causal: bool,
    positions: Tensor | None,
    counts: Sequence[int] | None,
    real: Tensor | None,
) -> Tensor:
    function = kernel()
    assert function is not None, "is_usable() says whether there is a kernel"
    out = q.new_empty(q.shape)
    q, k, v = (_rows(x) for x in (q, k, v))
    if v.stride(-2) != k.stride(-2):
        k, v = k.contiguous(), v.contiguous()
    n_examples, n_tokens, width = k.shape
    held = None if counts is None else (ctypes.c_int64 * len(counts))(*counts)
    real = None if real is None else real.contiguous()
    function(
        *(q.data_ptr(), q.stride(-2), k.data_ptr(), v.data_ptr(), k.stride(-2)),
        None if positions is None else positions.data_ptr(),
        held,
        None if real is None else real.data_ptr(),
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


_LIBRARY.impl("row_attention", _on_cpu, "CPU")
_LIBRARY.impl("row_attention", _on_meta, "Meta")
