"""What all tests share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """The folder of a real dataset by name, under $EFFAUDIT_DATA or `../shared/data`; skips where it is absent."""
    root = Path(os.environ.get("EFFAUDIT_DATA") or Path(__file__).parents[2] / "shared" / "data")

    def folder(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"no real data `{root / name}`: set EFFAUDIT_DATA to the folder that has `{name}`")
        return root / name

    return folder
