"""What an audit profile may say, and how a YAML file becomes one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from effaudit import plugins
from effaudit.errors import EffauditError, unknown_name
from effaudit.model_targets import OWN, is_own, parse_own
from effaudit.units import parse_share

NAME_RULE = "made of letters, digits, `_`, `.` and `-`, a letter or digit first"
MODELS_RULE = "a list: each item the name of a variant, or a mapping with `name`, `variant`, `options`"
SHARE_RULE = "how much worse it may get, as 0.05 or 5%"
SWEEP_RULE = "what to vary (dtype, threads, an option, …), each with a list of its values"
TOKENIZER_NAME = "tokenizer"  # of the file beside the weights of all models
MatchedBy = Literal["alpha", "tlops", "heads", "flops", "latency", "quality"]
ControlKind = Literal["random", "constant", "untrained", "soft"]
METERS = ("routing", "quality", "flops", "memory", "latency", "energy")  # in the order of a record


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("Input should be a number, not true or false")
    return value


Integer = Annotated[int, BeforeValidator(_no_boolean)]
Real = Annotated[float, BeforeValidator(_no_boolean)]
Count = Annotated[Integer, Field(ge=1)]
Seed = Annotated[Integer, Field(ge=0, lt=2**63)]  # what torch takes
Decay = Annotated[Real, Field(ge=0, lt=1)]  # of a running mean


class Spec(BaseModel):
    """Base of everything a user writes: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DataSpec(Spec):
    """Which text: a dataset by name (`chars:<path>` and `table:<path>` carry their file), its options, its batching."""

    dataset: str = "graded"
    path: str | None = None  # where the user keeps the files of a preset
    options: dict[str, Any] = {}
    split: Literal["train", "calibration", "test"] = "test"
    max_tokens: Annotated[Integer, Field(ge=2)] = 64
    vocab_size: Annotated[Integer, Field(ge=8)] = 20_000
    batch_size: Count = 32
    limit: Count | None = None  # examples of the split; None takes all

    @property
    def kind(self) -> str:
        """The plug-in's name, without the path after the colon."""
        return self.dataset.partition(":")[0]


class SizeSpec(Spec):
    """The backbone that all models of a profile share."""

    d_model: Count = 128
    n_layers: Annotated[Integer, Field(ge=1)] = 4
    n_heads: Count = 8
    d_ff: Count = 512
    dropout: Annotated[Real, Field(ge=0, lt=1)] = 0.1

    @model_validator(mode="after")
    def _heads_divide_width(self) -> SizeSpec:
        if self.d_model % self.n_heads:
            raise EffauditError(
                f"size: d_model {self.d_model} is not a multiple of n_heads {self.n_heads}",
                "all heads are of one width: choose another of the two",
            )
        return self


class TrainingSpec(Spec):
    """How a model is trained (AdamW); defaults are those of the TSA reference code."""

    steps: Annotated[Integer, Field(ge=0)] = 1000
    batch_size: Count = 64
    learning_rate: Annotated[Real, Field(gt=0)] = 3e-4
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup_steps: Annotated[Integer, Field(ge=0)] = 200
    min_lr_fraction: Annotated[Real, Field(ge=0, le=1)] = 0.1
    betas: tuple[Decay, Decay] = (0.9, 0.95)
    weight_decay: Annotated[Real, Field(ge=0)] = 0.1
    decay_all: bool = False  # decay biases, norms and embeddings too (as TSA's enwik8 runs did)
    clip: Annotated[Real, Field(gt=0)] | None = 1.0
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    eval_every: Count = 250
    eval_examples: Count = 1000
    checkpoint_every: Count = 250
    keep: Literal["best", "last"] = "last"  # which weights an audit loads


Dtype = Literal["float32", "bfloat16", "float16", "float64"]


class RunSpec(Spec):
    """How one model is run; None leaves it to the profile."""

    device: str | None = None
    threads: Count | None = None
    batch_size: Count | None = None
    dtype: Dtype | None = None
    quantize: Literal["int8"] | None = None  # dynamic: weights in int8, activations quantised as they come
    compile: bool = False  # by torch.compile


