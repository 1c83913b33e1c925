"""How options beside a profile change it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from effaudit import plugins
from effaudit.carbon import find_intensity
from effaudit.errors import EffauditError, unknown_name
from effaudit.model_targets import NOT_IN_NAMES, OWN, is_own, parse_own, split_run, value_of
from effaudit.profile_spec import AuditProfile, AuditSpec, DataSpec, MatchSpec, ModelSpec, RunSpec, SpecT, validated
from effaudit.sweeping import expanded, sweep_of

GENERATED = ("copy", "graded", "prose", "sort")  # datasets that need no file of the user's
TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".csv.gz", ".tsv.gz", ".jsonl.gz")
_NEXT_OPTION = re.compile(r",(?=\s*\w+=)")  # commas inside a value, as of a list, part no options


@dataclass(frozen=True)
class Overrides:
    """What is said beside a profile; None, or nothing in `models`, leaves the profile's own."""

    models: Sequence[str] = ()  # `NAME` or `NAME:key=value,…`, `hf:PATH?key=value&…`, `python:MODULE:FACTORY?…`
    data: str | None = None  # a dataset, `chars:FILE`, `table:FILE`, a file or a folder
    weights: str | Path | None = None  # a file, or a folder with one file a model
    device: str | None = None
    dtype: str | None = None
    batch_size: int | None = None
    limit: int | None = None
    max_tokens: int | None = None
    threads: int | None = None
    seed: int | None = None
    meters: Sequence[str] | None = None
    country: str | None = None
    region: str | None = None
    intensity: float | None = None
    pue: float | None = None
    max_seconds: float | None = None
    match: Sequence[str] = ()  # `MODEL=OTHER[:BY[:KNOB]]`
    allow_download: bool | None = None
    elementwise: bool | None = None
    sweep: Sequence[str] = ()  # `key=value,value,…`


@dataclass(frozen=True)
class _Pick:
    """A model to audit, and the name under which its weights lie."""

    spec: ModelSpec
    trained_as: str


def apply(profile: AuditProfile, overrides: Overrides) -> AuditProfile:
    """The profile that is meant, its models' options checked.

    Raises EffauditError naming the option that is wrong.
    """
    o = overrides
    data = _with_data(profile.data, o.data) if o.data is not None else profile.data
    data = _changed(data, {"batch_size": o.batch_size, "limit": o.limit, "max_tokens": o.max_tokens})
    here = profile.audit.model_copy(update={"region": None}) if o.country is not None else profile.audit
    audit: AuditSpec = _changed(
        here,
        {
            "device": o.device,
            "dtype": o.dtype,
            "threads": o.threads,
            "meters": None if o.meters is None else tuple(o.meters),
            "country": o.country,
            "region": o.region,
            "intensity": o.intensity,
            "pue": o.pue,
            "max_seconds": o.max_seconds,
            "allow_download": o.allow_download,
            "elementwise": o.elementwise,
        },
    )
    find_intensity(audit.country, audit.region, audit.intensity)  # or raises, before any work
    picks = _picks(profile, o.models) if o.models else [_Pick(spec, spec.name) for spec in profile.audited_models]
    trained_as = {pick.spec.name: pick.trained_as for pick in picks}
    swept = expanded([pick.spec for pick in picks], {**profile.sweep, **sweep_of(o.sweep)})
    picks = [_Pick(spec, trained_as.get(spec.name) or trained_as[str(spec.swept)]) for spec in swept]
    if o.weights is not None and all(pick.spec.is_own for pick in picks):
        raise EffauditError(
            "--weights is of models that are trained here", "`hf:` and `python:` models bring their own"
        )
    audited = tuple(_with_weights(profile, pick, o.weights) for pick in picks)
    for spec in audited:
        validated(plugins.load("variants", spec.variant).Options, spec.options, f"options of `{spec.name}`")
    starts = [spec for spec in _starts(profile) if spec.name not in trained_as]
    models = (*audited, *starts)
    update = {"data": data, "audit": audit, "models": models, "sweep": {}, **_pairs(profile, audited, o)}
    if o.seed is not None:
        update["seeds"] = ()
    return _changed(profile.model_copy(update=update), {"seed": o.seed})


