"""The processes that revisions are timed in: started, asked for turns, ended."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from effaudit.errors import EffauditError

INTERRUPTED = 0.01  # share of its time that a run waited for a CPU, from which on it tells nothing
WORKER = Path(__file__).with_name("worker.py")
# `python worker.py` would put this folder on the path, `python -c` the current one: neither is the revision's.
_LAUNCH = "import runpy, sys; sys.path[:] = [p for p in sys.path if p]; sys.argv = sys.argv[1:]; "
_LAUNCH += "runpy.run_path(sys.argv[0], run_name='__main__')"


@dataclass(frozen=True)
class Side:
    """A revision that can be run: under which name, by which interpreter, from which folders, which profile."""

    name: str
    python: str
    paths: tuple[str, ...]  # PYTHONPATH
    folder: str  # the current one
    target: str


@dataclass(frozen=True)
class TimedModel:
    """What a process says about a model: digests of its batches, and how long one of them takes."""

    name: str
    batches: tuple[str, ...]
    run_s: float
    is_one_thread: bool


@dataclass(frozen=True)
class Turn:
    """Seconds of each run, and how long of that it waited for a CPU that others had."""

    seconds: tuple[float, ...]
    waited: tuple[float, ...]

    @property
    def clean(self) -> tuple[float, ...]:
        """The runs that nothing interrupted."""
        return tuple(s for s, w in zip(self.seconds, self.waited, strict=True) if w <= INTERRUPTED * s)


class Worker:
    """A running process of one side; it may still be loading until `models` has been called."""

    def __init__(self, side: Side, folder: Path) -> None:
        self.side = side
        self._errors = (folder / "stderr").open("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [side.python, "-c", _LAUNCH, str(WORKER), side.target, str(folder / "records")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            cwd=side.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(side.paths)},
        )

    def models(self, limit_s: float) -> tuple[TimedModel, ...]:
        """Waits until everything is loaded.

        Raises EffauditError when it does not load, TimeoutError when that takes longer than `limit_s`.
        """
        found = self._answer(limit_s)
        return tuple(TimedModel(m["name"], tuple(m["batches"]), m["run_s"], m["is_one_thread"]) for m in found)

    def turn(self, model: int, batch: int, n: int, cpu: int | None, limit_s: float) -> Turn:
        """Runs a batch once unseen, then `n` times; raises as `models`."""
        assert self._process.stdin is not None
        question = {"model": model, "batch": batch, "n": n, "cpu": cpu}
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None
        found = self._answer(limit_s)
        return Turn(tuple(found["seconds"]), tuple(found["waited"]))

    def _answer(self, limit_s: float) -> Any:
        """The next line of JSON."""
        assert self._process.stdout is not None
        timer = threading.Timer(limit_s, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            is_late = not timer.is_alive()
            timer.cancel()
        if line:
            return json.loads(line)
        if is_late:
            raise TimeoutError(f"`{self.side.name}` took longer than {limit_s:.0f} s")
        raise self._died()

    def _died(self) -> EffauditError:
        self._process.wait()
        self._errors.seek(0)
        said = [line for line in self._errors.read().splitlines() if line.strip()]
        reason = said[-1] if said else f"exit code {self._process.returncode}"
        return EffauditError(
            f"`{self.side.name}` cannot be timed: {reason}",
            "it ran with the packages of this environment, the files of its commit and those that git ignores",
        )

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            with suppress(BrokenPipeError):  # a question that it did not read any more
                stream.close()


@contextmanager
def started(sides: Sequence[Side]) -> Iterator[list[Worker]]:
    """A process a side, all loading at once, ended with the block."""
    workers: list[Worker] = []
    with TemporaryDirectory(prefix="effaudit-") as folder:
        try:
            for i, side in enumerate(sides):
                place = Path(folder) / str(i)
                place.mkdir()
                workers.append(Worker(side, place))
            yield workers
        finally:
            for worker in workers:
                worker.stop()
