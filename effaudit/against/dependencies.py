"""Which packages a revision is run with: those of this environment, unless it declares others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from effaudit.borrowed_environment import borrow
from effaudit.errors import EffauditError

CONSTRAINTS = "constraints.txt"
TIMEOUT_S = 1800


def interpreter(top: Path, tree: Path, folder: Path) -> str:
    """This interpreter, or, where both trees declare different packages, one in `folder` with those of `tree`.

    That environment borrows every package of this one and installs only what differs.
    Raises EffauditError when that fails.
    """
    if declared(top) == declared(tree):
        return sys.executable
    python = borrow(folder)
    constraints = ["-c", str(tree / CONSTRAINTS)] if (tree / CONSTRAINTS).is_file() else []
    wanted = [word for path in _requirement_files(tree) for word in ("-r", str(path))] + _of_project(tree)
    if not wanted:
        return sys.executable
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *constraints, *wanted]
    environment = {name: value for name, value in os.environ.items() if name not in ("PIP_CONSTRAINT", "PYTHONPATH")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or ["pip failed"]
        raise EffauditError(
            f"the revision declares other packages, and they cannot be installed: {said[0]}",
            "let pip reach an index, or be against a revision with the same dependencies",
        )
    return str(python)


def declared(tree: Path) -> dict[str, str]:
    """What a tree says about the packages that it needs, by file; of pyproject.toml only the dependencies."""
    found = {path.name: path.read_text(encoding="utf-8") for path in _requirement_files(tree)}
    for name in (CONSTRAINTS, "setup.py", "setup.cfg"):
        if (tree / name).is_file():
            found[name] = (tree / name).read_text(encoding="utf-8")
    found["pyproject.toml"] = "\n".join(_of_project(tree))
    return found


def _requirement_files(tree: Path) -> list[Path]:
    return sorted(tree.glob("requirements*.txt"))


def _of_project(tree: Path) -> list[str]:
    """The dependencies of pyproject.toml; of optional ones none, as nobody knows which are installed."""
    path = tree / "pyproject.toml"
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    if sys.version_info >= (3, 11):
        import tomllib

        try:
            return [str(item) for item in tomllib.loads(text).get("project", {}).get("dependencies", [])]
        except tomllib.TOMLDecodeError:
            return []
    # Python 3.10 has no reader of TOML: the strings of the first list called `dependencies`
    listed = re.search(r"^dependencies\s*=\s*\[(.*?)^\]|^dependencies\s*=\s*\[(.*?)\]$", text, re.DOTALL | re.MULTILINE)
    return re.findall(r'"([^"]+)"', next(filter(None, listed.groups()), "")) if listed else []
