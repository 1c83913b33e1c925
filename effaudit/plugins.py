"""Which plug-ins exist, found by file name and entry point, imported only when asked for."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from effaudit.errors import unknown_name

GROUPS = ("variants", "datasets", "meters", "renderers")


def names(group: str) -> list[str]:
    """The plug-ins of `group` (one of GROUPS): modules of `effaudit/<group>/` and entry points `effaudit.<group>`."""
    own = [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent / group)])]
    foreign = [e.name for e in entry_points(group=f"effaudit.{group}")]
    return sorted({name for name in own + foreign if not name.startswith("_")})


def load(group: str, name: str) -> ModuleType:
    """The module of one plug-in.

    Raises EffauditError when there is none of that name.
    """
    if name not in names(group):
        raise unknown_name(group, name, names(group))
    for entry in entry_points(group=f"effaudit.{group}"):
        if entry.name == name:
            module: ModuleType = entry.load()
            return module
    return import_module(f"effaudit.{group}.{name}")
