import os
import subprocess
import sys
from pathlib import Path

import pytest

from effaudit.against.checkout import import_paths, revisions
from effaudit.errors import EffauditError


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_yaml", ".yaml").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits of a model's code and a profile, a change on top, and what git ignores."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'repo' / 'lib'}{os.pathsep}/elsewhere")
    folder = tmp_path / "repo"
    write(folder, lib__model_py="first", race_yaml="name: first")
    (folder / ".gitignore").write_text("data/\n*.bin\n__pycache__/\n.venv/\n", encoding="utf-8")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    write(folder, lib__model_py="second")
    git(folder, "commit", "--quiet", "-am", "second")
    write(folder, lib__model_py="third", data__train="rows", lib__weights="", new_yaml="name: new")
    (folder / "lib" / "weights.bin").write_bytes(b"w")
    (folder / "lib" / "__pycache__").mkdir()
    (folder / "lib" / "__pycache__" / "model.pyc").write_bytes(b"third")
    monkeypatch.chdir(folder)
    return folder


def test_a_revision_lies_beside_the_working_tree(repository: Path) -> None:
    before = (git(repository, "status", "--porcelain", "--ignored"), sorted(os.listdir(repository / ".git")))
    with revisions("HEAD~1", "race.yaml") as sides:
        base = Path(sides.base.paths[0])
        assert base.name == "lib"
        assert (base / "model.py").read_text(encoding="utf-8") == "first"
        assert Path(sides.base.target) == (base.parent / "race.yaml").resolve()
        assert Path(sides.base.folder) == base.parent
        assert sides.base.python == sys.executable
        assert sides.base.name == f"HEAD~1 ({git(repository, 'rev-parse', 'HEAD~1')[:12]})"
        assert sides.current.paths[0] == str(repository / "lib")
        assert sides.current.target == "race.yaml"
        assert sides.base.paths[-1] == sides.current.paths[-1] == "/elsewhere"
    assert not base.exists()
    assert (repository / "lib" / "model.py").read_text(encoding="utf-8") == "third"
    after = (git(repository, "status", "--porcelain", "--ignored"), sorted(os.listdir(repository / ".git")))
    assert after == before


def test_what_git_ignores_is_there_but_no_bytecode(repository: Path) -> None:
    with revisions("HEAD", "race.yaml") as sides:
        base = Path(sides.base.folder)
        assert (base / "data" / "train").read_text(encoding="utf-8") == "rows"
        assert (base / "lib" / "weights.bin").read_bytes() == b"w"
        assert not (base / "lib" / "__pycache__").exists()
        assert not (base / "new.yaml").exists()  # not ignored, not committed
    assert (repository / "data" / "train").exists()


def test_a_folder_inside_the_repository_is_the_same_there(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository / "lib")
    with revisions("HEAD", "../race.yaml") as sides:
        assert Path(sides.base.folder).name == "lib"
        assert Path(sides.base.target).name == "race.yaml"
        assert Path(sides.base.target).parent == Path(sides.base.folder).parent.resolve()


def test_a_built_in_profile_is_each_revisions_own(repository: Path) -> None:
    with revisions("HEAD", "demo") as sides:
        assert sides.base.target == sides.current.target == "demo"


@pytest.mark.parametrize(
    ("revision", "target", "message"),
    [("nowhere", "race.yaml", "no revision `nowhere`"), ("HEAD", "new.yaml", "the revision has no `new.yaml`")],
)
def test_what_is_not_there_is_said(repository: Path, revision: str, target: str, message: str) -> None:
    with pytest.raises(EffauditError, match=message), revisions(revision, target):
        pass


def test_a_revision_that_is_an_option_is_refused(repository: Path) -> None:
    with pytest.raises(EffauditError, match="no revision `--all`"), revisions("--all", "race.yaml"):
        pass


def test_outside_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(EffauditError, match="no git repository"), revisions("HEAD", "race.yaml"):
        pass


def test_code_that_is_installed_as_a_copy_is_taken_from_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "path", ["", "/usr/lib/python3"])
    assert import_paths(tmp_path) == [str(tmp_path)]
    (tmp_path / "src").mkdir()
    assert import_paths(tmp_path) == [str(tmp_path / "src")]
    packages = str(tmp_path / ".venv" / "lib" / "site-packages")
    monkeypatch.setattr(sys, "path", [packages, str(tmp_path / "python")])
    assert import_paths(tmp_path) == [str(tmp_path / "python")]
