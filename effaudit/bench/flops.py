"""How many of 14 hand-computed FLOP counts each counter gets right, and what counting costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from effaudit.bench._flop_rows import ROWS

# What to install from PyPI for each peer. The interpreter's own torch is used, so nothing may bring another.
PEERS = {
    "fvcore": ("fvcore", "iopath", "yacs", "portalocker", "tabulate", "termcolor", "tqdm", "pyyaml", "numpy"),
    "ptflops (aten)": ("ptflops",),
    "torchprofile": ("torchprofile", "numpy"),
    "calflops": ("calflops",),
    "ultralytics-thop": ("ultralytics-thop", "numpy"),
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
    """The table in Markdown. Peers are installed into a folder of their own that is deleted afterwards.

    With `--offline`, only what is already here is judged.
    """
    verdicts = [_judged("effaudit", None), _judged("FlopCounterMode", None)]
    if "--offline" not in arguments:
        with tempfile.TemporaryDirectory() as folder:
            verdicts += [_installed(name, packages, Path(folder) / name) for name, packages in PEERS.items()]
    return table(verdicts)


def table(verdicts: list[Verdict]) -> str:
    lines = [f"| counter | exact of {len(ROWS)} | time of a counted forward pass / an uncounted one |", "|---|---|---|"]
    for verdict in verdicts:
        exact = verdict.reason if verdict.n_exact is None else str(verdict.n_exact)
        ratio = "" if verdict.time_ratio is None else f"{verdict.time_ratio:.2f}"
        lines.append(f"| {verdict.name} | {exact} | {ratio} |")
    return "\n".join(lines)


def _installed(name: str, packages: tuple[str, ...], folder: Path) -> Verdict:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *packages]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=TIMEOUT_S)
    if done.returncode:
        return Verdict(name, None, None, "could not be installed")
    return _judged(name, folder)


def _judged(name: str, packages: Path | None) -> Verdict:
    """The verdict of a process of its own, as counters leave hooks and patches behind."""
    print(f"counting with {name} …", file=sys.stderr)
    environment = dict(os.environ)
    if packages is not None:
        environment["PYTHONPATH"] = str(packages)
    command = [sys.executable, "-W", "ignore", "-m", "effaudit.bench._flop_counters", name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S)
    if done.returncode:
        return Verdict(name, None, None, done.stderr.strip().splitlines()[-1])
    found = json.loads(done.stdout.splitlines()[-1])
    return Verdict(name, len(ROWS) - len(found["wrong"]), found["time_ratio"])
