"""How much of the FLOPs that skipping leaves out is left out of the time, against the dense model at its best."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path

import torch

from effaudit import stats
from effaudit.bench import _skipping_cells as cells
from effaudit.bench._skipping_cells import Contender, Match, Shape
from effaudit.bench._turns import Timing, in_turns

ALPHAS, FRACTIONS, MEANS = (0.34, 0.5, 0.726, 0.833), (0.125, 0.25, 0.5), (2, 3, 4)
QUICK = [Shape(8, 128, 256)]
QUICK_S, FULL_S = 15.0, 300.0
PARTS = ("tsa", "budgetformer", "early_exit", "soft", "policy", "trained", "compiled")
SHIPPED, FEW = ("demo", "prose"), (0.5, 0.833)


@dataclass(frozen=True)
class Row:
    """One cell of the grid; times in s, medians; ratios to the dense model on the same batch."""

    part: str
    shape: str
    setting: str
    time_ratio: float
    time_low: float
    time_high: float
    flops_ratio: float
    path: str
    dense_s: float
    dense_tokens_per_pass: int | None
    tokens_per_pass: int | None
    n_rounds: int
    masked_ratio: float | None = None  # to its masked twin
    memory_ratio: float | None = None  # of the peaks of one pass over the whole batch

    @property
    def realised(self) -> float | None:
        """Time saved over FLOPs saved; None where no FLOPs are saved."""
        return (1 - self.time_ratio) / (1 - self.flops_ratio) if self.flops_ratio < 1 else None


def run(arguments: list[str]) -> str:
    """The table in Markdown; with `--out` the record of it too."""
    options = _parser().parse_args(arguments)
    torch.set_num_threads(1)
    seconds = options.seconds or (QUICK_S if options.quick else FULL_S)
    timing = Timing(options.rounds, seconds, time.thread_time if options.thread_time else time.perf_counter)
    rows = []
    for match in _matches(options.only or PARTS, options.quick):
        found = _rows(match, timing)
        for row in found:
            print(_line(row), file=sys.stderr, flush=True)
        rows += found
    if options.out is not None:
        options.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return table(rows)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m effaudit.bench skipping", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one small shape a part")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part alone (repeatable)")
    parser.add_argument("--rounds", type=int, default=200, help="at most as many rounds a shape")
    parser.add_argument("--seconds", type=float, help=f"at most as long a shape ({FULL_S:.0f}, quick {QUICK_S:.0f})")
    parser.add_argument("--thread-time", action="store_true", help="CPU time of the thread, for a busy machine")
    parser.add_argument("--out", type=Path, help="write the rows here as JSON")
    return parser


def _matches(parts: tuple[str, ...], is_quick: bool) -> Iterator[Match]:
    if "tsa" in parts:
        yield from cells.tsa(QUICK if is_quick else _shapes((8, 32), (128, 256), (256, 512)), ALPHAS)
    if "budgetformer" in parts:
        yield from cells.budgetformer(QUICK if is_quick else _shapes((8, 32), (64, 128, 512), (256, 768)), FRACTIONS)
    if "early_exit" in parts:
        yield from cells.early_exit(QUICK if is_quick else _shapes((8, 32), (128,), (256, 512)), MEANS)
    if "soft" in parts:
        yield from cells.soft(QUICK if is_quick else _shapes((8, 32), (128, 256), (256,)))
    if "policy" in parts:
        yield from cells.policy(QUICK if is_quick else _shapes((1, 8, 32), (128, 256), (256, 512)), FEW)
    if "trained" in parts:
        yield from cells.trained(SHIPPED, (8,) if is_quick else (8, 32))
    if "compiled" in parts:
        yield from cells.compiled(QUICK if is_quick else _shapes((8, 32), (128, 256), (256, 512)))


def _shapes(examples: tuple[int, ...], tokens: tuple[int, ...], widths: tuple[int, ...]) -> list[Shape]:
    return [Shape(b, t, d) for d, t, b in product(widths, tokens, examples)]


def _rows(match: Match, timing: Timing) -> list[Row]:
    dense, *others = match.contenders
    times = in_turns([contender.run for contender in match.contenders], timing)
    twins = [None if one.masked is None else times[one.masked] for one in others]
    return [
        replace(
            _row(match, dense, one, times[0], seconds),
            masked_ratio=_ratio(masked_s, seconds),
            memory_ratio=one.peak_bytes / dense.peak_bytes if dense.peak_bytes else None,
        )
        for one, seconds, masked_s in zip(others, times[1:], twins, strict=True)
    ]


def _row(match: Match, dense: Contender, one: Contender, dense_s: list[float], seconds: list[float]) -> Row:
    ratio = stats.ratio_interval(dense_s, seconds)
    assert ratio is not None
    return Row(
        part=match.part,
        shape=str(match.shape),
        setting=one.setting,
        time_ratio=ratio.value,
        time_low=ratio.low,
        time_high=ratio.high,
        flops_ratio=one.flops / dense.flops,
        path=one.path,
        dense_s=stats.median(dense_s) or 0.0,
        dense_tokens_per_pass=dense.tokens_per_pass,
        tokens_per_pass=one.tokens_per_pass,
        n_rounds=len(seconds),
    )


def _ratio(before: list[float] | None, after: list[float]) -> float | None:
    interval = stats.ratio_interval(before, after) if before is not None else None
    return interval.value if interval else None


def table(rows: list[Row]) -> str:
    lines = [
        "| part | shape | setting | time / dense [95 %] | FLOPs / dense | realised | time / masked | memory / dense "
        "| path | tokens a pass |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_line, rows)])


def _line(row: Row) -> str:
    realised = "" if row.realised is None else f"{row.realised:.2f}"
    time = f"{row.time_ratio:.3f} [{row.time_low:.3f}, {row.time_high:.3f}]"
    masked, memory = ("" if r is None else f"{r:.3f}" for r in (row.masked_ratio, row.memory_ratio))
    passes = f"{row.dense_tokens_per_pass or 'all'}, {row.tokens_per_pass or 'all'}"
    return (
        f"| {row.part} | {row.shape} | {row.setting} | {time} | {row.flops_ratio:.3f} | {realised} | {masked} "
        f"| {memory} | {row.path} | {passes} |"
    )
