"""A module that is imported when something of it is first used, so that what needs none of it starts at once."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Lazy:
    """Stands for the module of that name."""

    module: str

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.module), name)
