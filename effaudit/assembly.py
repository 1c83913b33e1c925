"""From a profile's words to a dataset and models with their weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from effaudit import plugins
from effaudit.datasets._dataset import Dataset
from effaudit.datasets._model_tokenizer import ModelTokenizer
from effaudit.datasets._next_tokens import NextTokens
from effaudit.errors import EffauditError
from effaudit.execution import left_out, prepared
from effaudit.profile_spec import (
    AuditProfile,
    ModelConfig,
    ModelSpec,
    OwnConfig,
    builtin_profiles,
    load_profile,
    validated,
)
from effaudit.record import Caution, Match
from effaudit.variants._blocks import VariantOptions
from effaudit.variants._own import Opened, Order, OwnModel
from effaudit.weight_files import TOKENIZER_FILE, TrainedWeights, fit_weights, load_weights
from effaudit.workload import Batch, Execution, Routing

IMPORTANCE_BATCHES = 8  # batches of training data from which a pruned model learns its heads' importance
TRAINED = Path("reports/weights")  # where `effaudit train` puts weights, below the current folder

# Options whose effect lies in the weights: another value later changes nothing.
TRAINING_ONLY = {
    *("lambda", "router_bias", "anneal_to", "loss", "finetune_steps", "head_fraction", "noise", "tau_start", "tau_end"),
    *("routing", "keep_rate", "budget_loss", "s_min", "s_max", "s_target", "lambda_budget", "lambda_entropy"),
}


@dataclass(frozen=True)
class Assembled:
    """A model ready to run, in eval mode on the CPU, with what it was made from."""

    spec: ModelSpec
    config: ModelConfig | OwnConfig
    variant: ModuleType
    model: nn.Module
    dataset: Dataset
    weights: TrainedWeights | None
    cautions: tuple[Caution, ...]
    match: Match | None = None  # how its knob was set

    def with_options(self, options: Mapping[str, Any]) -> Assembled:
        """The same weights under other options, which act at inference."""
        assert isinstance(self.config, ModelConfig)
        changed = {**self.config.options, **options}
        config = self.config.model_copy(update={"options": changed})
        model = copy.copy(self.model)  # the same parameters, an object of its own
        vars(model).update(
            options=validated(self.variant.Options, changed, f"options of `{self.spec.name}`"), config=config
        )
        return replace(self, config=config, model=model)

    def with_untrained_gates(self, seed: int) -> Assembled:
        """The same weights but for its gates, which are as before training."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model: nn.Module = self.variant.build(self.config)
        own = self.model.state_dict()
        fresh = model.state_dict()
        gates = {name for name in fresh if name.startswith(self.variant.GATES)}
        model.load_state_dict({name: fresh[name] if name in gates else tensor for name, tensor in own.items()})
        return replace(self, model=model.eval())

    @property
    def flops(self) -> Callable[[Batch, Routing, Execution], Tensor]:
        """The closed formula; that of a model of the user's own is the model's."""
        if isinstance(self.model, OwnModel):
            return self.model.flops
        formula: Callable[[Batch, Routing, Execution], Tensor] = partial(self.variant.flops, self.config)
        return formula

    @property
    def weights_sha256(self) -> str | None:
        if isinstance(self.config, OwnConfig):
            return self.config.weights_sha256
        return self.weights.sha256 if self.weights else None


@dataclass
class Data:
    """A profile's data under the tokenizers of its models, one dataset each."""

    profile: AuditProfile
    _opened: dict[tuple[str | None, bool], Dataset] = field(default_factory=dict)

    def under(self, tokenizer: Tokenizer | ModelTokenizer | None, is_causal: bool = False) -> Dataset:
        """The dataset as that tokenizer reads it; `is_causal` asks for the next token where the labels are classes."""
        identity = tokenizer.identity if isinstance(tokenizer, ModelTokenizer) else None
        if isinstance(tokenizer, Tokenizer):
            identity = str(tokenizer.to_str())
        if (identity, is_causal) not in self._opened:
            module = plugins.load("datasets", self.profile.data.kind)
            dataset: Dataset = module.open_dataset(self.profile.data, tokenizer)
            is_asked = is_causal and dataset.task == "classification"
            self._opened[identity, is_causal] = NextTokens(dataset) if is_asked else dataset
        return self._opened[identity, is_causal]


def weights_folder(profile: AuditProfile) -> Path | None:
    """Where the profile's trained weights lie: those that ship with effaudit, else those trained here."""
    shipped = Path(__file__).parent / "weights" / profile.name
    folders = (shipped, TRAINED / profile.name) if _is_builtin(profile) else (TRAINED / profile.name,)
    return next((folder for folder in folders if folder.is_dir()), None)


