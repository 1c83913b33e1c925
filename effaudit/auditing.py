"""The story of an audit: a profile becomes workloads, each meter passes over them, records are saved."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from effaudit import carbon, peak, plugins
from effaudit import device as devices
from effaudit.assembly import Assembled, load_all, load_seed, made_anew
from effaudit.audit_records import Found, file_stem, make_record, with_verdicts
from effaudit.break_even import calibrate
from effaudit.controls import is_adaptive, run_controls
from effaudit.errors import EffauditError
from effaudit.matching import WorkOf, match_models
from effaudit.profile_spec import METERS, AuditProfile, ControlsSpec, MatchSpec, ModelSpec
from effaudit.progress import tracking
from effaudit.record import AuditRecord, Caution, WorkloadInfo, save_record
from effaudit.runs import new_run_folder, refuse_overwriting
from effaudit.streams import note
from effaudit.workloads import Bench

FIRST = "latency"  # runs before the other meters: it times the first batch that each model sees
SEED_METERS = ("routing", "quality", "flops")  # what differs between models of other seeds; time and energy do not


def run_audit(
    profile: AuditProfile, out: Path | None = None, weights: Path | None = None, is_quiet: bool = False
) -> list[AuditRecord]:
    """Audits every model of the profile; records are saved under `out` before they are returned.

    `weights` is a file or folder that replaces where the weights are looked for.
    On Ctrl-C the meters that were finished are saved, marked as interrupted.
    Raises EffauditError for everything a user can mend.
    """
    folder = prepare_folder(out or new_run_folder(profile.name))
    order = [spec.name for spec in profile.audited_models]
    refuse_overwriting(folder, order)
    parts = _parts(profile)
    for part in parts:
        devices.resolve(part.audit.device)
    asked = profile.audit
    carbon.find_intensity(asked.country, asked.region, asked.intensity)  # an unknown country is said before the work
    found = [record for part in parts for record in _audit_part(part, profile, folder, weights, is_quiet)]
    return sorted(found, key=lambda record: order.index(record.model.name))


def _parts(profile: AuditProfile) -> list[AuditProfile]:
    """The profile split where models are to run on another device, with other threads or in other batches.

    Raises EffauditError when models that are to be matched or compared would be apart.
    """
    parts: dict[tuple[str, int, int], list[ModelSpec]] = {}
    for spec in profile.audited_models:
        run, audit = spec.run, profile.audit
        key = (run.device or audit.device, run.threads or audit.threads, run.batch_size or profile.data.batch_size)
        parts.setdefault(key, []).append(spec)
    for pair in profile.pairs:
        if not any(set(pair) <= {spec.name for spec in specs} for specs in parts.values()):
            one, other = pair
            hint = "give both the same device, threads and batch_size under `run:`"
            raise EffauditError(f"`{one}` and `{other}` belong together but run in different ways", hint)
    return [
        profile.model_copy(
            update={
                "models": tuple(specs),
                "match": tuple(m for m in profile.match if m.model in {spec.name for spec in specs}),
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
    with devices.threads(part.audit.threads):
        audit = _PartAudit(part, profile, folder, weights)
        steps = audit.steps()
        if extra := [name for name, _ in steps if name not in part.audit.meters]:
            note(f"passes of their own, beside those of the meters: {', '.join(extra)}", is_quiet)
        try:
            with tracking("audit", len(steps), is_quiet) as tracker:
                for done, (name, step) in enumerate(steps):
                    tracker.update(done, name)
                    step()
                tracker.update(len(steps), "done")
        except KeyboardInterrupt:
            if any(found.findings for found in audit.found):
                text = "the audit was interrupted: some meters did not run"
                audit.save(Caution(code="interrupted", text=text))
            raise
        return audit.save()


class _PartAudit:
    """The audit of models that run in the same way, step by step."""

    def __init__(self, part: AuditProfile, profile: AuditProfile, folder: Path, weights: Path | None) -> None:
        self.part, self.profile, self.folder = part, profile, folder
        device = devices.resolve(part.audit.device)
        _, models = load_all(part, weights)
        self.found = [Found(model) for model in models]
        self.bench = Bench(part, device, folder)
        datasets = {id(model.dataset): model.dataset for model in models}
        self.about = {key: self.bench.describe(dataset) for key, dataset in datasets.items()}
        self.environment = devices.environment(device, part.audit.dtype, part.audit.threads)
        is_checked = {"flops", FIRST} <= set(part.audit.meters)
        dtypes = {dtype for found in self.found if (dtype := self._dtype(found))} if is_checked else ()
        self.peaks = {dtype: peak.estimate(device, dtype) for dtype in dtypes}

    def steps(self) -> list[tuple[str, Callable[[], None]]]:
        asked = self.part.audit.meters
        meters = sorted(dict.fromkeys(name for name in (*METERS, *asked) if name in asked), key=lambda m: m != FIRST)
        steps: list[tuple[str, Callable[[], None]]] = [("matching", self._match)] if self.part.match else []
        if any(found.model.config.options.get("execution") == "auto" for found in self.found):
            steps.append(("costs of skipping", self._calibrate))
        steps += [(name, partial(self._measure, name)) for name in meters]
        is_any_adaptive = any(is_adaptive(found.model) for found in self.found)
        if self.part.controls is not None and is_any_adaptive and "quality" in meters:
            steps.append(("controls", partial(self._control, self.part.controls)))
        return steps + [(f"seed {seed}", partial(self._measure_seed, seed)) for seed in self.part.seeds]

    def _dtype(self, found: Found) -> str:
        """The type that its products are computed in; empty where they are quantised: no peak is known of these."""
        run = found.model.spec.run
        return "" if run.quantize else run.dtype or self.part.audit.dtype

    @property
    def _models(self) -> dict[str, Assembled]:
        return {found.model.spec.name: found.model for found in self.found}

    def _match(self) -> None:
        def on_calibration(spec: MatchSpec) -> WorkOf:
            return partial(self.bench.work, split="calibration", limit=spec.examples)

        remake = partial(made_anew, self.part, self._models)
        models = match_models(self.part.match, list(self._models.values()), on_calibration, remake, self.part.audit)
        for found, model in zip(self.found, models, strict=True):
            found.model = model

    def _calibrate(self) -> None:
        for found in self.found:
            calibrate(self.bench.work(found.model))

    def _measure(self, meter: str) -> None:
        works = [self.bench.work(found.model) for found in self.found]
        findings = plugins.load("meters", meter).measure(works, self.part.audit)
        for found, new in zip(self.found, findings, strict=True):
            found.by_meter[meter] = new

    def _control(self, spec: ControlsSpec) -> None:
        for found in self.found:
            work_of = partial(self.bench.work, limit=spec.examples)
            found.controls = run_controls(found.model, work_of, spec, self.part.seed)

    def _measure_seed(self, seed: int) -> None:
        """The meters whose figures depend on the weights, on the models of another seed."""
        for found in self.found:
            twin = load_seed(self.part, found.model, seed)
            if twin is not None:
                work = self.bench.work(twin)
                calibrate(work)
                meters = [plugins.load("meters", name) for name in SEED_METERS if name in self.part.audit.meters]
                parts = [meter.measure([work], self.part.audit)[0] for meter in meters]
                found.seeds[seed] = (twin, parts)

    def save(self, *cautions: Caution) -> list[AuditRecord]:
        """The records of what was found so far, saved one after the other."""
        other_tokens = _other_tokens(list(self.about.values()))
        made = [
            make_record(
                self.profile,
                self.environment.model_copy(update={"peak_flop_per_s": self.peaks.get(self._dtype(found))}),
                self.about[id(found.model.dataset)],
                found,
                (*found.model.dataset.cautions(), *other_tokens, *cautions),
                self.folder,
            )
            for found in self.found
        ]
        records = with_verdicts(made, self.part)
        for record in records:
            save_record(record, self.folder / f"{file_stem(record.model.name)}.json")
        return records


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


def _other_tokens(about: list[WorkloadInfo]) -> tuple[Caution, ...]:
    counts = sorted({info.n_tokens for info in about if info.n_tokens is not None})
    if len({info.tokenizer for info in about}) == 1 or len(counts) == 1:
        return ()
    text = f"the models read the same texts as {' and '.join(f'{n} tokens' for n in counts)}, each in its own"
    hint = "compare what a text costs, not what a token does"
    return (Caution(code="other_tokens", text=text, hint=hint),)
