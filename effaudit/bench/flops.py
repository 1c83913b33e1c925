"""How many of 14 hand-computed FLOP counts each counter gets right, and what counting costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import effaudit
from effaudit.bench._flop_rows import ROWS
from effaudit.borrowed_environment import borrow

PEERS = {  # what to install from PyPI
    "fvcore": ("fvcore",),
    "ptflops (aten)": ("ptflops",),
    "torchprofile": ("torchprofile",),
    "calflops": ("calflops", "transformers", "accelerate"),  # imported, but not among its requirements
    "ultralytics-thop": ("ultralytics-thop",),
}
TIMEOUT_S = 600


@dataclass(frozen=True)
class Verdict:
    """`n_exact` rows of 14, `time_ratio` to an uncounted forward pass; None with the reason where it did not run."""

    name: str
    n_exact: int | None
    time_ratio: float | None
    reason: str = ""


def run(arguments: list[str]) -> str:
    """The table in Markdown. Each peer is installed into an environment of its own that is deleted afterwards.

    With `--offline`, only what is already here is judged.
    """
    here = Path(sys.executable)
    verdicts = [_judged("effaudit", here), _judged("FlopCounterMode", here)]
    if "--offline" not in arguments:
        with tempfile.TemporaryDirectory() as folder:
            verdicts += [_installed(name, packages, Path(folder) / packages[0]) for name, packages in PEERS.items()]
    return table(verdicts)


def table(verdicts: list[Verdict]) -> str:
    lines = [f"| counter | exact of {len(ROWS)} | time of a counted forward pass / an uncounted one |", "|---|---|---|"]
    for verdict in verdicts:
        exact = verdict.reason if verdict.n_exact is None else str(verdict.n_exact)
        ratio = "" if verdict.time_ratio is None else f"{verdict.time_ratio:.2f}"
        lines.append(f"| {verdict.name} | {exact} | {ratio} |")
    return "\n".join(lines)


def _installed(name: str, packages: tuple[str, ...], folder: Path) -> Verdict:
    """The verdict on a peer in a new environment that borrows the packages of this one, torch above all."""
    python = borrow(folder)
    pip = [str(python), "-m", "pip", "install", "--quiet", *packages]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        return Verdict(name, None, None, "could not be installed")
    return _judged(name, python)


def _judged(name: str, python: Path) -> Verdict:
    """The verdict of a process of its own, as counters leave hooks and patches behind."""
    print(f"counting with {name} …", file=sys.stderr)
    environment = {**os.environ, "PYTHONPATH": str(Path(effaudit.__file__).parents[1])}
    command = [str(python), "-W", "ignore", "-m", "effaudit.bench._flop_counters", name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S)
    if done.returncode:
        return Verdict(name, None, None, f"did not run: {done.stderr.strip().splitlines()[-1]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Verdict(name, len(ROWS) - len(found["wrong"]), found["time_ratio"])
