"""The story of an audit: a profile becomes workloads, each meter passes over them, records are saved."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import torch

from effaudit import carbon, peak, plugins
from effaudit import device as devices
from effaudit.assembly import Assembled, load_all
from effaudit.datasets._dataset import Dataset
from effaudit.errors import EffauditError
from effaudit.example_table import ExampleTable, write_table
from effaudit.parameters import count_parameters
from effaudit.profile_spec import METERS, AuditProfile, ModelSpec, validated
from effaudit.progress import tracking
from effaudit.record import (
    AuditRecord,
    Caution,
    Environment,
    Findings,
    ModelInfo,
    WorkloadInfo,
    save_record,
)
from effaudit.runs import new_run_folder, refuse_overwriting
from effaudit.version import VERSION
from effaudit.workload import Batch, Workload

FIRST = "latency"  # runs before the other meters: it times the first batch that each model sees
CACHED_TOKENS = 4_000_000  # 8-byte tokens kept between passes; longer streams are read again for each pass


@dataclass(eq=False)  # meters tell streams apart by identity
class Stream:
    """The batches that all models of one dataset see, kept in memory up to CACHED_TOKENS."""

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
            n_tokens += batch.n_positions
            moved = batch.to(self.device)
            if n_tokens <= CACHED_TOKENS:
                kept.append(moved)
            else:
                kept.clear()
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
    folder = prepare_folder(out or new_run_folder(profile.name))
    refuse_overwriting(folder, [spec.name for spec in profile.models])
    for part in _parts(profile):
        devices.resolve(part.audit.device)
    asked = profile.audit
    carbon.find_intensity(asked.country, asked.region, asked.intensity)  # an unknown country is said before the work
    found = [record for part in _parts(profile) for record in _audit_part(part, profile, folder, weights, is_quiet)]
    order = [spec.name for spec in profile.models]
    return sorted(found, key=lambda record: order.index(record.model.name))


def _parts(profile: AuditProfile) -> list[AuditProfile]:
    """The profile split where models are to run on another device, with other threads or in other batches."""
    parts: dict[tuple[str, int, int], list[ModelSpec]] = {}
    for spec in profile.models:
        run, audit = spec.run, profile.audit
        key = (run.device or audit.device, run.threads or audit.threads, run.batch_size or profile.data.batch_size)
        parts.setdefault(key, []).append(spec)
    return [
        profile.model_copy(
            update={
                "models": tuple(specs),
                "audit": profile.audit.model_copy(update={"device": device, "threads": threads}),
                "data": profile.data.model_copy(update={"batch_size": batch_size}),
            }
        )
        for (device, threads, batch_size), specs in parts.items()
    ]


def _audit_part(
    part: AuditProfile, profile: AuditProfile, folder: Path, weights: Path | None, is_quiet: bool
) -> list[AuditRecord]:
    """Models that run in the same way otherwise, timed in turns; `profile` is the whole that the records keep."""
    settings, device = part.audit, devices.resolve(part.audit.device)
    with devices.threads(settings.threads):
        _, models = load_all(part, weights)
        datasets = {id(model.dataset): model.dataset for model in models}
        streams = {key: _stream(part, dataset, device) for key, dataset in datasets.items()}
        about = {key: _describe(part, dataset, streams[key]) for key, dataset in datasets.items()}
        works = [_workload(model, streams[id(model.dataset)], settings.dtype, folder) for model in models]
        environment = devices.environment(device, settings.dtype, settings.threads)
        meters = list(dict.fromkeys(name for name in (*METERS, *settings.meters) if name in settings.meters))
        if {"flops", FIRST} <= set(meters):
            estimate = peak.estimate(device, settings.dtype)
            environment = environment.model_copy(update={"peak_flop_per_s": estimate})
        found: list[dict[str, Findings]] = [{} for _ in works]

        other_tokens = _other_tokens(list(about.values()))

        def records(*cautions: Caution) -> list[AuditRecord]:
            return [
                _record(
                    profile,
                    environment,
                    about[id(model.dataset)],
                    model,
                    [of[m] for m in meters if m in of],
                    (*model.dataset.cautions(), *other_tokens, *cautions),
                    folder,
                )
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


def _stream(profile: AuditProfile, dataset: Dataset, device: torch.device) -> Stream:
    data = profile.data
    return Stream(lambda: dataset.batches(data.split, data.batch_size, data.limit), device)


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


def _workload(model: Assembled, stream: Stream, dtype: str, folder: Path) -> Workload:
    options = validated(model.variant.Options, model.config.options, f"options of `{model.spec.name}`")
    dataset, dtype = model.dataset, model.spec.run.dtype or dtype
    return Workload(
        name=model.spec.name,
        model=model.model.to(device=stream.device, dtype=getattr(torch, dtype)),
        task=dataset.task,
        n_layers=model.config.n_layers,
        device=stream.device,
        dtype=dtype,
        execution=options.execution,
        is_skipping_tokens=options.is_skipping_tokens,
        is_characters=dataset.is_characters,
        batches=stream,
        flops=model.flops,
        scratch=folder,
        pieces=dataset.pieces if dataset.is_quotable else None,
    )


def _describe(profile: AuditProfile, dataset: Dataset, stream: Stream) -> WorkloadInfo:
    n_examples = n_tokens = n_padding = 0
    has_tokens = True
    for batch in stream():
        n_examples += batch.n_examples
        has_tokens &= batch.has_tokens
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
        n_tokens=n_tokens if has_tokens else None,
        n_padding=n_padding if has_tokens else None,
        batch_size=profile.data.batch_size,
        sha256=dataset.sha256(profile.data.split),
        class_names=dataset.class_names,
        tokenizer=dataset.own_tokenizer,
    )


def _other_tokens(about: list[WorkloadInfo]) -> tuple[Caution, ...]:
    counts = sorted({info.n_tokens for info in about if info.n_tokens is not None})
    if len({info.tokenizer for info in about}) == 1 or len(counts) == 1:
        return ()
    text = f"the models read the same texts as {' and '.join(f'{n} tokens' for n in counts)}, each in its own"
    hint = "compare what a text costs, not what a token does"
    return (Caution(code="other_tokens", text=text, hint=hint),)


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
    examples = folder / f"{stem}.examples.csv"
    has_examples = write_table((f.examples for f in findings if f.examples is not None), examples)
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
            n_params=count_parameters(model.model),
            weights_sha256=model.weights_sha256,
            run=model.spec.run.model_dump(mode="json", exclude_defaults=True),
            training=training.model_dump(mode="json", exclude={"losses"}) if training else None,
        ),
        workload=workload,
        measurements=peak.marked(measurements, environment.peak_flop_per_s, workload.n_examples),
        layers=next((finding.layers for finding in findings if finding.layers), ()),
        modules=next((finding.modules for finding in findings if finding.modules), ()),
        text_samples=next((finding.text_samples for finding in findings if finding.text_samples), ()),
        examples=examples.name if has_examples else None,
        cautions=tuple(dict.fromkeys((*cautions, *model.cautions, *(c for f in findings for c in f.cautions)))),
    )
    save_record(record, folder / f"{stem}.json")
    return record.with_table(ExampleTable(examples)) if has_examples else record
