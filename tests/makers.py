"""Tiny models, batches and routings that the tests of several modules share."""

from __future__ import annotations

from math import isnan
from typing import Any

import torch
from torch import Tensor

from effaudit import plugins
from effaudit.profile_spec import AuditProfile, ModelConfig, validated
from effaudit.record import Findings
from effaudit.variants._blocks import Backbone
from effaudit.workload import IGNORED_LABEL, Batch, Output, Routing, Task

VOCAB, CLASSES, MAX_TOKENS = 13, 3, 8
D_MODEL, LAYERS, HEADS, D_FF = 16, 3, 4, 24

FLOAT64, FLOAT32 = 1e-10, 1e-5  # how far a fast path may be from the plain one


def config(variant: str, task: Task = "classification", options: dict[str, Any] | None = None, **size: Any) -> Any:
    """A ModelConfig of tiny size, resolved as an audit resolves it."""
    shape = {"d_model": D_MODEL, "n_layers": LAYERS, "n_heads": HEADS, "d_ff": D_FF, "vocab_size": VOCAB, **size}
    shape = {"max_tokens": MAX_TOKENS, **shape}
    known = validated(plugins.load("variants", variant).Options, options or {}, "options")
    return ModelConfig(
        variant=variant,
        task=task,
        n_classes=CLASSES if task == "classification" else None,
        options=known.model_dump(mode="json", by_alias=True),
        **shape,
    )


def build(made_from: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float64) -> Any:
    """A model in eval mode whose decisions differ from token to token, unlike at initialisation."""
    model = plugins.load("variants", made_from.variant).build(made_from).to(dtype).eval()
    randomise(model, seed)
    return model


def randomise(model: Backbone, seed: int = 0) -> None:
    """Weights of deviation 1 / sqrt(inputs), biases and norms near theirs."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=source)
            if parameter.dim() == 1:
                parameter.copy_(0.3 * noise + (1 if "norm" in name and name.endswith("weight") else 0))
            else:
                parameter.copy_(noise * (0.5 if "embed" in name or "position" in name else parameter.shape[1] ** -0.5))


def batch(
    task: Task = "classification", lengths: tuple[int, ...] = (5, 5, 5), seed: int = 0, n_tokens: int | None = None
) -> Batch:
    """Examples of these lengths, padded with random ids to the longest or to `n_tokens`."""
    source = torch.Generator().manual_seed(seed)
    width = n_tokens or max(lengths)
    tokens = torch.randint(0, VOCAB, (len(lengths), width), generator=source)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    if task == "classification":
        labels = torch.randint(0, CLASSES, (len(lengths),), generator=source)
    else:
        labels = torch.randint(0, VOCAB, tokens.shape, generator=source).masked_fill(~mask, IGNORED_LABEL)
    return Batch(tokens, mask, labels, torch.arange(len(lengths)), is_padded=not bool(mask.all()))


def random_routing(made_from: ModelConfig, of: Batch, share: float, seed: int = 0) -> Routing:
    """Decisions from outside: each head or token runs, and each unit stays another layer, with probability `share`."""
    source = torch.Generator().manual_seed(seed)
    n_examples, n_tokens, n_layers = *of.tokens.shape, made_from.n_layers

    def chance(*shape: int) -> Tensor:
        return torch.rand(shape, generator=source, dtype=torch.float64)

    if made_from.variant == "tsa":
        tokens = chance(n_examples, n_tokens, n_layers) < share
        tokens[..., 0] = True
        return Routing(tokens=tokens, gate=chance(n_examples, n_tokens, n_layers))
    if made_from.variant == "budgetformer":
        shape = (n_examples, n_layers, made_from.n_heads)
        return Routing(heads=chance(*shape) < share, head_gate=chance(*shape))
    if made_from.variant == "early_exit":
        units = (n_examples,) if made_from.task == "classification" else (n_examples, n_tokens)
        stays = chance(*units, n_layers - 1) < share
        return Routing(exits=1 + stays.long().cumprod(dim=-1).sum(dim=-1))
    return Routing()


def run(model: Backbone, of: Batch, routing: Routing | None = None) -> Output:
    with torch.inference_mode():
        output: Output = model(of, routing)
    return output


def distance(one: Tensor, other: Tensor) -> float:
    """max|Δ| relative to max(1, max|other|)."""
    one, other = one.detach(), other.detach()
    return float((one - other).abs().max() / other.abs().max().clamp_min(1))


def n_differing_decisions(one: Routing, other: Routing, mask: Tensor) -> int:
    """Hard decisions on heads, real tokens and exits in which two paths differ."""
    n = 0
    for name in ("heads", "tokens", "exits"):
        a, b = getattr(one, name), getattr(other, name)
        if a is None:
            continue
        differs = a != b
        if name == "tokens" or (name == "exits" and a.dim() == 2):
            differs = differs[mask]
        n += int(differs.sum())
    return n


def columns(found: Findings) -> dict[str, list[float | None]]:
    """The example rows that a meter found, by column, None for what is missing."""
    assert found.examples is not None
    rows = [row for stretch in found.examples.stretches() for row in stretch.tolist()]
    values = zip(*rows, strict=True)
    return {
        name: [None if isnan(value) else value for value in column]
        for name, column in zip(found.examples.columns, values, strict=True)
    }


def profile(*models: Any, **changes: Any) -> AuditProfile:
    """A profile on `copy` that trains and audits within a second."""
    data = {
        "dataset": "copy",
        "options": {"length": 3, "n_train": 24, "n_calibration": 8, "n_test": 10},
        "max_tokens": 8,
        "batch_size": 4,
    }
    settings = {
        "steps": 6,
        "batch_size": 4,
        "warmup_steps": 2,
        "eval_every": 3,
        "checkpoint_every": 2,
    }
    spec = {
        "name": "tiny",
        "data": {**data, **changes.pop("data", {})},
        "size": {"d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 32, "dropout": 0.1},
        "models": models or ("dense",),
        "audit": {"meters": ("routing", "quality"), "device": "cpu", **changes.pop("audit", {})},
        "training": {**settings, **changes.pop("training", {})},
        **changes,
    }
    return validated(AuditProfile, spec, "test profile")
