"""A new Python environment that borrows the packages of this one, so that nothing is installed twice."""

from __future__ import annotations

import sys
import sysconfig
import venv
from pathlib import Path


def borrow(folder: Path) -> Path:
    """The interpreter of an environment made in `folder`; what is installed there goes before what is borrowed."""
    venv.create(folder, with_pip=True)
    paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
    borrowed = dict.fromkeys(sysconfig.get_paths()[kind] for kind in ("purelib", "platlib"))
    (Path(paths["purelib"]) / "borrowed.pth").write_text("".join(f"{path}\n" for path in borrowed), encoding="utf-8")
    return Path(paths["scripts"]) / Path(sys.executable).name
