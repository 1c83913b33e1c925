"""Training one profile's models: resumable, reproducible, with weights and a training record at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from effaudit import device as devices
from effaudit import plugins
from effaudit.assembly import IMPORTANCE_BATCHES, assemble, model_config, open_data, seed_folder
from effaudit.auditing import prepare_folder
from effaudit.checkpoints import Checkpoint, Run
from effaudit.datasets._dataset import Dataset
from effaudit.errors import EffauditError, unknown_name
from effaudit.profile_spec import AuditProfile, ModelConfig, ModelSpec, TrainingSpec, validated
from effaudit.progress import tracking
from effaudit.streams import note
from effaudit.version import VERSION
from effaudit.weight_files import TrainingRecord, load_weights, save_weights
from effaudit.workload import IGNORED_LABEL, Batch

KINDS = ("best", "last")  # of weights: those not kept as the model's own lie beside them under this suffix
LOSS_EVERY = 25  # steps between entries of the loss curve


def train(
    profile: AuditProfile, folder: Path, only: tuple[str, ...] = (), is_quiet: bool = False, device: str = "cpu"
) -> list[Path]:
    """Trains the models of a profile in an order that respects `init_from`; returns their weights files.

    Those of the further seeds that the profile names lie in a folder of their own for each.

    `only` names the models to train; those they start from must then be trained already. A model whose
    weights are there under the same settings is left as it is.
    Raises EffauditError when the folder cannot be written, a model is unknown, or the loss is not finite.
    """
    known = [spec.name for spec in profile.models]
    for name in only:
        if name not in known:
            raise unknown_name("models of this profile", name, known)
    chosen = [spec for spec in training_order(profile) if not only or spec.name in only]
    for spec in chosen:
        _refuse_early(profile, spec)
    prepare_folder(folder)
    paths = []
    with devices.threads(profile.audit.threads):
        for seed in (profile.seed, *profile.seeds):
            place = folder if seed == profile.seed else prepare_folder(seed_folder(folder, seed))
            seeded = profile.model_copy(update={"seed": seed})
            paths += [train_model(seeded, spec, place, is_quiet, devices.resolve(device)) for spec in chosen]
    return paths


def _refuse_early(profile: AuditProfile, spec: ModelSpec) -> None:
    """Raises EffauditError for what would only be seen after other models were trained, or never."""
    if spec.is_own:
        raise EffauditError(f"`{spec.name}` is trained elsewhere: here it is only audited", "pick others with --model")
    stem, _, kind = spec.name.rpartition(".")
    if kind in KINDS and stem in {other.name for other in profile.models}:
        hint = f"give the model `{spec.name}` another `name:`"
        raise EffauditError(f"`{spec.name}` is where the {kind} weights of `{stem}` are kept", hint)
    key, steps = _steps(profile, spec)
    if steps == 0 and spec.init_from is None:
        raise EffauditError(
            f"`{spec.name}` would stay random: `{key}` is 0, and there is no model to start from",
            f"raise `{key}`, or set `init_from`",
        )


def _steps(profile: AuditProfile, spec: ModelSpec) -> tuple[str, int]:
    """How many optimiser steps a model gets, and the key that says so."""
    options = validated(plugins.load("variants", spec.variant).Options, spec.options, f"options of `{spec.name}`")
    if hasattr(options, "finetune_steps"):
        return "finetune_steps", int(options.finetune_steps)
    return "steps", profile.training_of(spec).steps


def training_order(profile: AuditProfile) -> list[ModelSpec]:
    """The models, each after the one it starts from.

    Raises EffauditError when they start from each other.
    """
    ordered: list[ModelSpec] = []
    waiting = list(profile.models)
    while waiting:
        done = {spec.name for spec in ordered}
        ready = [spec for spec in waiting if spec.init_from is None or spec.init_from in done]
        if not ready:
            names = ", ".join(spec.name for spec in waiting)
            raise EffauditError(f"these models start from each other: {names}", "break the circle of `init_from`")
        ordered += ready
        waiting = [spec for spec in waiting if spec not in ready]
    return ordered


def train_model(profile: AuditProfile, spec: ModelSpec, folder: Path, is_quiet: bool, device: torch.device) -> Path:
    """Trains one model, or goes on from its checkpoint; returns its weights file."""
    settings = profile.training_of(spec)
    path = folder / f"{spec.name}.safetensors"
    source = folder / f"{spec.init_from}.safetensors" if spec.init_from else None
    if source is not None and not source.is_file():
        raise EffauditError(f"`{spec.name}` starts from `{spec.init_from}`, which is not trained", "train that first")
    start = load_weights(source) if source else None
    dataset = open_data(profile, start)
    torch.manual_seed(profile.seed)
    model, config = _starting_model(profile, spec, dataset, folder, settings)
    model.to(device)
    _, steps = _steps(profile, spec)
    record = TrainingRecord(
        effaudit_version=VERSION,
        seed=profile.seed,
        steps=steps,
        init_from=spec.init_from,
        init_sha256=start.sha256 if start else None,
        dataset=profile.data.dataset,
        data_sha256=dataset.sha256("train"),
        settings=settings.model_dump(mode="json"),
        kept=settings.keep,
    )
    if _is_done(path, config, record):
        return path
    settings = settings.model_copy(update={"steps": steps})
    identity = repr((profile.seed, profile.data, profile.size, settings, config, *([start.sha256] if start else [])))
    checkpoint = Checkpoint(folder / f"{spec.name}.checkpoint.pt", identity)
    run = _optimise(model, dataset, settings, profile.seed, checkpoint, spec.name, is_quiet)
    if start is None:  # models that start from another one see the same data
        for caution in dataset.cautions():
            note(f"caution: {caution.text}\n  hint: {caution.hint}", is_quiet)
    finished = record.model_copy(
        update={
            "losses": tuple(run.losses),
            "evaluations": tuple(run.evaluations),
            "best_step": run.best_step,
            "seconds": run.seconds,
        }
    )
    _save(path, model, config, finished, dataset, run)
    checkpoint.path.unlink(missing_ok=True)
    return path


def _starting_model(
    profile: AuditProfile, spec: ModelSpec, dataset: Dataset, folder: Path, settings: TrainingSpec
) -> tuple[nn.Module, ModelConfig]:
    """A fresh model, or one that takes over what fits from the trained model it starts from."""
    variant = plugins.load("variants", spec.variant)
    config = model_config(profile, spec, dataset)
    if spec.init_from is None:
        return variant.build(config), config
    origin = next(s for s in profile.models if s.name == spec.init_from)
    source = assemble(profile, origin, dataset, load_weights(folder / f"{origin.name}.safetensors")).model
    if hasattr(variant, "initialise"):
        batches = islice(dataset.training_batches(settings.batch_size, profile.seed), IMPORTANCE_BATCHES)
        model = variant.initialise(config, source, batches)
        return model, model.config
    model = variant.build(config)
    own = model.state_dict()
    own.update({name: t for name, t in source.state_dict().items() if name in own and own[name].shape == t.shape})
    model.load_state_dict(own)
    return model, config


def _is_done(path: Path, config: ModelConfig, record: TrainingRecord) -> bool:
    if not path.is_file():
        return False
    there = load_weights(path)
    same = ("seed", "steps", "init_sha256", "data_sha256", "settings")
    return (
        there.config is not None
        and _with_defaults(there.config) == config
        and there.training is not None
        and all(getattr(there.training, name) == getattr(record, name) for name in same)
    )


def _with_defaults(config: ModelConfig) -> ModelConfig:
    """The config with the options that its variant has got since, at their defaults."""
    options = validated(plugins.load("variants", config.variant).Options, config.options, "options of the weights")
    return config.model_copy(update={"options": options.model_dump(mode="json", by_alias=True)})


def _save(
    path: Path, model: nn.Module, config: ModelConfig, record: TrainingRecord, dataset: Dataset, run: Run
) -> None:
    """The kept weights at `path`, the other ones (best or last) beside them."""
    last = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
    states = {"last": last, "best": run.best or last}
    other = "best" if record.kept == "last" else "last"
    for kind, target in ((other, path.with_name(f"{path.stem}.{other}.safetensors")), (record.kept, path)):
        model.load_state_dict(states[kind])
        finish: Callable[[], None] = getattr(model, "finish", lambda: None)
        finish()
        save_weights(target, model, config, record.model_copy(update={"kept": kind}), dataset.tokenizer)


def _optimise(
    model: nn.Module,
    dataset: Dataset,
    settings: TrainingSpec,
    seed: int,
    checkpoint: Checkpoint,
    name: str,
    is_quiet: bool,
) -> Run:
    device = next(model.parameters()).device
    optimizer = torch.optim.AdamW(
        parameter_groups(model, settings), lr=settings.learning_rate, betas=settings.betas, fused=True
    )
    run = checkpoint.load(model, optimizer)
    evaluation = list(dataset.batches("calibration", settings.batch_size, settings.eval_examples))
    batches = dataset.training_batches(settings.batch_size, seed, run.step)
    held_out = ""
    with tracking(f"train {name}", settings.steps, is_quiet) as tracker:
        started = time.monotonic() - run.seconds
        while run.step < settings.steps:
            loss = _step(model.train(), next(batches).to(device), optimizer, settings, run.step)
            run.step += 1
            is_end = run.step == settings.steps
            if run.step % LOSS_EVERY == 0 or is_end or run.step == 1:
                value = _finite(loss.item(), name, run.step)
                run.losses.append((run.step, value))
                rate = f"{run.step / max(time.monotonic() - started, 1e-9):.1f} steps/s"
                tracker.update(run.step, f"loss {value:.3f} {rate}{held_out}")
            if run.step % settings.eval_every == 0 or is_end:
                quality = evaluate(model.eval(), evaluation, device)
                _finite(quality.loss, name, run.step)
                held_out = f", held-out loss {quality.loss:.3f} accuracy {quality.accuracy:.3f}"
                _note_evaluation(run, model, quality)
            if run.step % settings.checkpoint_every == 0 and not is_end:
                run.seconds = time.monotonic() - started
                checkpoint.save(model, optimizer, run)
        if not run.evaluations:  # no step to take: the starting weights are the result
            _note_evaluation(run, model, evaluate(model.eval(), evaluation, device))
        run.seconds = time.monotonic() - started
        tracker.update(run.step, held_out.removeprefix(", "))
    model.eval()
    return run


def _finite(loss: float, name: str, step: int) -> float:
    if not math.isfinite(loss):
        raise EffauditError(
            f"training of `{name}` stopped: the loss is {loss} at step {step}", "lower learning_rate, or set clip"
        )
    return loss


def _note_evaluation(run: Run, model: nn.Module, quality: Quality) -> None:
    is_best = not run.evaluations or quality.loss < min(loss for _, loss, _ in run.evaluations)
    run.evaluations.append((run.step, quality.loss, quality.accuracy))
    if is_best:
        run.best = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
        run.best_step = run.step


def _step(
    model: nn.Module, batch: Batch, optimizer: torch.optim.Optimizer, settings: TrainingSpec, step: int
) -> Tensor:
    for group in optimizer.param_groups:
        group["lr"] = settings.learning_rate * schedule(settings, step)
    loss_of: Callable[[Batch, float], Tensor] = model.loss  # type: ignore[assignment]
    with torch.autocast(batch.tokens.device.type, torch.bfloat16, enabled=_is_bfloat16(settings, batch.tokens.device)):
        loss = loss_of(batch, step / max(settings.steps, 1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if settings.clip is not None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
    optimizer.step()
    return loss.detach()


def _is_bfloat16(settings: TrainingSpec, device: torch.device) -> bool:
    if settings.precision == "auto":
        return devices.has_fast("bfloat16", device)
    return settings.precision == "bfloat16"


def schedule(settings: TrainingSpec, step: int) -> float:
    """The factor on the learning rate at `step` (0-based): linear warm-up, then as named."""
    if step < settings.warmup_steps:
        return (step + 1) / settings.warmup_steps
    share = (step - settings.warmup_steps) / max(settings.steps - settings.warmup_steps, 1)
    floor = settings.min_lr_fraction
    if settings.schedule == "cosine":
        return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * share))
    if settings.schedule == "linear":
        return floor + (1 - floor) * (1 - share)
    return 1.0


def parameter_groups(model: nn.Module, settings: TrainingSpec) -> list[dict[str, Any]]:
    """Weight decay on matrices; biases, norms and embeddings go without unless `decay_all` (as TSA)."""
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    decayed: list[Tensor] = []
    free: list[Tensor] = []
    for parameter in model.parameters():
        is_matrix = parameter.dim() >= 2 and id(parameter) not in embeddings
        (decayed if is_matrix or settings.decay_all else free).append(parameter)
    return [{"params": decayed, "weight_decay": settings.weight_decay}, {"params": free, "weight_decay": 0.0}]


@dataclass(frozen=True)
class Quality:
    """Means over labelled examples or tokens: loss in nats, accuracy in [0, 1]."""

    loss: float
    accuracy: float


def evaluate(model: nn.Module, batches: list[Batch], device: torch.device) -> Quality:
    """Loss and accuracy on the inference path."""
    loss, n_right, n = 0.0, 0, 0
    with torch.inference_mode():
        for batch in batches:
            logits, labels = model(batch.to(device)).logits.flatten(0, -2), batch.labels.to(device).flatten()
            loss += F.cross_entropy(logits.float(), labels, ignore_index=IGNORED_LABEL, reduction="sum").item()
            n_right += int((logits.argmax(dim=-1) == labels).sum())
            n += int((labels != IGNORED_LABEL).sum())
    if n == 0:
        raise EffauditError("the calibration split has nothing to evaluate on", "give it examples, or a larger dataset")
    return Quality(loss / n, n_right / n)
