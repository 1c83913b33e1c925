"""What is to be trained and audited for the verdicts, a profile and a seed at a time, and what of it is done."""

from __future__ import annotations

import gzip
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from effaudit import runs
from effaudit.claims.evidence import Evidence, Records, soft, untrained
from effaudit.errors import EffauditError
from effaudit.overrides import GENERATED
from effaudit.profile_spec import AuditProfile, ModelSpec, builtin_profiles, load_profile
from effaudit.record import AuditRecord, load_record, save_record
from effaudit.training_jobs import Job, run_jobs

PROFILES = "claims"  # below the built-in profiles
AT_PUBLISHED_SIZE = "claims/published_size"  # theirs that take a GPU
RECORDS, WEIGHTS = Path("reports/claims"), Path("reports/weights/claims")
SIDE_EXAMPLES = 256  # that untrained models are audited with: their gates hardly vary
# How a model's gates are made soft, as in its training.
SOFT = {"tsa": {"mode": "soft"}, "budgetformer": {"k_rule": "all", "head_gate": "soft"}}
_DECIDING = ("data", "size", "models", "match", "controls", "training")  # keys of a profile that decide what is found


@dataclass(frozen=True)
class Unit:
    """A profile and one seed; `folder` is where its records lie, `obstacle` why it cannot be run here."""

    path: Path
    profile: AuditProfile  # of that seed alone
    folder: Path
    weights: Path
    obstacle: str = ""

    @property
    def name(self) -> str:
        return f"{self.path.stem}, seed {self.profile.seed}"

    @property
    def is_done(self) -> bool:
        """Whether its records are there, of this very profile."""
        files = [self.folder / f"{spec.name}.json" for spec in self.profile.audited_models]
        if not all(file.is_file() for file in files):
            return False
        return _deciding(load_record(files[0]).profile) == _deciding(self.profile.model_dump(mode="json"))

    def jobs(self, device: str) -> Iterator[Job]:
        """The trainings of its models, each after the one it starts from."""
        from effaudit.training import training_order

        place = ["--out", str(self.weights), "--seed", str(self.profile.seed), "--device", device]
        data = ["--data", self.profile.data.path] if self.profile.data.path else []
        command = (sys.executable, "-m", "effaudit", "train", str(self.path), *place, *data)
        for spec in training_order(self.profile):
            after = f"{self.name}, {spec.init_from}" if spec.init_from else None
            yield Job(f"{self.name}, {spec.name}", (*command, "--model", spec.name), after)

    def audit(self, is_quiet: bool) -> None:
        """Audits its models as they are, under soft gates, and untrained; the records appear all at once."""
        from effaudit.auditing import run_audit

        place = self.folder.with_name(f".{self.folder.name}")
        shutil.rmtree(place, ignore_errors=True)
        run_audit(self.profile, place, self.weights, is_quiet)
        for name, part in (("soft", _soft(self.profile)), ("untrained", _untrained(self.profile))):
            if part is not None:
                run_audit(part, place / name, self.weights if name == "soft" else None, is_quiet=True)
        for path in sorted(place.rglob("*.json")):
            _compact(path)
        shutil.rmtree(self.folder, ignore_errors=True)
        place.rename(self.folder)

    def records(self) -> Records:
        """By model; those of its twins untrained and under soft gates as `evidence` names them."""
        found: dict[str, AuditRecord] = {}
        for place, named in ((self.folder, str), (self.folder / "soft", soft), (self.folder / "untrained", untrained)):
            if place.is_dir():
                found |= {named(saved.record.model.name): saved.record for saved in runs.saved_records([place])}
        return found


def _deciding(profile: dict[str, Any]) -> dict[str, Any]:
    kept = {key: profile.get(key) for key in _DECIDING}
    return {**kept, "data": {**(kept["data"] or {}), "path": None}}


def _soft(profile: AuditProfile) -> AuditProfile | None:
    return _part(profile, ("routing", "quality"), lambda spec: {**spec.options, **SOFT[spec.variant]})


def _untrained(profile: AuditProfile) -> AuditProfile | None:
    """Under a name for which no weights lie anywhere."""
    part = _part(profile, ("routing",), lambda spec: spec.options)
    if part is None:
        return None
    data = part.data.model_copy(update={"limit": SIDE_EXAMPLES})
    return part.model_copy(update={"name": f"{profile.name}_untrained", "data": data})