def _is_builtin(profile: AuditProfile) -> bool:
    """Whether it is a built-in profile, options aside, and not another one that happens to bear its name."""
    path = builtin_profiles().get(profile.name)
    return path is not None and load_profile(path).size == profile.size


def find_weights(profile: AuditProfile, spec: ModelSpec, given: Path | None) -> Path | None:
    """The weights file of one model: `given` (a file, or a folder with one file a model), the profile's, the trained.

    Raises EffauditError when a file was named and is not there.
    """
    named = given if given is not None else Path(spec.weights) if spec.weights else None
    if named is not None and not named.is_dir():
        if not named.is_file():
            raise EffauditError(f"no weights file `{named}`", "`effaudit train` writes them")
        return named
    folder = named or weights_folder(profile)
    path = folder / f"{spec.name}.safetensors" if folder else None
    if path is not None and path.is_file():
        return path
    if named is not None:
        raise EffauditError(f"no weights for `{spec.name}` in `{named}`", f"expected `{path}`")
    return None


def open_data(profile: AuditProfile, weights: TrainedWeights | None = None) -> Dataset:
    """The profile's dataset; with trained weights, under the tokenizer that they were trained with."""
    return Data(profile).under(weights.tokenizer if weights else None)


def model_config(profile: AuditProfile, spec: ModelSpec, dataset: Dataset) -> ModelConfig:
    """The config of one model: shared size, the dataset's vocabulary and classes, resolved options.

    Raises EffauditError when an option is unknown or the variant does not do this task.
    """
    variant = plugins.load("variants", spec.variant)
    options = validated(variant.Options, spec.options, f"options of `{spec.name}`")
    return ModelConfig(
        variant=spec.variant,
        task=dataset.task,
        vocab_size=dataset.vocab_size,
        n_classes=dataset.n_classes,
        max_tokens=profile.data.max_tokens,
        **profile.size.model_dump(),
        options=options.model_dump(mode="json", by_alias=True),
    )


def assemble(profile: AuditProfile, spec: ModelSpec, dataset: Dataset, weights: TrainedWeights | None) -> Assembled:
    """Builds one model and loads its weights; without any, seeded random ones, and a caution.

    Raises EffauditError when options or weights do not fit.
    """
    config = model_config(profile, spec, dataset)
    variant = plugins.load("variants", spec.variant)
    cautions = []
    if weights is None:
        cautions.append(
            Caution(
                code="untrained",
                text="random weights: quality and routing mean nothing",
                hint="run `effaudit train` on this profile, or give --weights FILE",
            )
        )
    elif weights.config is not None:
        config, found = _as_trained(spec, config, weights.config)
        cautions += found
    resolved: VariantOptions = validated(variant.Options, config.options, f"options of `{spec.name}`")
    if weights is not None and resolved.untrained_use:
        cautions.append(
            Caution(
                code="trained_otherwise",
                text=resolved.untrained_use,
                hint="its quality suffers: retrain it, or run it as it was trained",
            )
        )
    if weights is not None and weights.training is not None:
        cautions += _of_other_data(weights.training.dataset, profile.data.dataset)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(profile.seed)
        model: nn.Module = variant.build(config)
    if weights is not None:
        fit_weights(model, weights)
    return Assembled(spec, config, variant, model.eval(), dataset, weights, tuple(cautions))


def open_own(profile: AuditProfile, spec: ModelSpec, data: Data) -> Assembled:
    """A model of the user's own.

    Raises EffauditError for whatever about it cannot be audited.
    """
    variant = plugins.load("variants", spec.variant)
    opened: Opened = variant.open_model(Order(spec, profile, data))
    return Assembled(spec, opened.config, variant, opened.model, opened.dataset, None, opened.cautions)


def _as_trained(spec: ModelSpec, config: ModelConfig, trained: ModelConfig) -> tuple[ModelConfig, list[Caution]]:
    """The config with the options that the weights were trained with where the profile says nothing."""
    if trained.variant != config.variant:
        raise EffauditError(f"the weights of `{spec.name}` are of variant `{trained.variant}`, not `{config.variant}`")
    said = validated(plugins.load("variants", spec.variant).Options, spec.options, f"options of `{spec.name}`")
    options = {**config.options, **trained.options, **said.model_dump(mode="json", by_alias=True, exclude_unset=True)}
    cautions = [
        Caution(
            code="trained_otherwise",
            text=f"`{key}` acts in training; the weights were trained with {trained.options[key]}, not {value}",
            hint="retrain with the new value, or leave it out",
        )
        for key, value in options.items()
        if key in TRAINING_ONLY and key in trained.options and trained.options[key] != value
    ]
    return config.model_copy(update={"options": options, "dropout": trained.dropout}), cautions


