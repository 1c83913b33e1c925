"""The rules of who may import whom."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import effaudit
from effaudit import plugins

PACKAGE = Path(effaudit.__file__).parent
HEAVY = ("torch", "matplotlib", "codecarbon", "scipy")
HELP_DOES_WITHOUT = (*HEAVY, "numpy", "pydantic", "rich", "yaml")
# What answers at once, or reads records only.
LIGHT = [
    "effaudit",
    "effaudit.cli",
    "effaudit.record",
    "effaudit.comparison",
    "effaudit.gating",
    "effaudit.baselines",
    "effaudit.stats",
    "effaudit.runs",
    "effaudit.reporting",
    "effaudit.catalogue",
    *(f"effaudit.renderers.{name}" for name in plugins.names("renderers")),
]


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


SOURCES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def is_for_types_only(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported, those of classes and branches too."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or is_for_types_only(node):
            continue
        yield node
        yield from at_import([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)])


def imported(nodes: Iterator[ast.AST]) -> set[str]:
    """The modules that these statements import, a submodule taken from a package included."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module)
            found |= {name for alias in node.names if (name := f"{node.module}.{alias.name}") in SOURCES}
    return found


def tree(name: str) -> ast.Module:
    return ast.parse(SOURCES[name].read_text(encoding="utf-8"))


def reached(name: str) -> dict[str, list[str]]:
    """Every module that importing `name` imports, ours followed, each with the way to it."""
    ways = {name: [name]}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        for found in sorted(imported(at_import(tree(current).body))):
            if found not in ways:
                ways[found] = [*ways[current], found]
                if found in SOURCES:
                    waiting.append(found)
    return ways


@pytest.mark.parametrize("name", LIGHT)
def test_what_must_be_quick_never_imports_what_is_heavy(name: str) -> None:
    ways = [" -> ".join(way) for found, way in reached(name).items() if found.partition(".")[0] in HEAVY]
    assert ways == []


def test_help_does_without_what_takes_time_to_import() -> None:
    assert {found.partition(".")[0] for found in reached("effaudit.cli")} & set(HELP_DOES_WITHOUT) == set()


def test_the_check_sees_an_import_that_is_not_allowed() -> None:
    assert "torch" in reached("effaudit.auditing")
    assert reached("effaudit.doctor")["torch"][0] == "effaudit.doctor"


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_variants_meters_and_renderers_keep_apart(name: str) -> None:
    everywhere = imported(ast.walk(tree(name)))
    group = name.split(".")[1] if name.count(".") >= 2 else ""
    forbidden = {"variants": ("meters",), "meters": ("variants",), "renderers": ("meters",)}.get(group, ())
    assert [found for found in everywhere if found.startswith(tuple(f"effaudit.{other}" for other in forbidden))] == []
    if group == "meters":
        others = {f"effaudit.meters.{meter}" for meter in plugins.names("meters")} - {name}
        assert everywhere & others == set()


def test_no_module_bears_the_name_of_a_public_function() -> None:
    assert {name.rpartition(".")[2] for name in SOURCES if name.count(".") == 1} & set(effaudit.__all__) == set()


def test_commands_on_records_load_nothing_heavy(tmp_path: Path) -> None:
    from tests.fakes_profiles import save_run

    save_run(tmp_path)
    script = f"""
import sys
import effaudit
from effaudit.cli import main
assert main(["--help"]) == main(["list"]) == 0
assert main(["compare", {str(tmp_path)!r}, "--json", "-"]) == 0
assert main(["gate", {str(tmp_path)!r}, "--baseline", {str(tmp_path / "dense.json")!r}]) == 0
assert main(["report", {str(tmp_path)!r}, "--markdown", "--csv"]) == 0
print(sorted({{name.partition(".")[0] for name in sys.modules}} & set({HEAVY!r})))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, done.stderr.strip())
    assert done.stdout.splitlines()[-1] == "[]"