class ModelSpec(Spec):
    """One model of a profile: a variant with its options, where its weights lie, how it is trained."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$", description=NAME_RULE)]
    variant: str
    options: dict[str, Any] = {}
    weights: str | None = None  # a .safetensors file, relative to the profile
    init_from: str | None = None  # name of the profile's model whose trained weights it starts from
    training: dict[str, Any] = {}  # fields of TrainingSpec that differ for this model
    audited: bool = True  # False: trained for others to start from, audited only where --model names it
    run: RunSpec = RunSpec()
    swept: str | None = None  # the model that a sweep varies
    cell: dict[str, Any] = {}  # the place in the sweep's grid

    @property
    def is_own(self) -> bool:
        """Whether it is a model of the user's own, which brings its weights and its tokenizer along."""
        return self.variant in OWN

    @model_validator(mode="before")
    @classmethod
    def _name_alone_is_variant(cls, data: Any) -> Any:
        if isinstance(data, str):
            return parse_own(data) if is_own(data) else {"name": data, "variant": data}
        if isinstance(data, dict):
            if "variant" in data:
                return {"name": data["variant"], **data}
            if "name" in data:
                return {"variant": data["name"], **data}
        return data


class AuditSpec(Spec):
    """What is measured, on what, and for how long."""

    meters: tuple[str, ...] = METERS
    device: str = "auto"
    dtype: Dtype = "float32"
    threads: Count = 1
    rounds: Annotated[Integer, Field(ge=2)] = 5  # timed rounds over the models, at least if the time allows
    max_seconds: Annotated[Real, Field(gt=0)] = 12.0  # for all timed rounds together
    energy_window_s: Annotated[Real, Field(gt=0)] = 2.0
    country: Annotated[str, Field(pattern=r"(?i)^([a-z]{3}|world)$")] | None = Field(
        default=None, description="an ISO 3166-1 alpha-3 code such as DEU, or `world`"
    )
    region: str | None = None  # of the country: a state, province or bidding zone
    intensity: Annotated[Real, Field(gt=0)] | None = None  # gCO2e/kWh
    pue: Annotated[Real, Field(ge=1)] = 1.0
    allow_download: bool = False  # of a model that is named by its id and not here yet
    elementwise: bool = False  # count work per element and gathered bytes too

    @field_validator("meters")
    @classmethod
    def _known_meters(cls, meters: tuple[str, ...]) -> tuple[str, ...]:
        if not meters:
            raise EffauditError("no meter is named", f"known: {', '.join(plugins.names('meters'))}")
        for name in meters:
            if name not in plugins.names("meters"):
                raise unknown_name("meters", name, plugins.names("meters"))
        return meters


def _share(value: object) -> object:
    return parse_share(value) if isinstance(value, str) else _no_boolean(value)


Share = Annotated[float, BeforeValidator(_share), Field(ge=0, description=SHARE_RULE)]


class GateSpec(Spec):
    """What `effaudit gate` accepts, by measurement, and how long it may time two revisions."""

    tolerances: dict[str, Share] = {}  # how much worse, relative to the baseline
    max_seconds: Annotated[Real, Field(gt=0)] = 120.0


class MatchSpec(Spec):
    """A model whose knob is turned, on the calibration split, until it meets another's figure."""

    model: str
    to: str
    by: MatchedBy = "flops"
    knob: str | None = None  # an option; None takes the variant's usual one
    examples: Count = 512  # of the calibration split

    @model_validator(mode="after")
    def _two_models(self) -> MatchSpec:
        if self.model == self.to:
            raise EffauditError(f"match: `{self.model}` cannot be matched to itself", "name another model after `to:`")
        return self


class ControlsSpec(Spec):
    """Which other routings each adaptive model is held against, on how many examples of the audited split.

    `trained` names, by model, the one of the profile that was trained under fixed random routing at its rate.
    """

    kinds: tuple[ControlKind, ...] = ("random", "constant", "untrained", "soft")
    draws: Count = 3  # of random routings
    examples: Count = 1024
    trained: dict[str, str] = {}


