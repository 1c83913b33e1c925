"""A revision of the repository beside the working tree, and how either is run."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from effaudit.against.dependencies import interpreter
from effaudit.against.processes import Side
from effaudit.errors import EffauditError

NEVER_LINKED = ("__pycache__", ".pyc", ".egg-info")  # what belongs to the working tree's code


@dataclass(frozen=True)
class Revisions:
    """Both sides of a comparison."""

    base: Side
    current: Side


@contextmanager
def revisions(revision: str, target: str) -> Iterator[Revisions]:
    """The working tree and `revision` of the same repository, which is checked out until the block ends.

    Nothing is written into the repository. Packages are those of this environment, except those that the
    revision declares otherwise. `target` is the profile: a file of the repository stands for that of each
    revision, any other for itself.
    Raises EffauditError when there is no such revision, or when it has no such profile.
    """
    top = Path(_git("rev-parse", "--show-toplevel", problem="no git repository here: there is nothing to be against"))
    commit = _git(
        "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}",
        problem=f"no revision `{revision}` in this repository",
        hint="a shallow clone has few: fetch it (`fetch-depth: 0` of actions/checkout)",
    )  # fmt: skip
    with TemporaryDirectory(prefix="effaudit-base-") as folder:
        tree, place = Path(folder) / "tree", Path(folder)
        _check_out(top, commit, tree)
        _link_ignored(top, tree)
        python = interpreter(top, tree, place / "environment")
        here, now = import_paths(top), Path.cwd()
        there = _moved(now, top, tree)
        there.mkdir(parents=True, exist_ok=True)
        moved = tuple(str(_moved(Path(path), top, tree)) for path in here)
        name = f"{revision} ({commit[:12]})"
        yield Revisions(
            base=Side(name, python, moved, str(there), _profile(target, top, tree)),
            current=Side("the working tree", sys.executable, tuple(here), str(now), target),
        )


def import_paths(top: Path) -> list[str]:
    """PYTHONPATH of a process that is to import the working tree's code from the tree itself.

    Where nothing is imported from the tree, its code may be installed as a copy: then from where sources lie by custom.
    """
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    inside = [path for path in (*named, *sys.path) if path and _is_inside(path, top) and not _is_packages(path, top)]
    custom = top / "src" if (top / "src").is_dir() else top
    return list(dict.fromkeys(os.path.abspath(path) for path in (*(inside or [str(custom)]), *named)))


def _moved(path: Path, top: Path, tree: Path) -> Path:
    """The same place in the other tree; what lies outside stays where it is."""
    return tree / path.resolve().relative_to(top.resolve()) if _is_inside(path, top) else path


def _is_inside(path: str | Path, top: Path) -> bool:
    return Path(path).resolve().is_relative_to(top.resolve())


def _is_packages(path: str, top: Path) -> bool:
    """Whether it is where packages are installed: an environment often lies in the repository."""
    is_of_environment = _is_inside(sys.prefix, top) and _is_inside(path, Path(sys.prefix))
    return is_of_environment or path.endswith(("site-packages", "dist-packages", ".zip"))


def _profile(target: str, top: Path, tree: Path) -> str:
    path = Path(target)
    if not path.is_file():
        return target  # the name of a built-in one
    moved = _moved(path, top, tree)
    if not moved.is_file():
        raise EffauditError(f"the revision has no `{target}`", "the first revision with it is the first to be against")
    return str(moved.resolve())


def _check_out(top: Path, commit: str, tree: Path) -> None:
    """Writes the files of a commit, through an index of its own, so that the repository keeps no trace."""
    index = {**os.environ, "GIT_INDEX_FILE": str(tree.with_suffix(".index"))}
    for command in (["read-tree", commit], ["checkout-index", "--all", f"--prefix={tree}/"]):
        done = subprocess.run(["git", "-C", str(top), *command], env=index, capture_output=True, text=True)
        if done.returncode:
            reason = done.stderr.strip().splitlines()[-1:] or ["git failed"]
            raise EffauditError(f"cannot check out `{commit[:12]}`: {reason[0]}", "free some space, or see `git fsck`")


def _link_ignored(top: Path, tree: Path) -> None:
    """Links what git ignores, such as data and weights, into the tree: those are not a revision's."""
    listing = ["ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z"]
    done = subprocess.run(["git", "-C", str(top), *listing], capture_output=True, text=True)
    for name in done.stdout.split("\0"):
        link = tree / name
        if name and not name.rstrip("/").endswith(NEVER_LINKED) and not link.exists():
            link.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):  # a system without links: then what needs it says so
                link.symlink_to((top / name).resolve(), target_is_directory=name.endswith("/"))


def _git(*arguments: str, problem: str, hint: str = "") -> str:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    except FileNotFoundError as error:
        raise EffauditError("`git` is not installed", "--against needs it to check the revision out") from error
    if done.returncode:
        raise EffauditError(problem, hint or "run it inside a checkout")
    return done.stdout.strip()
