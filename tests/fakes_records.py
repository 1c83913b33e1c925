"""Records made by hand, with round numbers and a clock of their own."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any

from effaudit.example_table import ExampleTable
from effaudit.record import (
    AuditRecord,
    Better,
    Caution,
    Environment,
    LayerRow,
    Measurement,
    ModelInfo,
    ModuleRow,
    Source,
    WorkloadInfo,
    unavailable,
)

NOT_ROUTED = "the variant makes no such choice"

ENVIRONMENT = Environment(
    device="cpu",
    device_name="Example CPU",
    torch="2.13.0",
    python="3.12.1",
    os="Linux",
    cpu_model="Example CPU",
    cpu_flags=("avx2",),
    n_cpus=2,
    threads=1,
    dtype="float32",
    load_average=(0.1, 0.1, 0.1),
    git_commit=None,
    fingerprint="machine-a",
)

WORKLOAD = WorkloadInfo(
    dataset="graded",
    split="test",
    task="classification",
    n_examples=1000,
    n_tokens=24_000,
    n_padding=0,
    batch_size=32,
    sha256="workload-a",
    class_names=("no", "yes"),
)


def figure(
    name: str,
    value: int | float | None,
    unit: str = "1",
    better: Better = "lower",
    source: Source = "counted",
    samples: Sequence[float] = (),
    method: str = "by hand",
    cautions: Sequence[Caution] = (),
) -> Measurement:
    """A measurement, or its unavailable form where `value` is None."""
    if value is None:
        return unavailable(name, unit, better, method, *cautions)
    return Measurement(
        name=name,
        unit=unit,
        better=better,
        source=source,
        method=method,
        value=value,
        samples=tuple(samples),
        cautions=tuple(cautions),
    )


def latency(seconds: float, noise: Sequence[float] = (0.0, 0.01, -0.01, 0.02, -0.02, 0.0, 0.01, -0.01)) -> Measurement:
    """Median latency with samples around it; `noise` is relative and common to all models, as drift would be."""
    samples = [seconds * (1 + part) for part in noise]
    return figure("latency.p50", seconds, "s", "lower", "measured", samples, "perf_counter, synchronised")


def record(
    name: str = "dense",
    variant: str | None = None,
    measurements: Sequence[Measurement] = (),
    *,
    workload: WorkloadInfo = WORKLOAD,
    fingerprint: str = "machine-a",
    layers: Sequence[LayerRow] = (),
    modules: Sequence[ModuleRow] = (),
    cautions: Sequence[Caution] = (),
    profile: dict[str, Any] | None = None,
) -> AuditRecord:
    return AuditRecord(
        created_utc="2030-01-01T00:00:00Z",
        effaudit_version="0.1.0",
        profile={"name": "example", "size": {"n_layers": 4}} if profile is None else profile,
        environment=ENVIRONMENT.model_copy(update={"fingerprint": fingerprint}),
        model=ModelInfo(name=name, variant=variant or name, options={}, n_params=1_234_567, weights_sha256="ab" * 32),
        workload=workload,
        measurements=tuple(measurements),
        layers=tuple(layers),
        modules=tuple(modules),
        cautions=tuple(cautions),
    )


def dense() -> AuditRecord:
    return record(
        "dense",
        measurements=[
            figure("params", 1_234_567),
            figure("flops.executed", 50_000_000_000, "FLOP"),
            figure("flops.routed", 50_000_000_000, "FLOP"),
            figure("flops.dense", 50_000_000_000, "FLOP"),
            latency(0.012),
            figure("memory.peak", 12_000_000, "B", source="measured"),
            figure("energy.gross", 3.2, "J", source="modelled", method="codecarbon"),
            figure("emissions", None, "g", method="no country or intensity given"),
            figure("quality.accuracy", 0.942, better="higher"),
            figure("routing.alpha_hard", None, better="neither", method=NOT_ROUTED),
        ],
        layers=[LayerRow(layer=i) for i in range(1, 5)],
        modules=[
            ModuleRow(path="", flops=50_000_000_000, calls=32),
            ModuleRow(path="blocks", flops=48_000_000_000, calls=32),
            ModuleRow(path="blocks.0", flops=12_000_000_000, calls=32),
            ModuleRow(path="blocks.0.attn", flops=4_000_000_000, calls=32),
            ModuleRow(path="blocks.0.attn.query", flops=1_000_000_000, calls=32),
            ModuleRow(path="head", flops=2_000_000_000, calls=32),
        ],
    )


def tsa(latency_s: float = 0.01248, cautions: Sequence[Caution] = ()) -> AuditRecord:
    """Claims 3/4 (1 - 0.4), skips 0.42, executes 30.1 % fewer FLOPs than `dense`."""
    alphas = ((0.9, 1.0), (0.5, 0.6), (0.3, 0.4), (0.1, 0.2))
    return record(
        "tsa",
        measurements=[
            figure("params", 1_250_000),
            figure("flops.executed", 34_950_000_000, "FLOP"),
            figure("flops.routed", 32_000_000_000, "FLOP"),
            figure("flops.dense", 50_000_000_000, "FLOP"),
            latency(latency_s),
            figure("memory.peak", 13_000_000, "B", source="measured"),
            figure("energy.gross", 3.3, "J", source="modelled", method="codecarbon"),
            figure("emissions", None, "g", method="no country or intensity given"),
            figure("quality.accuracy", 0.939, better="higher"),
            figure("routing.alpha_soft", 0.4, better="neither"),
            figure("routing.alpha_hard", 0.44, better="neither"),
            figure("routing.tlops_saved", 0.42, better="neither"),
        ],
        layers=[LayerRow(layer=i, alpha_soft=s, alpha_hard=h) for i, (s, h) in enumerate(alphas, 1)],
        cautions=cautions,
    )


def budgetformer() -> AuditRecord:
    return record(
        "budgetformer",
        measurements=[
            figure("flops.executed", 46_000_000_000, "FLOP"),
            latency(0.009),
            figure("energy.gross", 2.4, "J", source="measured", method="RAPL"),
            figure("quality.accuracy", 0.9, better="higher"),
            figure("routing.budget", 0.31, better="neither"),
            figure("routing.head_fraction", 0.375, better="neither"),
        ],
        layers=[LayerRow(layer=i, head_fraction=0.375, budget=0.31) for i in range(1, 5)],
    )


def early_exit() -> AuditRecord:
    """No soft figure: what it claims is its hard rate."""
    return record(
        "early_exit",
        measurements=[
            figure("flops.executed", 40_000_000_000, "FLOP"),
            latency(0.012),
            figure("energy.gross", None, "J", method="no energy counter can be read"),
            figure("quality.accuracy", 0.942, better="higher"),
            figure("routing.alpha_soft", None, better="neither", method=NOT_ROUTED),
            figure("routing.alpha_hard", 0.6, better="neither"),
            figure("routing.tlops_saved", 0.3, better="neither"),
            figure("routing.exit_layer", 2.8, "layer", "neither"),
        ],
        layers=[LayerRow(layer=i, exit_share=share) for i, share in enumerate((0.1, 0.3, 0.3, 0.3), 1)],
    )


def everyone() -> list[AuditRecord]:
    noisy = Caution(code="noisy", text="latency varied by 12 % between rounds", hint="close other programs")
    return [dense(), tsa(cautions=[noisy]), budgetformer(), early_exit()]


def table(**columns: Sequence[float | None]) -> ExampleTable:
    """A per-example table in memory, indexed from 0."""
    n = len(next(iter(columns.values())))
    return ExampleTable(None, {"index": range(n), **{name: _with_nan(values) for name, values in columns.items()}})


def _with_nan(values: Sequence[float | None]) -> list[float]:
    return [nan if value is None else value for value in values]


def examples() -> dict[str, ExampleTable]:
    """Four levels of difficulty; tsa spends more on the harder ones."""
    n = WORKLOAD.n_examples
    levels = [i % 4 for i in range(n)]
    shared = {
        "label": [i % 2 for i in levels],
        "correct": [float(i < 3) for i in levels],
        "loss": [0.1 * i for i in levels],
        "n_asked": [1] * n,
        "n_tokens": [24] * n,
        "difficulty": [i + 1 for i in levels],
        "flops_routed": [1_000_000 * (i + 1) for i in levels],
    }
    return {"tsa": table(**shared, alpha_hard=[0.2 * (i + 1) for i in levels]), "dense": table(**shared)}
