"""Training several models at once, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO

from effaudit.errors import unknown_name
from effaudit.profile_spec import AuditProfile

AUDIT_WITH = "audit with: "  # a process's last line; those of the parts are not passed on
POLL_S = 0.1
GRACE_S = 10.0  # for a process that was told to end; its checkpoints are whole at any time


@dataclass(frozen=True)
class Job:
    """A command that trains one model, once the job called `after` is done."""

    name: str
    command: tuple[str, ...]
    after: str | None = None


def run_jobs(jobs: Sequence[Job], n_at_once: int) -> int:
    """Runs all jobs, at most `n_at_once` together; what they write to stderr goes to ours, line by line.

    Returns 0, or the exit code of the first that failed, and then the others were ended, as on any exception.
    """
    waiting, done = list(jobs), set[str]()
    running: dict[str, _Process] = {}
    try:
        while waiting or running:
            names = {job.name for job in jobs} - done
            for job in [job for job in waiting if job.after not in names][: n_at_once - len(running)]:
                waiting.remove(job)
                running[job.name] = _Process(job.command)
            time.sleep(POLL_S)
            for name, process in list(running.items()):
                code = process.poll()
                if code is None:
                    continue
                del running[name]
                if code != 0:
                    return code
                done.add(name)
    finally:
        for process in running.values():
            process.end()
    return 0


def train_at_once(profile: AuditProfile, only: Sequence[str], n_at_once: int, arguments: Sequence[str]) -> int:
    """Trains models (all, or those named) by `effaudit train` with these arguments, each after the one it starts from.

    Returns the exit code. Raises EffauditError when a model is unknown or models start from each other.
    """
    from effaudit.training import training_order  # imports torch

    known = [spec.name for spec in profile.models]
    for name in only:
        if name not in known:
            raise unknown_name("models of this profile", name, known)
    specs = [spec for spec in training_order(profile) if not only or spec.name in only]
    command = (sys.executable, "-m", "effaudit", "train", *arguments, "--model")
    return run_jobs([Job(spec.name, (*command, spec.name), spec.init_from) for spec in specs], n_at_once)


class _Process:
    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="replace"
        )
        assert self._process.stderr is not None
        self._is_heard = True
        self._listener = threading.Thread(target=self._pass_on, args=(self._process.stderr,), daemon=True)
        self._listener.start()

    def _pass_on(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                if self._is_heard and not line.startswith(AUDIT_WITH):
                    sys.stderr.write(line)
                    sys.stderr.flush()

    def poll(self) -> int | None:
        """The exit code, once the process has ended and all that it said is passed on; None before."""
        code = self._process.poll()
        if code is not None:
            self._listener.join()
        return code

    def end(self) -> None:
        """Ends the process; what it still says is not passed on."""
        self._is_heard = False
        self._process.terminate()
        try:
            self._process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._listener.join()
