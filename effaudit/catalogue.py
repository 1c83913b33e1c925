"""What there is to choose from: plug-ins and built-in profiles, told without importing any."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from effaudit import plugins
from effaudit.profile_spec import builtin_profiles, load_profile


@dataclass(frozen=True)
class Entry:
    """A name, the first line of what is said about it, and for a variant the tasks that it does."""

    name: str
    summary: str
    tasks: tuple[str, ...] = ()


def plugin_entries(group: str) -> list[Entry]:
    """The plug-ins of one of plugins.GROUPS."""
    return [_entry(group, name) for name in plugins.names(group)]


def profile_entries() -> list[Entry]:
    """The built-in profiles."""
    return [Entry(name, _first_line(load_profile(name).description)) for name in builtin_profiles()]


def _entry(group: str, name: str) -> Entry:
    source = _source(group, name)
    if source is None:
        return Entry(name, "")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    return Entry(name, _first_line(ast.get_docstring(tree) or "").removeprefix(f"`{name}`: "), _tasks(tree))


def _source(group: str, name: str) -> Path | None:
    for entry in entry_points(group=f"effaudit.{group}"):
        if entry.name == name:
            try:
                spec = find_spec(entry.module)
            except ImportError:  # a package that is not whole: said where it is used
                return None
            return Path(spec.origin) if spec and spec.origin else None
    return Path(__file__).parent / group / f"{name}.py"


def _tasks(tree: ast.Module) -> tuple[str, ...]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "TASKS" for t in node.targets):
            return tuple(ast.literal_eval(node.value))
    return ()


def _first_line(text: str) -> str:
    return next(iter(text.strip().splitlines()), "")
