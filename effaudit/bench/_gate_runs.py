"""Real runs of the gate on time: a repository with a profile, and a working tree with as many blocks more as asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import effaudit
from effaudit.against.processes import Side
from effaudit.against.race import BUSY
from effaudit.against.session import Timing
from effaudit.bench._gate_simulation import Recorded
from effaudit.errors import EffauditError

N_BLOCKS = 100  # so that 5 and 2 blocks more are 5 % and 2 % more work, but for the embedding and the head
# Small blocks: the forward takes 5 to 50 ms on any machine of these years.
PROFILE = """
name: race
data:
  dataset: graded
  max_tokens: 32
  batch_size: 8
  options: {{n_train: 8, n_calibration: 8, n_test: 32}}
size: {{d_model: 32, n_layers: {n_blocks}, n_heads: 4, d_ff: 64, dropout: 0.0}}
models: [dense]
audit: {{device: cpu, threads: 1, meters: [flops]}}
"""
FILE = "race.yaml"
PACKAGES = str(Path(effaudit.__file__).parents[1])


@dataclass(frozen=True)
class Run:
    """How one run of the command ended."""

    exit_code: int
    verdict: str
    change: float | None
    seconds: float


def make_repository(folder: Path) -> None:
    """One commit with the profile of N_BLOCKS blocks."""
    set_blocks(folder, N_BLOCKS)
    identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "commit.gpgsign=false"]
    for command in (["init", "--quiet"], ["add", FILE], [*identity, "commit", "--quiet", "-m", "base"]):
        done = subprocess.run(["git", *command], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            raise EffauditError(f"git {command[0]}: {done.stderr.strip()}", "this benchmark needs git")


def set_blocks(folder: Path, n_blocks: int) -> None:
    (folder / FILE).write_text(PROFILE.format(n_blocks=n_blocks), encoding="utf-8")


def executed_flops(folder: Path) -> int:
    """What the working tree's model executes, by an audit."""
    from effaudit.auditing import run_audit
    from effaudit.profile_spec import load_profile

    (record,) = run_audit(load_profile(folder / FILE), folder / f"flops-{time.monotonic_ns()}", is_quiet=True)
    return int(record["flops.executed"].value or 0)


def run_gate(folder: Path, tolerance: float, max_seconds: float) -> Run:
    """The command as a build runs it."""
    options = ["--against", "HEAD", "--tolerance", f"latency.p50={tolerance}", "--max-seconds", f"{max_seconds:.0f}"]
    command = [sys.executable, "-m", "effaudit", "gate", FILE, *options, "--json", "--quiet"]
    environment = {**os.environ, "PYTHONPATH": PACKAGES}
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    seconds = time.monotonic() - start
    if done.returncode not in (0, 1, 2) or not done.stdout:
        raise EffauditError(f"the gate did not run: {done.stderr.strip().splitlines()[-1:]}", "see the README")
    (row,) = json.loads(done.stdout)["rows"]
    return Run(done.returncode, row["verdict"], row["change"], seconds)


def record_sessions(folder: Path, n: int, tolerance: float) -> list[Recorded]:
    """Sessions of base against base."""
    side = Side("base", sys.executable, (PACKAGES,), str(folder), FILE)
    timing = Timing(time.monotonic() + 3600.0, tolerance)
    found = []
    for i in range(n):
        session = timing.session(side, side, i)
        (rounds,) = session.rounds.values()
        log_ratios = tuple(rounds.log_ratios) if session.interrupted <= BUSY else ()
        found.append(Recorded(log_ratios, session.seconds))
        print(f"recorded session {i + 1} of {n}: {_told(found[-1], session.interrupted)}", file=sys.stderr, flush=True)
    return found


def _told(session: Recorded, interrupted: float) -> str:
    middle = sorted(session.log_ratios)[len(session.log_ratios) // 2] if session.log_ratios else float("nan")
    return (
        f"{len(session.log_ratios)} rounds in {session.seconds:.1f} s, "
        f"median log ratio {middle:+.4f}, {interrupted:.0%} of the runs interrupted"
    )


@contextmanager
def busy(n: int) -> Iterator[None]:
    """`n` processes that do nothing but take CPU time."""
    loops: Sequence[subprocess.Popen[bytes]] = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)
    ]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