def _starts(profile: AuditProfile) -> list[ModelSpec]:
    """The models that are trained for others to start from, and not audited."""
    return [spec for spec in profile.models if not spec.audited]


def _pairs(profile: AuditProfile, models: Sequence[ModelSpec], o: Overrides) -> dict[str, Any]:
    """What the profile says of two models, where both are audited, as configured there; `--match` instead of it."""
    unchanged = {spec.name for spec in models if spec.options == _options_in(profile, spec.name)}
    match = tuple(spec for spec in profile.match if {spec.model, spec.to} <= unchanged)
    if o.match:
        match = tuple(_match(text, [spec.name for spec in models]) for text in o.match)
    if profile.controls is None:
        return {"match": match}
    names = {spec.name for spec in models}
    trained = {one: other for one, other in profile.controls.trained.items() if {one, other} <= names}
    return {"match": match, "controls": profile.controls.model_copy(update={"trained": trained})}


def _options_in(profile: AuditProfile, name: str) -> dict[str, Any] | None:
    return next((spec.options for spec in profile.models if spec.name == name), None)


def _match(text: str, names: Sequence[str]) -> MatchSpec:
    model, equals, rest = text.partition("=")
    other, *more = rest.split(":")
    if not equals or len(more) > 2:
        raise EffauditError(
            f"--match: `{text}` is not MODEL=OTHER[:BY[:KNOB]]", "write it as in `early_exit=tsa:tlops`"
        )
    for name in (model, other):
        if name not in names:
            error = unknown_name("audited models", name, names)
            raise EffauditError(f"--match: {error.message}", error.hint)
    values = dict(zip(("by", "knob"), more, strict=False))
    return validated(MatchSpec, {"model": model, "to": other, **values}, f"--match {text}")


def _changed(spec: SpecT, values: dict[str, Any]) -> SpecT:
    """The spec with the values that are given, each checked under its option's name."""
    for key, value in values.items():
        if value is None:
            continue
        option = f"--{key.replace('_', '-')}"
        try:
            spec = validated(type(spec), {**dict(spec), key: value}, option)
        except EffauditError as error:
            reason = error.message.removeprefix(f"{option}: {key}: ")
            raise EffauditError(f"{option}: {reason}", error.hint) from error
    return spec


def _with_data(data: DataSpec, given: str) -> DataSpec:
    kind, colon, path = given.partition(":")
    if kind in plugins.names("datasets"):
        if not colon or kind in ("chars", "table"):
            return _with_dataset(data, given)
        return _with_folder(_with_dataset(data, kind), path)
    if Path(given).expanduser().is_dir():
        return _with_dataset(data, f"table:{given}") if data.kind == "table" else _with_folder(data, given)
    if not Path(given).expanduser().is_file():
        error = unknown_name("datasets, files and folders", given, plugins.names("datasets"))
        raise EffauditError(f"--data: {error.message}", error.hint)
    if given.lower().endswith(TABLE_SUFFIXES):
        return _with_dataset(data, f"table:{given}")
    if given.lower().endswith(".txt"):
        return _with_dataset(data, f"chars:{given}")
    raise EffauditError(f"--data: cannot tell what `{given}` is", f"write `chars:{given}` or `table:{given}`")


def _with_dataset(data: DataSpec, dataset: str) -> DataSpec:
    """Another dataset; options and folder of the one before stay only where it is of the same kind."""
    is_same = dataset.partition(":")[0] == data.kind
    kept = data if is_same else data.model_copy(update={"options": {}, "path": None})
    return kept.model_copy(update={"dataset": dataset})


def _with_folder(data: DataSpec, folder: str) -> DataSpec:
    if data.kind in GENERATED or data.kind == "chars":
        needs = "takes a file" if data.kind == "chars" else "needs no data"
        hint = f"presets take a folder, as `--data ag_news:{folder}`; `table:FILE` and `chars:FILE` take a file"
        raise EffauditError(f"--data: `{folder}` is a folder, `{data.kind}` {needs}", hint)
    return data.model_copy(update={"path": folder})