class AuditProfile(Spec):
    """One audit: data, backbone, models, what to measure, how the models were trained."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description=NAME_RULE)] = "audit"
    description: str = ""
    seed: Seed = 0
    seeds: tuple[Seed, ...] = ()  # further ones that the models are trained from and audited with
    data: DataSpec = DataSpec()
    size: SizeSpec = SizeSpec()
    models: Annotated[tuple[ModelSpec, ...], Field(min_length=1, description=MODELS_RULE)]
    audit: AuditSpec = AuditSpec()
    difficulty: str | None = Field(
        default=None, description="`level`, `dense_loss`, `length` or a column of the per-example table"
    )
    reference: tuple[str, ...] = ()  # methods whose published figures stand beside the ladder
    match: tuple[MatchSpec, ...] = ()
    controls: ControlsSpec | None = None
    training: TrainingSpec = TrainingSpec()
    gate: GateSpec = GateSpec()
    sweep: Annotated[dict[str, tuple[Any, ...]], Field(description=SWEEP_RULE)] = {}

    @field_validator("sweep")
    @classmethod
    def _every_axis_has_values(cls, sweep: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        for key, values in sweep.items():
            if not values or len({repr(value) for value in values}) < len(values):
                raise EffauditError(
                    f"sweep: `{key}` has {'no values' if not values else 'a value twice'}", "list each value once"
                )
        return sweep

    @model_validator(mode="after")
    def _names_fit(self) -> AuditProfile:
        seen: set[str] = set()
        for model in self.models:
            if model.name in seen:
                raise EffauditError(
                    f"two models are called `{model.name}`", "give one of them a `name:` of its own beside `variant:`"
                )
            if model.variant not in plugins.names("variants"):
                raise unknown_name("variants", model.variant, plugins.names("variants"))
            if model.name == TOKENIZER_NAME:
                raise EffauditError(
                    f"no model can be called `{model.name}`: its files would overwrite the tokenizer's",
                    "give it another `name:`",
                )
            seen.add(model.name)
        if not self.audited_models:
            raise EffauditError("no model is audited: each says `audited: false`", "leave that out for at least one")
        for model in self.models:
            self.training_of(model)
            if model.init_from is not None and model.init_from not in seen:
                raise unknown_name("models of this profile", model.init_from, seen)
        for name in (name for pair in self.pairs for name in pair):
            if name not in seen:
                raise unknown_name("models of this profile", name, seen)
        for control in self.controls.trained.values() if self.controls else ():
            if any(m.name == control and m.options.get("routing") != "random_fixed" for m in self.models):
                raise EffauditError(
                    f"controls: `{control}` is not trained under fixed random routing",
                    "give it `options: {routing: random_fixed, keep_rate: …}` and train it",
                )
        if self.reference:
            from effaudit.published import published  # builds on numpy, for which `--help` need not wait

            published(self.reference)
        if self.seed in self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise EffauditError(f"seeds: {list(self.seeds)} repeats a seed, or `seed: {self.seed}`", "name each once")
        if self.data.kind not in plugins.names("datasets"):
            raise unknown_name("datasets", self.data.kind, plugins.names("datasets"))
        return self

    @property
    def audited_models(self) -> tuple[ModelSpec, ...]:
        """Those that an audit takes when it is not told which."""
        return tuple(model for model in self.models if model.audited)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The models that `match` and `controls` set beside each other."""
        trained = self.controls.trained.items() if self.controls else ()
        return [*((spec.model, spec.to) for spec in self.match), *trained]

    def training_of(self, model: ModelSpec) -> TrainingSpec:
        """The training settings of one model: the profile's, with the model's own on top."""
        return validated(TrainingSpec, {**self.training.model_dump(), **model.training}, f"training of `{model.name}`")


class ModelConfig(Spec):
    """What a variant is built from; lies beside its weights."""

    variant: str
    task: Literal["classification", "causal_lm"]
    vocab_size: Count
    n_classes: Count | None = None  # None for causal_lm
    max_tokens: Count
    d_model: Count
    n_layers: Count
    n_heads: Count
    d_ff: Count
    dropout: Real = 0.0
    options: dict[str, Any] = {}


class OwnConfig(Spec):
    """What is known of a model of the user's own, its options resolved; `n_layers` is 0 where nobody said."""

    variant: str
    n_layers: Annotated[Integer, Field(ge=0)]
    options: dict[str, Any] = {}
    weights_sha256: str | None = None


SpecT = TypeVar("SpecT", bound=BaseModel)


def validated(spec: type[SpecT], data: object, where: str) -> SpecT:
    """`data` as a `spec`.

    Raises EffauditError naming the key, the value given and what would be right.
    """
    try:
        return spec.model_validate(data)
    except ValidationError as error:
        raise _first_mistake(spec, error, where) from error


def _first_mistake(spec: type[BaseModel], error: ValidationError, where: str) -> EffauditError:
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    place = f"{where}: {path}" if path else where
    if first["type"] == "extra_forbidden":
        known = _fields_at(spec, first["loc"][:-1])
        wrong = unknown_name(f"keys of {where}", path, known) if known else EffauditError(f"{place}: unknown key")
        close = unknown_name("", str(first["loc"][-1]), known).hint if known else ""
        return EffauditError(wrong.message, close)
    message = first["msg"].removeprefix("Value error, ")
    given = first["input"]
    shown = f", given `{given}`" if isinstance(given, str | int | float | bool) else ""
    return EffauditError(f"{place}: {message}{shown}", _remedy(spec, first))


