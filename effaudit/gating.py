"""Whether current figures are worse than accepted ones: every gated measurement of a baseline, model by model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path

from effaudit.baselines import Baseline, baseline_of, load_baseline, refuse_twice
from effaudit.errors import EffauditError, unknown_name
from effaudit.figure_pairs import FigurePair, judge_pair
from effaudit.gate_rows import ACCEPT, GateResult, GateRow, whole_model
from effaudit.record import AuditRecord
from effaudit.summary import Summary, summarise


def gate(
    current: AuditRecord | Sequence[AuditRecord],
    baseline: AuditRecord | Sequence[AuditRecord] | Baseline | str | Path,
    tolerances: Mapping[str, float] | None = None,
) -> GateResult:
    """The verdicts on records against a baseline: a file, what `load_baseline` gives, or other records.

    `tolerances` go before those of the profile that the records were made by.
    Raises EffauditError for a baseline that cannot be read and as `judge`.
    """
    records = [current] if isinstance(current, AuditRecord) else list(current)
    if isinstance(baseline, str | Path):
        baseline = load_baseline(baseline)
    elif isinstance(baseline, AuditRecord):
        baseline = baseline_of([baseline])
    accepted = baseline.models if isinstance(baseline, Baseline) else [summarise(record) for record in baseline]
    asked = {**tolerances_of(records), **(tolerances or {})}
    return judge([summarise(record) for record in records], accepted, asked)


def tolerances_of(records: Sequence[AuditRecord]) -> dict[str, float]:
    """What the `gate:` block of the records' profile accepts."""
    block = records[0].profile.get("gate") if records else None
    found = block.get("tolerances") if isinstance(block, dict) else None
    return {str(name): float(share) for name, share in found.items()} if isinstance(found, dict) else {}


def judge(
    current: Sequence[Summary], baseline: Sequence[Summary], tolerances: Mapping[str, float] | None = None
) -> GateResult:
    """The verdicts on every gated measurement of the baseline, models matched by name.

    By default counted figures must not get worse at all (by 0.1 % where a routed model runs on another
    machine), quality not beyond its interval, memory not by more than 5 %; time, energy and figures without
    a better direction are judged only where `tolerances` (relative, 0.05 is 5 %) names them. A default that
    another machine makes incomparable is skipped, and so is what only the current side has; all else that
    cannot be compared is undecided.
    Raises EffauditError as `check_tolerances`, and for a model that is there twice.
    """
    refuse_twice(current, "the current records")
    refuse_twice(baseline, "the baseline")
    asked = dict(tolerances or {})
    check_tolerances(asked, baseline)
    now = {summary.model: summary for summary in current}
    rows: list[GateRow] = []
    for old in baseline:
        new = now.pop(old.model, None)
        if new is None:
            hint = f"name the model as in the baseline, or {ACCEPT}"
            rows.append(whole_model(old.model, "undecided", "the model is not among the current records", hint))
        else:
            rows += _model_rows(old, new, asked)
    rows += [whole_model(name, "skipped", "the model is not in the baseline", ACCEPT) for name in now]
    return GateResult(tuple(rows))


def check_tolerances(tolerances: Mapping[str, float], baseline: Sequence[Summary]) -> None:
    """Raises EffauditError for a negative tolerance or one on a measurement that the baseline has not."""
    for name, tolerance in tolerances.items():
        if not 0 <= tolerance < inf:
            raise EffauditError(f"tolerance of `{name}` is {tolerance}, not a share from 0 on", "5 % is 0.05")
    known = {figure.name for summary in baseline for figure in summary.figures}
    for name in tolerances:
        if name not in known:
            raise unknown_name("measurements of the baseline", name, known)


def _model_rows(old: Summary, new: Summary, asked: Mapping[str, float]) -> list[GateRow]:
    pairs = [FigurePair(old, new, figure, new.get(figure.name), asked.get(figure.name)) for figure in old.figures]
    rows = [judge_pair(pair) for pair in pairs if pair.is_gated and not _is_nowhere(pair)]
    for figure in new.figures:
        added = FigurePair(old, new, figure.model_copy(update={"value": None}), figure)
        if old.get(figure.name) is None and figure.value is not None and added.is_gated:
            rows.append(added.row("skipped", "not in the baseline", ACCEPT))
    return rows


def _is_nowhere(pair: FigurePair) -> bool:
    """Whether neither side has a value, and none was asked for."""
    return pair.asked is None and pair.before.value is None and (pair.after is None or pair.after.value is None)
