"""Progress on stderr: a live bar on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

PLAIN_EVERY_S = 10.0  # seconds between lines where there is no terminal


class Tracker(Protocol):
    """What long work tells about itself."""

    def update(self, done: int, note: str = "") -> None: ...


class _Quiet:
    def update(self, done: int, note: str = "") -> None:
        pass


class _Bar:
    def __init__(self, progress: Progress, label: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(label, total=total, note="")

    def update(self, done: int, note: str = "") -> None:
        self._progress.update(self._task, completed=done, note=note)


class _Lines:
    def __init__(self, label: str, total: int) -> None:
        self._label, self._total = label, total
        self._start = self._last = time.monotonic()
        self._first: int | None = None

    def update(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = done
        if now - self._last < PLAIN_EVERY_S and done < self._total:
            return
        self._last = now
        gained = done - self._first
        left = (now - self._start) / gained * (self._total - done) if gained else None
        remaining = f", {left:.0f} s left" if left is not None and done < self._total else ""
        print(f"{self._label}: {done}/{self._total}{remaining} {note}".rstrip(), file=sys.stderr, flush=True)


@contextmanager
def tracking(label: str, total: int, is_quiet: bool = False) -> Iterator[Tracker]:
    """A tracker for `total` steps of work called `label`."""
    console = Console(stderr=True)
    if is_quiet:
        yield _Quiet()
    elif console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as progress:
            yield _Bar(progress, label, total)
    else:
        yield _Lines(label, total)
