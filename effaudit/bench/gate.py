"""How often `gate --against` is right: false alarms on equal revisions, slowdowns of 5 % and 2 % found."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from effaudit import device, units
from effaudit.against.rows import TIME_TOLERANCE
from effaudit.bench._gate_runs import (
    N_BLOCKS,
    Run,
    busy,
    executed_flops,
    make_repository,
    record_sessions,
    run_gate,
    set_blocks,
)
from effaudit.bench._gate_simulation import Recorded, Scenario, simulate

VERDICTS = ("slower", "faster", "same", "undecided")
SAME = Scenario("equal revisions, 60 s", 0.0, 60.0)
FIVE = Scenario("5 % more blocks, 60 s", 0.05, 60.0)
TWO = Scenario("2 % more blocks, 180 s", 0.02, 180.0)


@dataclass(frozen=True)
class Size:
    """How much is recorded, drawn and run."""

    n_sessions: int
    n_draws: int
    n_runs: Mapping[str, int]  # by name of the scenario
    n_busy_sessions: int
    n_busy_runs: int
    n_full_runs: int  # without a free CPU


FULL = Size(30, 2000, {SAME.name: 20, FIVE.name: 20, TWO.name: 5}, 15, 5, 2)
SHORT = Size(6, 2000, {SAME.name: 1, FIVE.name: 1, TWO.name: 1}, 3, 1, 1)


def run(arguments: list[str]) -> str:
    """Two tables in Markdown: simulated rates, and real runs. Wants a machine without other work."""
    parser = argparse.ArgumentParser(prog="python -m effaudit.bench gate", description=__doc__)
    parser.add_argument("--short", action="store_true", help="some ten minutes in place of fifty")
    parser.add_argument("--quiet-only", action="store_true", help="nothing with busy processes beside")
    options = parser.parse_args(arguments)
    size = SHORT if options.short else FULL
    n_cpus = device.n_cpus()
    with tempfile.TemporaryDirectory(prefix="effaudit-bench-") as place:
        folder = Path(place)
        make_repository(folder)
        work = _work(folder)
        simulated = _simulated(folder, size, size.n_sessions, (SAME, FIVE, TWO), "")
        real = [_row(s.name, _runs(folder, s, size.n_runs[s.name])) for s in (SAME, FIVE, TWO)]
        if not options.quiet_only:
            if n_cpus > 1:
                with busy(1):
                    beside = "one busy process beside: "
                    simulated += _simulated(folder, size, size.n_busy_sessions, (SAME, FIVE, TWO), beside)
                    real.append(_row(beside + SAME.name, _runs(folder, SAME, size.n_busy_runs)))
                    real.append(_row(beside + FIVE.name, _runs(folder, FIVE, size.n_busy_runs)))
            with busy(2 * n_cpus):
                real.append(_row("no free CPU: equal revisions", _runs(folder, SAME, size.n_full_runs)))
    head = f"tolerance {units.percent(TIME_TOLERANCE)}, one thread of {n_cpus} CPUs; {work}"
    heads = (f"simulated, {size.n_draws} draws", *VERDICTS)
    ran = ("real runs", *VERDICTS, "median change", "median time")
    return "\n".join([head, "", *_table(heads, simulated), "", *_table(ran, real)])


def _work(folder: Path) -> str:
    """How much more really is executed, in words."""
    base = executed_flops(folder)
    told = []
    for effect in (FIVE.effect, TWO.effect):
        set_blocks(folder, round(N_BLOCKS * (1 + effect)))
        more = units.signed_percent(executed_flops(folder) / base - 1, 2)
        told.append(f"{round(N_BLOCKS * effect)} blocks more are {more} FLOPs")
    set_blocks(folder, N_BLOCKS)
    return ", ".join(told)


def _simulated(
    folder: Path, size: Size, n_sessions: int, scenarios: tuple[Scenario, ...], where: str
) -> list[tuple[str, ...]]:
    sessions: list[Recorded] = record_sessions(folder, n_sessions, TIME_TOLERANCE)
    rows = []
    for scenario in scenarios:
        found = simulate(sessions, scenario, TIME_TOLERANCE, size.n_draws)
        rows.append((where + scenario.name, *(units.percent(found[v] / size.n_draws, 2) for v in VERDICTS)))
    return rows


def _runs(folder: Path, scenario: Scenario, n: int) -> list[Run]:
    set_blocks(folder, round(N_BLOCKS * (1 + scenario.effect)))
    found = []
    for i in range(n):
        found.append(run_gate(folder, TIME_TOLERANCE, scenario.max_seconds))
        last = found[-1]
        change = "–" if last.change is None else units.signed_percent(last.change, 2)
        told = f"{last.verdict} ({change}, exit code {last.exit_code}) in {last.seconds:.0f} s"
        print(f"{scenario.name}, run {i + 1} of {n}: {told}", file=sys.stderr, flush=True)
    set_blocks(folder, N_BLOCKS)
    return found


def _row(name: str, runs: list[Run]) -> tuple[str, ...]:
    counts = Counter(run.verdict for run in runs)
    changes = [run.change for run in runs if run.change is not None]
    change = units.signed_percent(float(np.median(changes)), 2) if changes else "–"
    seconds = f"{np.median([run.seconds for run in runs]):.0f} s" if runs else "–"
    return (name, *(f"{counts[v]} of {len(runs)}" for v in VERDICTS), change, seconds)


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
