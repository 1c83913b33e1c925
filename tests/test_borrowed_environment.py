import subprocess
from pathlib import Path

from effaudit.borrowed_environment import borrow


def test_packages_of_this_environment_can_be_imported_and_none_is_installed(
    tmp_path: Path,
) -> None:
    python = borrow(tmp_path / "environment")
    script = "import sys, pydantic; print(sys.prefix); print(pydantic.__file__)"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    prefix, found = done.stdout.splitlines()
    assert Path(prefix).resolve() == (tmp_path / "environment").resolve()
    assert not Path(found).is_relative_to(tmp_path)