def _remedy(spec: type[BaseModel], mistake: ErrorDetails) -> str:
    """What would be right at the place of the mistake: the nearest choice, what the key means, its default."""
    if mistake["type"] == "literal_error":
        choices = re.findall(r"'([^']*)'", mistake["ctx"]["expected"])
        return unknown_name("", str(mistake["input"]), choices).hint
    field, inside = None, spec
    for part in mistake["loc"]:
        if not isinstance(part, int):
            named = {f.alias or name: f for name, f in inside.model_fields.items()}
            if part not in named:  # a tag of pydantic's, not a key
                break
            field = named[part]
            inside = _spec_inside(field.annotation) or inside
    if field is None:
        return f"its keys are {', '.join(_fields_at(spec, ()))}"
    if mistake["type"] == "missing":
        return f"its keys are {', '.join(_fields_at(spec, mistake['loc'][:-1]))}"
    if field.description:
        return f"it is {field.description}"
    if keys := _fields_at(spec, mistake["loc"]):
        return f"its keys are {', '.join(keys)}"
    if field.is_required() or field.default is None:
        return ""
    return f"left out, it is `{field.default}`"


def _fields_at(spec: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The keys allowed at `path` inside `spec`, following nested specs and tuples of them."""
    current: type[BaseModel] | None = spec
    for part in path:
        if isinstance(part, int) or current is None:
            continue
        field = {f.alias or name: f for name, f in current.model_fields.items()}.get(part)
        current = _spec_inside(field.annotation) if field else None
    return [f.alias or name for name, f in current.model_fields.items()] if current else []


def _spec_inside(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        if (found := _spec_inside(argument)) is not None:
            return found
    return None


class _Loader(yaml.SafeLoader):
    """YAML as ever, but a key that is given twice is refused: one of its values would silently be lost."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set[str]()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise yaml.composer.ComposerError(None, None, f"`{key.value}` is given twice", key.start_mark)
            seen.add(str(key.value))
        return node


def builtin_profiles(folder: str = "") -> dict[str, Path]:
    """The profiles that ship with effaudit, by name: in the package when installed, beside it in a checkout.

    `folder` names one below those of `effaudit list`.
    """
    package = Path(__file__).parent
    place = next((f for f in (package / "profiles", package.parent / "profiles") if f.is_dir()), None)
    return {path.stem: path for path in sorted((place / folder).glob("*.yaml"))} if place else {}


def load_profile(target: str | Path) -> AuditProfile:
    """The profile of a YAML file or of a built-in name.

    Raises EffauditError when there is none, or naming the first key or value that is wrong.
    """
    path = Path(target)
    if not path.is_file():
        builtin = builtin_profiles()
        if str(target) not in builtin:
            if path.suffix in (".yaml", ".yml") or "/" in str(target):
                raise EffauditError(f"no profile file `{target}`", f"built-in profiles: {', '.join(builtin)}")
            raise unknown_name("built-in profiles", str(target), builtin)
        path = builtin[str(target)]
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise EffauditError(f"cannot read profile `{path}`: {error}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise EffauditError(
            f"`{path}` is not YAML: {where}{getattr(error, 'problem', error)}",
            "a profile is made of `key: value` lines, indented by spaces",
        ) from error
    if not isinstance(data, dict):
        kind = "empty" if data is None else f"a {type(data).__name__}"
        raise EffauditError(f"`{path}` is {kind}, not a mapping", "a profile has keys such as `data:` and `models:`")
    if "schema_version" in data:
        raise EffauditError(f"`{path}` is a saved record, not a profile", "show it with `effaudit compare`")
    profile = validated(AuditProfile, {"name": path.stem, **data}, f"`{path.name}`")
    return profile.model_copy(update={"models": tuple(_from_here(model, path.parent) for model in profile.models)})


def _from_here(model: ModelSpec, folder: Path) -> ModelSpec:
    """The model with its files found from the profile's folder; what is not there may be an id or lie elsewhere."""
    weights = None if model.weights is None else str(folder / model.weights)
    options = dict(model.options)
    if model.variant == "hf":
        for key in ("path", "tokenizer"):
            if isinstance(named := options.get(key), str) and (folder / named).exists():
                options[key] = str(folder / named)
    return model.model_copy(update={"weights": weights, "options": options})
