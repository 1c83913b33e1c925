"""The story of an audit: a profile becomes workloads, each meter passes over them, records are saved."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from effaudit import carbon, peak, plugins
from effaudit import device as devices
from effaudit.assembly import Assembled, load_all
from effaudit.datasets._dataset import Dataset
from effaudit.errors import EffauditError
from effaudit.profile_spec import METERS, AuditProfile, validated
from effaudit.progress import tracking
from effaudit.record import (
    AuditRecord,
    Caution,
    Environment,
    ExampleRow,
    Findings,
    ModelInfo,
    WorkloadInfo,
    save_examples,
    save_record,
)
from effaudit.runs import new_run_folder, refuse_overwriting
from effaudit.version import VERSION
from effaudit.workload import Batch, Execution, Routing, Workload

FIRST = "latency"  # runs before the other meters: it times the first batch that each model sees
CACHED_TOKENS = 4_000_000  # 8-byte tokens kept between passes; longer streams are read again for each pass


@dataclass(eq=False)  # meters tell streams apart by identity
class Stream:
    """The batches that all models see, kept in memory up to CACHED_TOKENS."""

    open: Callable[[], Iterator[Batch]]
    device: torch.device
    _kept: list[Batch] = field(default_factory=list)
    _is_whole: bool = False

    def __call__(self) -> Iterator[Batch]:
        if self._is_whole:
            yield from self._kept
            return
        kept, n_tokens = [], 0
        for batch in self.open():
            n_tokens += batch.tokens.numel()
            moved = batch.to(self.device)
            if n_tokens <= CACHED_TOKENS:
                kept.append(moved)
            yield moved
        if n_tokens <= CACHED_TOKENS:
            self._kept, self._is_whole = kept, True


def run_audit(
    profile: AuditProfile, out: Path | None = None, weights: Path | None = None, is_quiet: bool = False
) -> list[AuditRecord]:
    """Audits every model of the profile; records are saved under `out` before they are returned.

    `weights` is a file or folder that replaces where the weights are looked for.
    On Ctrl-C the meters that were finished are saved, marked as interrupted.
    Raises EffauditError for everything a user can mend.
    """
    settings = profile.audit
    folder = prepare_folder(out or new_run_folder(profile.name))
    refuse_overwriting(folder, [spec.name for spec in profile.models])
    device = devices.resolve(settings.device)
    carbon.find_intensity(
        settings.country, settings.region, settings.intensity
    )  # an unknown country is said before the work
    with devices.threads(settings.threads):
        dataset, models = load_all(profile, weights)
        stream = Stream(
            lambda: dataset.batches(profile.data.split, profile.data.batch_size, profile.data.limit), device
        )
        works = [_workload(model, dataset, stream, device, settings.dtype) for model in models]
        about = _describe(profile, dataset, stream)
        environment = devices.environment(device, settings.dtype, settings.threads)
        meters = list(dict.fromkeys(name for name in (*METERS, *settings.meters) if name in settings.meters))
        if {"flops", FIRST} <= set(meters):
            estimate = peak.estimate(device, settings.dtype)
            environment = environment.model_copy(update={"peak_flop_per_s": estimate})
        found: list[dict[str, Findings]] = [{} for _ in works]

        def records(*cautions: Caution) -> list[AuditRecord]:
            common = (*dataset.cautions(), *cautions)
            return [
                _record(profile, environment, about, model, [of[m] for m in meters if m in of], common, folder)
                for model, of in zip(models, found, strict=True)
            ]

        try:
            with tracking("audit", len(meters), is_quiet) as tracker:
                for done, name in enumerate(sorted(meters, key=lambda name: name != FIRST)):
                    tracker.update(done, name)
                    for of, new in zip(found, plugins.load("meters", name).measure(works, settings), strict=True):
                        of[name] = new
                tracker.update(len(meters), "done")
        except KeyboardInterrupt:
            if any(found):
                records(Caution(code="interrupted", text="the audit was interrupted: some meters did not run"))
            raise
        return records()


def prepare_folder(folder: Path) -> Path:
    """Makes sure that records can be written, before any work.

    Raises EffauditError when they cannot.
    """
    probe = folder / f".probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"x")
        probe.unlink()
    except OSError as error:
        raise EffauditError(f"cannot write to `{folder}`: {error.strerror}", "choose another --out") from error
    return folder


def _workload(model: Assembled, dataset: Dataset, stream: Stream, device: torch.device, dtype: str) -> Workload:
    options = validated(model.variant.Options, model.config.options, f"options of `{model.spec.name}`")

    def flops(batch: Batch, routing: Routing, execution: Execution) -> torch.Tensor:
        counted: torch.Tensor = model.variant.flops(model.config, batch, routing, execution)
        return counted

    return Workload(
        name=model.spec.name,
        model=model.model.to(device=device, dtype=getattr(torch, dtype)),
        task=dataset.task,
        n_layers=model.config.n_layers,
        device=device,
        execution=options.execution,
        is_skipping_tokens=options.is_skipping_tokens,
        is_characters=dataset.is_characters,
        batches=stream,
        flops=flops,
    )


def _describe(profile: AuditProfile, dataset: Dataset, stream: Stream) -> WorkloadInfo:
    n_examples = n_tokens = n_padding = 0
    for batch in stream():
        n_examples += batch.n_examples
        n_real = int(batch.mask.sum())
        n_tokens += n_real
        n_padding += batch.mask.numel() - n_real
    if n_examples == 0:
        raise EffauditError(f"the {profile.data.split} split of `{profile.data.dataset}` is empty", "give it examples")
    return WorkloadInfo(
        dataset=profile.data.dataset,
        split=profile.data.split,
        task=dataset.task,
        n_examples=n_examples,
        n_tokens=n_tokens,
        n_padding=n_padding,
        batch_size=profile.data.batch_size,
        sha256=dataset.sha256(profile.data.split),
        class_names=dataset.class_names,
    )


def _record(
    profile: AuditProfile,
    environment: Environment,
    workload: WorkloadInfo,
    model: Assembled,
    findings: list[Findings],
    cautions: tuple[Caution, ...],
    folder: Path,
) -> AuditRecord:
    """Merges what the meters found about one model and saves it."""
    stem = re.sub(r"[^A-Za-z0-9_.+-]", "_", model.spec.name)
    rows = merge_rows(row for finding in findings for row in finding.examples)
    examples = f"{stem}.examples.csv" if rows else None
    training = model.weights.training if model.weights else None
    measurements = [m for finding in findings for m in finding.measurements]
    record = AuditRecord(
        created_utc=f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
        effaudit_version=VERSION,
        profile=profile.model_dump(mode="json"),
        environment=environment,
        model=ModelInfo(
            name=model.spec.name,
            variant=model.config.variant,
            options=model.config.options,
            n_params=sum(p.numel() for p in model.model.parameters()),
            weights_sha256=model.weights.sha256 if model.weights else None,
            training=training.model_dump(mode="json", exclude={"losses"}) if training else None,
        ),
        workload=workload,
        measurements=peak.marked(measurements, environment.peak_flop_per_s, workload.n_examples),
        layers=next((finding.layers for finding in findings if finding.layers), ()),
        modules=next((finding.modules for finding in findings if finding.modules), ()),
        examples=examples,
        cautions=tuple(dict.fromkeys((*cautions, *model.cautions, *(c for f in findings for c in f.cautions)))),
    )
    if examples is not None:
        save_examples(rows, folder / examples)
    save_record(record, folder / f"{stem}.json")
    return record


def merge_rows(rows: Iterator[ExampleRow]) -> list[ExampleRow]:
    """Rows of several meters, joined by index, in order of index."""
    merged: dict[int, dict[str, Any]] = {}
    for row in rows:
        merged.setdefault(row.index, {}).update(_known(row))
    return [ExampleRow(**merged[index]) for index in sorted(merged)]


def _known(row: ExampleRow) -> dict[str, Any]:
    return {f.name: value for f in fields(row) if (value := getattr(row, f.name)) is not None}
