"""The compiled library: made on first use, kept in the user's cache, None where it cannot be had."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

FOLDER = Path(__file__).parent
SOURCES = tuple(sorted(FOLDER.glob("*.cpp")))
COMPILERS = ("c++", "g++", "clang++")  # where $CXX names none
OPTIONS = ("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC")
COMPILE_S = 120.0

OPS = torch.library.Library("effaudit", "DEF")  # so that counters see what runs


def is_usable(x: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """Whether kernels of that type may take `x`."""
    return (
        x.device.type == "cpu"
        and x.dtype == dtype
        and not torch.compiler.is_compiling()
        and torch.get_num_threads() == 1
        and library() is not None
    )


@cache
def library() -> ctypes.CDLL | None:
    path = _compiled()
    try:
        return ctypes.CDLL(str(path)) if path is not None else None
    except OSError:
        return None


def remembered(name: str, measure: Callable[[], bool]) -> bool:
    """What was measured with this library on this machine, kept beside it; False where there is no library."""
    path = _compiled()
    if path is None:
        return False
    kept = path.with_name(f"{path.stem}-{name}")
    with suppress(OSError):
        if kept.is_file():
            return kept.read_text(encoding="utf-8") == "yes"
    found = measure()
    with suppress(OSError), tempfile.TemporaryDirectory(dir=path.parent) as place:  # which may be another user's
        part = Path(place) / "found"
        part.write_text("yes" if found else "no", encoding="utf-8")
        part.replace(kept)
    return found


def cpp_compiler() -> str | None:
    """The C++ compiler that $CXX names, or else the first of COMPILERS that is here."""
    names = (os.environ.get("CXX", ""), *COMPILERS)
    return next((found for name in names if (found := shutil.which(name))), None)


def _compiled() -> Path | None:
    """The library in the user's cache, compiled anew where sources, compiler or CPU are other ones."""
    compiler = cpp_compiler()
    if compiler is None:
        return None
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "effaudit"
    texts = (path.read_bytes() for path in (*SOURCES, *sorted(FOLDER.glob("*.h"))))
    made_of = (*texts, compiler.encode(), repr(OPTIONS).encode(), _instructions())
    path = folder / f"kernels-{hashlib.sha256(b'|'.join(made_of)).hexdigest()[:16]}.so"
    if path.is_file():
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as place:
            part = Path(place) / path.name
            command = [compiler, *OPTIONS, *map(str, SOURCES), "-o", str(part)]
            subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_S)
            part.replace(path)
    except (OSError, subprocess.SubprocessError):
        return None
    return path


def _instructions() -> bytes:
    """What `-march=native` depends on: a home may be shared by unlike machines."""
    from effaudit.device import cpu, instruction_sets  # which builds on this module

    return repr((cpu()[0], instruction_sets())).encode()
