"""What the gate needs of a record: its figures, each with its spread in place of raw samples."""

from __future__ import annotations

from hashlib import sha256
from math import sqrt

import numpy as np

from effaudit import stats
from effaudit.comparison import QUALITY_COLUMNS, is_machine_bound, is_other_percentile
from effaudit.profile_spec import Spec
from effaudit.record import AuditRecord, Better, Environment, Measurement, Source, WorkloadInfo

UNSTABLE = "unstable"  # code of the caution on a figure that was timed on a busy machine
MEASURED_DIGITS = 6  # more than any spread leaves sure, fewer than rounding in another kernel changes
COUNTED_DIGITS = 9  # of a share; FLOPs are whole
INPUT_BOUND = ("routing.alpha_hard", "routing.budget", "routing.exit_layer")  # had where a model routes by its input


class Figure(Spec):
    """A measurement: `interval` (95 %) where it was timed, `standard_error` where it is a mean over examples.

    `reason` says why there is no value, or nothing to judge its spread by.
    """

    name: str
    unit: str
    better: Better
    source: Source
    value: int | float | None = None
    n: int | None = None  # samples or examples behind it
    interval: tuple[float, float] | None = None
    standard_error: float | None = None
    is_unstable: bool = False
    reason: str = ""

    @property
    def is_quality(self) -> bool:
        return self.name.startswith("quality.")


class Machine(Spec):
    """What a timed figure and the last digits of a counted one depend on; the fingerprint covers more than is named."""

    device: str
    device_name: str
    cpu_model: str
    n_cpus: int
    torch: str
    threads: int
    dtype: str
    fingerprint: str

    def difference(self, other: Machine) -> str:
        """What is not the same, in words; empty where figures of both compare."""
        if self.fingerprint == other.fingerprint:
            return ""
        for field in ("dtype", "device", "threads", "cpu_model", "device_name", "n_cpus", "torch"):
            if (a := getattr(self, field)) != (b := getattr(other, field)):
                return f"another machine or setting: {field} {a} and {b}"
        return "another machine: its Python or the instruction sets of its CPU differ"


class Summary(Spec):
    """One model on one workload."""

    model: str
    weights_sha256: str | None  # None for random ones, which `seed` then decides
    seed: int | None
    is_routed: bool  # whether what runs depends on the input
    machine: Machine
    workload: WorkloadInfo
    figures: tuple[Figure, ...]
    choices: str = ""  # those of `execution: auto`, as a digest
    tokens_per_pass: int | None = None  # None is the whole batch

    @property
    def weights(self) -> str:
        """Which weights, in words."""
        if self.weights_sha256 is None:
            return "random ones" if self.seed is None else f"random ones of seed {self.seed}"
        return self.weights_sha256[:12]

    def get(self, name: str) -> Figure | None:
        return next((figure for figure in self.figures if figure.name == name), None)


def summarise(record: AuditRecord) -> Summary:
    weights, seed = record.model.weights_sha256, record.profile.get("seed")
    return Summary(
        model=record.model.name,
        weights_sha256=weights,
        seed=seed if weights is None and isinstance(seed, int) else None,
        is_routed=_is_routed(record),
        machine=_machine(record.environment),
        workload=record.workload.model_copy(update={"class_names": ()}),
        figures=tuple(_figure(m, record) for m in record.measurements),
        choices=sha256(" ".join(record.choices).encode()).hexdigest()[:12] if record.choices else "",
        tokens_per_pass=record.model.tokens_per_pass,
    )


def _machine(environment: Environment) -> Machine:
    return Machine(**{name: getattr(environment, name) for name in Machine.model_fields})


def _is_routed(record: AuditRecord) -> bool:
    """By the routing figures; without that meter by the formula: what is dense routes nothing."""
    routing = [m for m in record.measurements if m.name in INPUT_BOUND]
    if routing:
        return any(m.value is not None for m in routing)
    routed, dense = record.value("flops.routed"), record.value("flops.dense")
    return routed is None or routed != dense


def _figure(m: Measurement, record: AuditRecord) -> Figure:
    digits = COUNTED_DIGITS if m.source == "counted" else MEASURED_DIGITS
    value = _rounded(m.value, digits) if isinstance(m.value, float) else m.value
    figure = Figure(name=m.name, unit=m.unit, better=m.better, source=m.source, value=value)
    if m.value is None:
        return figure.model_copy(update={"reason": m.method})
    if figure.is_quality:
        error = _standard_error(m.name, m.value, record)
        return figure.model_copy(update={"n": record.workload.n_examples, "standard_error": error})
    if is_machine_bound(m) and m.unit != "B":
        interval, reason = _timed_interval(m)
        spread = {"n": len(m.samples), "interval": interval, "reason": reason}
        return figure.model_copy(update={**spread, "is_unstable": any(c.code == UNSTABLE for c in m.cautions)})
    return figure


def _standard_error(name: str, mean: float, record: AuditRecord) -> float | None:
    """That of a mean over examples, each weighted by the answers asked of it; accuracy has one without the table too.

    Answers of one example depend on each other, so the examples are what is independent.
    """
    column, unit = QUALITY_COLUMNS.get(name, ("", 1.0))
    if record.table is None or column not in record.table:
        n = record.workload.n_examples
        is_share = name == "quality.accuracy" and n > 0 and 0 <= mean <= 1
        return _rounded(sqrt(mean * (1 - mean) / n)) if is_share else None
    values = record.table[column]
    weights = record.table["n_asked"] if "n_asked" in record.table else np.ones(len(values))
    weights = np.where(np.isnan(values), 0.0, weights)
    deviations = np.nan_to_num(values) / unit - mean
    return _rounded(float(np.sqrt(np.sum((weights * deviations) ** 2)) / np.sum(weights)))


def _timed_interval(m: Measurement) -> tuple[tuple[float, float] | None, str]:
    if is_other_percentile(m.name):
        return None, "percentiles other than the median have no interval"
    found = stats.median_interval(m.samples)
    if found is None:
        return None, stats.too_few(len(m.samples), stats.MIN_INTERVAL_SAMPLES)
    return (_rounded(found.low), _rounded(found.high)), ""


def _rounded(value: float, digits: int = MEASURED_DIGITS) -> float:
    """To significant digits, so that a baseline can be read and the same figures make the same file."""
    return float(f"{value:.{digits}g}")
