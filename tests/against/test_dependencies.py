import subprocess
import sys
from pathlib import Path

import pytest

from effaudit.against import dependencies
from effaudit.against.dependencies import declared, interpreter
from effaudit.errors import EffauditError

PROJECT = '[project]\nname = "p"\nversion = "{version}"\ndependencies = [\n    "torch>={torch}",\n    "numpy",\n]\n'


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """Two trees that need the same."""
    for name in ("top", "tree"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pyproject.toml").write_text(PROJECT.format(version=name, torch="2.6"), encoding="utf-8")
        (tmp_path / name / "requirements-dev.txt").write_text("pytest\n", encoding="utf-8")
    return tmp_path / "top", tmp_path / "tree"


def test_the_same_packages_are_installed_once(trees: tuple[Path, Path], tmp_path: Path) -> None:
    assert declared(trees[0]) == declared(trees[1])  # the version of the project is none of its packages
    assert interpreter(*trees, tmp_path / "environment") == sys.executable
    assert not (tmp_path / "environment").exists()


def test_projects_are_read_alike_by_every_python(trees: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    read = dependencies._of_project(trees[0])
    monkeypatch.setattr(dependencies.sys, "version_info", (3, 10))
    assert dependencies._of_project(trees[0]) == read == ["torch>=2.6", "numpy"]


@pytest.mark.parametrize("what", ["pyproject.toml", "requirements-dev.txt", "constraints.txt"])
def test_other_packages_are_installed_into_an_environment_of_their_own(
    trees: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    text = PROJECT.format(version="1", torch="2.5") if what == "pyproject.toml" else "pytest==8.0\n"
    (trees[1] / what).write_text(text, encoding="utf-8")
    commands: list[list[str]] = []

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(dependencies, "borrow", lambda folder: folder / "python")
    monkeypatch.setattr(dependencies.subprocess, "run", pip)
    assert interpreter(*trees, tmp_path / "environment") == str(tmp_path / "environment" / "python")
    (command,) = commands
    assert command[1:4] == ["-m", "pip", "install"]
    assert command[-4:-2] == ["-r", str(trees[1] / "requirements-dev.txt")]
    assert command[-2:] == [f"torch>={'2.5' if what == 'pyproject.toml' else '2.6'}", "numpy"]
    assert ("-c" in command) == (what == "constraints.txt")


def test_what_pip_cannot_install_is_said(
    trees: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (trees[1] / "constraints.txt").write_text("torch==2.5\n", encoding="utf-8")
    monkeypatch.setattr(dependencies, "borrow", lambda folder: folder / "python")
    failed = subprocess.CompletedProcess([], 1, "", "trying\nERROR: no matching distribution\n")
    monkeypatch.setattr(dependencies.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(EffauditError, match="cannot be installed: ERROR: no matching distribution"):
        interpreter(*trees, tmp_path / "environment")
