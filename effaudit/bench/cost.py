"""What an audit costs: a whole profile, the energy meter beside the clock, and how soon the command answers."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

import effaudit
from effaudit import stats, units
from effaudit.assembly import load_all
from effaudit.errors import EffauditError
from effaudit.meters import _load, energy, latency
from effaudit.overrides import Overrides, apply
from effaudit.profile_spec import AuditSpec, load_profile
from effaudit.stats import Interval
from effaudit.workload import Workload
from effaudit.workloads import Bench

PARTS = ("profile", "energy", "start")
FIXED_S, PER_PASS = 30.0, 12.0  # a profile of a model whose pass takes t may take FIXED_S + PER_PASS t
MEDIAN_TOLERANCE = 0.02  # by which the energy meter may move the median latency
START_S = 0.4  # that `effaudit --help` may take
N_STARTS = 10
N_PAIRS = 48  # of audits without and with the energy meter: what it takes where a median varies by some per cent
TIMED_S = 1.5  # for the rounds of each
NAME = "dense"
# A pass of some seconds on one CPU, without weights.
LARGER = """
name: larger
data: {dataset: graded, max_tokens: 48, batch_size: 32, limit: 1024}
size: {d_model: 256, n_layers: 6, n_heads: 8, d_ff: 1024, dropout: 0.0}
models: [dense]
"""
IMPORT = [sys.executable, "-c", "import effaudit.cli"]
HELP = [sys.executable, "-m", "effaudit", "--help"]

KEPT = {True: "yes", False: "no", None: "unsure"}

Figure = Callable[[], float]


@dataclass(frozen=True)
class Row:
    """A cost and the bound that it is to keep, in words."""

    what: str
    figure: str
    bound: str
    is_kept: bool | None  # None where the interval is too wide to tell


def run(arguments: list[str]) -> str:
    """The table in Markdown, some ten minutes; wants a machine without other work, and says so where it has any."""
    parser = argparse.ArgumentParser(prog="python -m effaudit.bench cost", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="this part alone (repeatable)")
    parts = parser.parse_args(arguments).only or PARTS
    cautions = _load.cautions_now(_load.look(time.sleep))
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="effaudit-bench-") as place:
        folder = Path(place)
        if "profile" in parts:
            (folder / "larger.yaml").write_text(LARGER, encoding="utf-8")
            rows += [profile_row(target, *_profiled(target, folder)) for target in ("demo", "larger.yaml")]
        if "energy" in parts:
            rows.append(energy_row(_energy_ratio(folder)))
        if "start" in parts:
            rows.append(start_row("import of effaudit.cli", _starts(IMPORT), _imports_torch(IMPORT)))
            rows.append(start_row("effaudit --help", _starts(HELP), _imports_torch(HELP)))
    return "\n\n".join([table(rows), *(f"unstable: {caution.text}" for caution in cautions)])


def table(rows: Sequence[Row]) -> str:
    lines = ["| what | measured | bound | kept |", "|---|---|---|---|"]
    lines += [f"| {row.what} | {row.figure} | {row.bound} | {KEPT[row.is_kept]} |" for row in rows]
    return "\n".join(lines)


def profile_row(target: str, wall_s: float, pass_s: float) -> Row:
    bound_s = FIXED_S + PER_PASS * pass_s
    what = f"effaudit profile {target} --model {NAME}, t = {units.quantity(pass_s, 's')}"
    return Row(what, f"{wall_s:.1f} s", f"{bound_s:.1f} s ({FIXED_S:g} s + {PER_PASS:g} t)", wall_s <= bound_s)


def energy_row(ratio: Interval) -> Row:
    what = f"latency.p50 with the energy meter / without, {N_PAIRS} pairs"
    low, high = 1 - MEDIAN_TOLERANCE, 1 + MEDIAN_TOLERANCE
    figure = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
    is_kept = low <= ratio.low and ratio.high <= high
    is_missed = ratio.high < low or high < ratio.low
    return Row(what, figure, f"{low:.2f} to {high:.2f}", True if is_kept else False if is_missed else None)


def start_row(what: str, seconds: Sequence[float], has_torch: bool) -> Row:
    middle = stats.median(seconds)
    assert middle is not None
    figure = f"{middle:.2f} s, {'torch' if has_torch else 'no torch'}"
    bound = f"{START_S:g} s, no torch"
    return Row(f"{what}, median of {len(seconds)}", figure, bound, middle <= START_S and not has_torch)


def in_turns(without: Figure, beside: Figure, n_pairs: int) -> Interval:
    """The second's median over the first's, in the order A B B A, after a turn of each that does not count."""
    runs = (without, beside)
    figures: tuple[list[float], list[float]] = ([], [])
    for run_once in runs:
        run_once()
    for pair in range(n_pairs):
        for i in (0, 1) if pair % 2 == 0 else (1, 0):
            figures[i].append(runs[i]())
    ratio = stats.ratio_interval(*figures)
    assert ratio is not None
    return ratio


def _profiled(target: str, folder: Path) -> tuple[float, float]:
    """Seconds of the whole command, and of one pass by the throughput that it found."""
    _say(f"effaudit profile {target} …")
    out = folder / Path(target).stem
    command = [sys.executable, "-m", "effaudit", "profile", target, "--model", NAME, "--out", str(out), "--quiet"]
    start = time.perf_counter()
    _done(command, folder)
    wall_s = time.perf_counter() - start
    record = effaudit.load_record(out / f"{NAME}.json")
    rate = record.value("throughput.examples")
    if not rate:
        raise EffauditError(f"{target}: no throughput was measured", "repeat on a machine without other work")
    return wall_s, record.workload.n_examples / rate


def _energy_ratio(folder: Path) -> Interval:
    """The median latency after a pass of the energy meter over that without one, of one model in this process.

    An audit times first, so what the meter leaves behind could not even disturb it; here it could.
    """
    _say("latency with and without the energy meter …")
    profile = apply(load_profile("demo"), Overrides(models=[NAME], device="cpu"))
    _, (model,) = load_all(profile, None)
    work = Bench(profile, torch.device("cpu"), folder).work(model)
    settings = AuditSpec(device="cpu", max_seconds=TIMED_S)

    def beside() -> float:
        energy.measure([work], settings)
        return _median_s(work, settings)

    return in_turns(lambda: _median_s(work, settings), beside, N_PAIRS)


def _median_s(work: Workload, settings: AuditSpec) -> float:
    (found,) = latency.measure([work], settings)
    value = next(m.value for m in found.measurements if m.name == "latency.p50")
    assert value is not None
    return float(value)


def _starts(command: list[str]) -> list[float]:
    """Seconds of the command, the interpreter's start included; a first run, which reads the files, does not count."""
    _say(f"{' '.join(command[1:])} …")
    seconds = []
    for _ in range(1 + N_STARTS):
        start = time.perf_counter()
        _done(command)
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def _imports_torch(command: list[str]) -> bool:
    told = _done([command[0], "-X", "importtime", *command[1:]]).stderr
    return any(line.rpartition("|")[2].strip() == "torch" for line in told.splitlines())


def _done(command: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command with this very package, run to its end.

    Raises EffauditError with its last line where it fails.
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(effaudit.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise EffauditError(f"`{' '.join(command[1:])}` failed: {last}", "run it by itself")
    return done


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
