"""When the kernels are compiled, and what happens where they cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from effaudit.kernels import library as module
from effaudit.kernels.library import is_usable, library

needs_kernels = pytest.mark.skipif(library() is None, reason="no C++ compiler that makes the kernels")


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """No library yet, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    library.cache_clear()
    yield tmp_path / "effaudit"
    library.cache_clear()


@needs_kernels
def test_it_is_compiled_once(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert library() is not None
    assert [path.suffix for path in anew.iterdir()] == [".so"]
    library.cache_clear()
    monkeypatch.setattr(module.subprocess, "run", lambda *_, **__: pytest.fail("compiled again"))
    assert library() is not None


def test_without_a_compiler_there_is_none(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert library() is None
    assert not is_usable(torch.zeros(1, 1))


def test_a_compiler_that_fails_leaves_nothing_behind(anew: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPTIONS", ("--no-such-option",))
    assert library() is None
    assert not anew.exists() or not list(anew.iterdir())


def test_a_cache_that_cannot_be_written_leaves_torchs_ops(anew: Path) -> None:
    anew.parent.joinpath("effaudit").write_text("a file")
    assert library() is None
