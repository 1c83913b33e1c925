"""Which plug-ins exist, found by file name and entry point, imported only when asked for."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from effaudit.errors import EffauditError, unknown_name

EXPORTS = {  # what a module of each group must have
    "variants": ("TASKS", "Options", "build", "flops"),
    "datasets": ("Options", "open_dataset"),
    "meters": ("measure",),
    "renderers": ("SUFFIX", "render"),
}
GROUPS = tuple(EXPORTS)


def names(group: str) -> list[str]:
    """The plug-ins of `group` (one of GROUPS): modules of `effaudit/<group>/` and entry points `effaudit.<group>`."""
    own = [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent / group)])]
    foreign = [e.name for e in entry_points(group=f"effaudit.{group}")]
    return sorted({name for name in own + foreign if not name.startswith("_")})


def load(group: str, name: str) -> ModuleType:
    """The module of one plug-in.

    Raises EffauditError when there is none of that name, or another package's cannot be used.
    """
    if name not in names(group):
        raise unknown_name(group, name, names(group))
    for entry in entry_points(group=f"effaudit.{group}"):
        if entry.name == name:
            return _foreign(group, entry)
    return import_module(f"effaudit.{group}.{name}")


def _foreign(group: str, entry: EntryPoint) -> ModuleType:
    what = f"`{entry.name}` among the {group} (entry point `{entry.value}`)"
    try:
        module: ModuleType = entry.load()
    except Exception as error:  # whatever another package does when it is imported
        text = " ".join(str(error).split())
        raise EffauditError(
            f"{what} cannot be loaded: {type(error).__name__}: {text}", "mend or uninstall its package"
        ) from error
    lacking = [name for name in EXPORTS[group] if not hasattr(module, name)]
    if lacking:
        raise EffauditError(f"{what} lacks `{lacking[0]}`", f"it is to be a module with {', '.join(EXPORTS[group])}")
    return module