def _part(profile: AuditProfile, meters: tuple[str, ...], options: Any) -> AuditProfile | None:
    """The models with gates that were learned; None where there are none."""
    gated = [m for m in profile.audited_models if m.variant in SOFT and m.options.get("routing") != "random_fixed"]

    def changed(spec: ModelSpec) -> ModelSpec:
        return spec.model_copy(update={"options": options(spec), "init_from": None})

    audit = profile.audit.model_copy(update={"meters": meters})
    update = {"models": tuple(map(changed, gated)), "match": (), "controls": None, "audit": audit}
    return profile.model_copy(update=update) if gated else None


def _compact(path: Path) -> None:
    """A record with its per-example table packed, which makes it a quarter as large."""
    record = load_record(path)
    if record.examples is None:
        return
    table = path.with_name(record.examples)
    packed = table.with_name(f"{table.name}.gz")
    packed.write_bytes(gzip.compress(table.read_bytes(), mtime=0))
    table.unlink()
    path.unlink()
    save_record(record.model_copy(update={"examples": packed.name}), path)


@dataclass(frozen=True)
class Study:
    """All units, those of the first seed of every profile first."""

    units: tuple[Unit, ...]

    def waiting(self) -> list[Unit]:
        return [unit for unit in self.units if not unit.obstacle and not unit.is_done]

    def evidence(self, name: str) -> Evidence:
        """What is there of a profile."""
        units = [unit for unit in self.units if unit.path.stem == name and unit.is_done]
        return Evidence({unit.profile.seed: unit.records() for unit in units})

    def run(self, n_jobs: int, device: str, is_quiet: bool) -> Iterator[Unit]:
        """Trains and audits what is waiting; yields each unit when its records are there.

        Trainings run side by side, one seed of all profiles at a time; audits alone, as they measure time.
        Raises EffauditError when a training fails.
        """
        waiting = self.waiting()
        for seed in dict.fromkeys(unit.profile.seed for unit in waiting):
            units = [unit for unit in waiting if unit.profile.seed == seed]
            if run_jobs([job for unit in units for job in unit.jobs(device)], n_jobs):
                raise EffauditError("a training failed", "its message is above; the same command goes on from there")
            for unit in units:
                unit.audit(is_quiet)
                yield unit


def open_study(
    data: Path | None,
    records: Path = RECORDS,
    weights: Path = WEIGHTS,
    device: str = "cpu",
    only: Sequence[str] = (),
    seeds: Sequence[int] = (),
) -> Study:
    """The units of the built-in profiles; `data` has a folder for each dataset, `only` and `seeds` pick among them.

    Profiles at the published size are run on a GPU alone.
    Raises EffauditError when a profile or seed is unknown.
    """
    small, large = builtin_profiles(PROFILES), builtin_profiles(AT_PUBLISHED_SIZE)
    for name in only:
        if name not in {**small, **large}:
            raise EffauditError(f"no claims profile `{name}`", f"known: {', '.join((*small, *large))}")
    units = []
    for name, path in {**small, **large}.items():
        profile = load_profile(path)
        for seed in (profile.seed, *profile.seeds):
            picked = (not only or name in only) and (not seeds or seed in seeds)
            obstacle = "" if picked else "not asked for"
            if name in large and device != "cuda":
                obstacle = "not run at the published size: no CUDA device (--device cuda)"
            found, missing = _with_data(profile, data)
            unit = found.model_copy(
                update={"seed": seed, "seeds": (), "audit": found.audit.model_copy(update={"device": device})}
            )
            place = Path(name) / f"seed{seed}"
            units.append(Unit(path, unit, records / place, weights / place, obstacle or missing))
    order = list(dict.fromkeys(unit.profile.seed for unit in units))
    return Study(tuple(sorted(units, key=lambda unit: order.index(unit.profile.seed))))


def _with_data(profile: AuditProfile, root: Path | None) -> tuple[AuditProfile, str]:
    """The profile with its dataset found below `root`, or why it is not."""
    kind = profile.data.kind
    if kind in GENERATED:
        return profile, ""
    if root is None:
        return profile, f"needs the data of `{kind}` (--data FOLDER)"
    names = (kind, kind.replace("_", "-"))
    folder = next((root / name for name in names if (root / name).is_dir()), None)
    if folder is None:
        return profile, f"no folder `{names[0]}` or `{names[1]}` in `{root}`"
    return profile.model_copy(update={"data": profile.data.model_copy(update={"path": str(folder)})}), ""
