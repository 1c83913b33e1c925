"""What was found about one model, put together as a record with its per-example tables beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from effaudit import peak
from effaudit.assembly import Assembled
from effaudit.controls import against_trained
from effaudit.example_table import ExampleTable, write_table
from effaudit.parameters import count_parameters
from effaudit.profile_spec import METERS, AuditProfile
from effaudit.record import AuditRecord, Caution, Control, Environment, Findings, ModelInfo, SeedRow, WorkloadInfo
from effaudit.routing_verdict import routing_cautions
from effaudit.version import VERSION


@dataclass
class Found:
    """All that an audit finds about one model, as it comes in."""

    model: Assembled
    by_meter: dict[str, Findings] = field(default_factory=dict)
    controls: tuple[Control, ...] = ()
    seeds: dict[int, tuple[Assembled, list[Findings]]] = field(default_factory=dict)  # its twins of other seeds

    @property
    def findings(self) -> list[Findings]:
        """Those of all meters, in the order of a record."""
        return [self.by_meter[name] for name in dict.fromkeys((*METERS, *self.by_meter)) if name in self.by_meter]


def file_stem(name: str) -> str:
    """A model's name as a file's."""
    return re.sub(r"[^A-Za-z0-9_.+-]", "_", name)


def make_record(
    profile: AuditProfile,
    environment: Environment,
    workload: WorkloadInfo,
    found: Found,
    cautions: Sequence[Caution],
    folder: Path,
) -> AuditRecord:
    """The record, its tables written to `folder`."""
    model, findings = found.model, found.findings
    table = _written(findings, folder / f"{file_stem(model.spec.name)}.examples.csv")
    training = model.weights.training if model.weights else None
    record = AuditRecord(
        created_utc=f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
        effaudit_version=VERSION,
        profile=profile.model_dump(mode="json"),
        environment=environment,
        model=ModelInfo(
            name=model.spec.name,
            variant=model.config.variant,
            options=model.config.options,
            n_params=count_parameters(model.model),
            weights_sha256=model.weights_sha256,
            run=model.spec.run.model_dump(mode="json", exclude_defaults=True),
            swept=model.spec.swept,
            cell=model.spec.cell,
            training=training.model_dump(mode="json", exclude={"losses"}) if training else None,
            match=model.match,
            tokens_per_pass=getattr(model.model, "tokens_per_pass", None),
        ),
        workload=workload,
        measurements=peak.marked(
            [m for finding in findings for m in finding.measurements],
            environment.peak_flop_per_s,
            workload.n_examples,
        ),
        layers=next((finding.layers for finding in findings if finding.layers), ()),
        modules=next((finding.modules for finding in findings if finding.modules), ()),
        token_classes=next((finding.token_classes for finding in findings if finding.token_classes), ()),
        text_samples=next((finding.text_samples for finding in findings if finding.text_samples), ()),
        choices=next((finding.choices for finding in findings if finding.choices), ()),
        controls=found.controls,
        seeds=tuple(_seed_row(seed, twin, parts, folder) for seed, (twin, parts) in found.seeds.items()),
        examples=table.path.name if table and table.path else None,
        cautions=_once((*cautions, *model.cautions, *(c for f in findings for c in f.cautions))),
    )
    return record.with_table(table)


def with_verdicts(records: Sequence[AuditRecord], profile: AuditProfile) -> list[AuditRecord]:
    """The records with what only a look at others of them tells: models trained as controls, and the verdict."""
    trained = profile.controls.trained if profile.controls else {}
    known = {record.model.name: record for record in records}
    finished = []
    for record in records:
        other = known.get(trained.get(record.model.name, ""))
        if other is not None:
            controls = (*record.controls, against_trained(record, other))
            record = record.model_copy(update={"controls": controls})
        cautions = _once((*record.cautions, *routing_cautions(record)))
        finished.append(record.model_copy(update={"cautions": cautions}))
    return finished


def _seed_row(seed: int, twin: Assembled, findings: Sequence[Findings], folder: Path) -> SeedRow:
    table = _written(findings, folder / f"{file_stem(twin.spec.name)}.seed{seed}.examples.csv")
    return SeedRow(
        seed=seed,
        weights_sha256=twin.weights_sha256,
        measurements=tuple(m for finding in findings for m in finding.measurements),
        examples=table.path.name if table and table.path else None,
    )


def _written(findings: Iterable[Findings], path: Path) -> ExampleTable | None:
    has_rows = write_table((finding.examples for finding in findings if finding.examples is not None), path)
    return ExampleTable(path) if has_rows else None


def _once(cautions: Iterable[Caution]) -> tuple[Caution, ...]:
    return tuple(dict.fromkeys(cautions))