def _picks(profile: AuditProfile, texts: Sequence[str]) -> list[_Pick]:
    """The models that the texts name; those named more than once go by their options."""
    said = [_parsed(profile, text) for text in ([texts] if isinstance(texts, str) else texts)]
    counts = Counter(base.name for base, _ in said)
    picked = [_named(base, options, counts[base.name]) for base, options in said]
    origins = {*picked, *(spec.name for spec in _starts(profile))}
    for name, count in Counter(picked).items():
        if count > 1:
            is_own = any(base.name == name and base.is_own for base, _ in said)
            hint = "name one of them: `?name=…`" if is_own else "give it different options, or leave one out"
            raise EffauditError(f"--model: `{name}` is picked twice", hint)
    picks = []
    for (base, options), name in zip(said, picked, strict=True):
        origin = base.init_from if base.init_from in origins else None
        run, own = split_run(options)
        where = f"--model {base.name}"
        changed = {
            "name": name,
            "options": base.options if base.is_own else {**base.options, **own},
            "run": validated(RunSpec, {**base.run.model_dump(), **run}, where),
            "init_from": origin,
            "audited": True,
        }
        picks.append(_Pick(base.model_copy(update=changed), base.name))
    return picks


def _parsed(profile: AuditProfile, text: str) -> tuple[ModelSpec, dict[str, Any]]:
    """The model that is meant, and what is said about it beside its name."""
    if is_own(text):
        spec = validated(ModelSpec, parse_own(text), f"--model {text}")
        own = {key: value for key, value in spec.options.items() if key not in ("path", "factory", "keywords")}
        return spec, {**own, **spec.options.get("keywords", {}), **spec.run.model_dump(exclude_unset=True)}
    name, _, rest = text.partition(":")
    options = {}
    for part in _NEXT_OPTION.split(rest) if rest else ():
        key, equals, value = part.strip().partition("=")
        if not equals:
            raise EffauditError(
                f"--model {text}: `{part}` is not key=value", "write it as in `tsa:mode=ffn,threshold=0.4`"
            )
        options[key] = value_of(value, f"--model {text}")
    return _model_named(profile, name), options


def _model_named(profile: AuditProfile, name: str) -> ModelSpec:
    """The profile's model of that name, else its only one of that variant, else a new model of that variant."""
    for spec in profile.models:
        if spec.name == name:
            return spec
    alike = [spec for spec in profile.models if spec.variant == name]
    if len(alike) > 1:
        names = " or ".join(f"`{spec.name}`" for spec in alike)
        raise EffauditError(f"--model: `{profile.name}` has several models of variant `{name}`", f"name {names}")
    if alike:
        return alike[0]
    variants = plugins.names("variants")
    if name in OWN:
        form = "hf:FOLDER" if name == "hf" else "python:package.module:factory"
        raise EffauditError(f"--model: `{name}` needs to know which model", f"write `{form}`")
    if name in variants:
        return ModelSpec(name=name, variant=name)
    error = unknown_name(
        f"models of `{profile.name}` and the variants", name, {*variants, *(m.name for m in profile.models)}
    )
    raise EffauditError(f"--model: {error.message}", error.hint)


def _named(base: ModelSpec, options: dict[str, Any], count: int) -> str:
    if count == 1 or not options:
        return base.name
    said = "-".join(f"{key}-{value}" for key, value in options.items())
    return f"{base.name}-{NOT_IN_NAMES.sub('-', said)}"


def _with_weights(profile: AuditProfile, pick: _Pick, given: str | Path | None) -> ModelSpec:
    """The model with its weights named where they are given, or lie under another name than its own."""
    if pick.spec.is_own:
        return pick.spec
    file_name = f"{pick.trained_as}.safetensors"
    if given is not None:
        path = Path(given).expanduser()
        if not path.exists():
            raise EffauditError(f"--weights: no file or folder `{path}`", "`effaudit train` writes weights")
        if path.is_dir():
            path = path / file_name
            if not path.is_file():
                raise EffauditError(f"--weights: none for `{pick.trained_as}` in `{path.parent}`", f"expected `{path}`")
        return pick.spec.model_copy(update={"weights": str(path)})
    if pick.spec.weights is None and pick.spec.name != pick.trained_as:
        from effaudit.assembly import weights_folder  # imports torch

        folder = weights_folder(profile)
        if folder is not None and (folder / file_name).is_file():
            return pick.spec.model_copy(update={"weights": str(folder / file_name)})
    return pick.spec
