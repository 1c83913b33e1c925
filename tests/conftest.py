"""What all tests share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from effaudit.cli import main

GLOBAL_HOOKS = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
)


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """The folder of a real dataset by name, under $EFFAUDIT_DATA or `../shared/data`; skips where it is absent."""
    root = Path(os.environ.get("EFFAUDIT_DATA") or Path(__file__).parents[2] / "shared" / "data")

    def folder(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"no real data `{root / name}`: set EFFAUDIT_DATA to the folder that has `{name}`")
        return root / name

    return folder


@pytest.fixture(autouse=True)
def _nothing_outlives_a_test() -> Iterator[None]:
    """Proves that no global hook and no dispatch or function mode is left behind."""
    yield
    if "torch.nn" not in sys.modules:
        return
    from torch.nn.modules import module
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    assert [name for name in GLOBAL_HOOKS if getattr(module, name)] == []
    assert _get_current_dispatch_mode_stack() == []
    assert _get_current_function_mode_stack() == []


@dataclass(frozen=True)
class Answer:
    """What a command did: its exit code and what it wrote to stdout and stderr."""

    code: int
    out: str
    err: str


Cli = Callable[..., Answer]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)  # what is tested here is no step of a build

    def run(*arguments: object) -> Answer:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Answer(code, out, err)

    return run