def _of_other_data(trained: str, audited: str) -> list[Caution]:
    """Said where the datasets' kinds or the names of their files differ; the same file may lie in another folder."""
    names = [(kind, Path(path).name) for kind, _, path in (trained.partition(":"), audited.partition(":"))]
    if names[0] == names[1]:
        return []
    text = f"trained on `{trained}`, not on `{audited}`"
    hint = "its quality means something only where classes and symbols mean the same"
    return [Caution(code="other_data", text=text, hint=hint)]


def made_anew(
    profile: AuditProfile, models: Mapping[str, Assembled], model: Assembled, options: Mapping[str, Any]
) -> Assembled:
    """The model under other options, made from the one that its training started from and not trained further.

    A dense model that started from there too stands in for one that is not audited.
    Raises EffauditError when neither is among `models`.
    """
    assert isinstance(model.config, ModelConfig)
    spec = model.spec
    origin = spec.init_from or ""
    siblings = (m for m in models.values() if m.spec.variant == "dense" and m.spec.init_from == origin)
    source = models.get(origin) or next(siblings, None)
    if source is None:
        hint = "give it `init_from:` with the name of a dense model of the profile"
        raise EffauditError(f"`{spec.name}` cannot be made anew: the model it starts from is not here", hint)
    config = model.config.model_copy(update={"options": {**model.config.options, **options}})
    batches = model.dataset.training_batches(profile.training_of(spec).batch_size, profile.seed)
    made = model.variant.initialise(config, source.model, islice(batches, IMPORTANCE_BATCHES))
    text = f"made anew from `{source.spec.name}` with {_listed(options)}, without training since"
    caution = Caution(code="made_anew", text=text, hint="train it with that option to compare at its best")
    return replace(model, config=made.config, model=made.eval(), cautions=(*model.cautions, caution))


def _listed(options: Mapping[str, Any]) -> str:
    return ", ".join(f"`{key}` {value:.4g}" for key, value in options.items())


def seed_folder(folder: Path, seed: int) -> Path:
    """Where the weights of a further seed lie."""
    return folder / f"seed{seed}"


def load_seed(profile: AuditProfile, model: Assembled, seed: int) -> Assembled | None:
    """The model with the weights of another seed, its knob set alike; None for one that has no trained weights.

    Raises EffauditError when they are not there.
    """
    if model.weights is None:
        return None
    path = seed_folder(model.weights.path.parent, seed) / model.weights.path.name
    if not path.is_file():
        hint = f"expected `{path}`: `effaudit train {profile.name}` trains every seed that the profile names"
        raise EffauditError(f"no weights of seed {seed} for `{model.spec.name}`", hint)
    weights = load_weights(path)
    if _vocabulary(weights) != _vocabulary(model.weights):
        hint = "train all seeds on the same data, in one folder"
        raise EffauditError(f"`{path}` was trained with another tokenizer than `{model.weights.path}`", hint)
    twin = assemble(profile, model.spec, model.dataset, weights)
    match = model.match
    return twin.with_options({match.knob: match.setting}) if match and match.setting is not None else twin


def _vocabulary(weights: TrainedWeights) -> str | None:
    return None if weights.tokenizer is None else str(weights.tokenizer.to_str())


def load_all(profile: AuditProfile, given: Path | None) -> tuple[Dataset, list[Assembled]]:
    """Every model of the profile with its data, and the data of the first: one for all models under one tokenizer.

    Raises EffauditError when models were trained with different tokenizers.
    """
    paths = {spec.name: find_weights(profile, spec, given) for spec in profile.audited_models if not spec.is_own}
    weights = {name: load_weights(path) if path else None for name, path in paths.items()}
    trained = [w for w in weights.values() if w is not None]
    tokenizers = {vocabulary for w in trained if (vocabulary := _vocabulary(w)) is not None}
    if len(tokenizers) > 1:
        raise EffauditError(
            "the models were trained with different tokenizers, so their inputs would differ",
            f"train them together, so that they share one {TOKENIZER_FILE}",
        )
    data = Data(profile)
    tokenizer = next((w.tokenizer for w in trained if w.tokenizer is not None), None)
    assembled = []
    for spec in profile.audited_models:
        if spec.is_own:
            model = open_own(profile, spec, data)
        else:
            model = assemble(profile, spec, data.under(tokenizer), weights[spec.name])
        ready = prepared(model.model, spec, profile.audit)
        assembled.append(replace(model, model=ready, cautions=(*model.cautions, *left_out(ready, spec))))
    return assembled[0].dataset, assembled
