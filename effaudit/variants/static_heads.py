"""Static head pruning (Michel et al. 2019): the least important heads are gone, the same ones for every input."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn

from effaudit.errors import EffauditError
from effaudit.profile_spec import Integer, ModelConfig, Real, validated
from effaudit.variants._blocks import Backbone, Costs, VariantOptions, per_example, task_loss
from effaudit.variants._knobs import Knob, Knobs
from effaudit.variants._passes import part
from effaudit.workload import Batch, Execution, Output, Routing

TASKS = ("classification", "causal_lm")
KNOBS: Knobs = {"head_fraction": lambda config: Knob(1 / config.n_heads, 1.0, is_remade=True)}


class Options(VariantOptions):
    """`kept_heads` is found from data when the model is made and lies beside its weights; 0-based, per layer."""

    head_fraction: Annotated[Real, Field(gt=0, le=1)] = 0.5
    finetune_steps: Annotated[Integer, Field(ge=0)] = 0
    kept_heads: tuple[tuple[int, ...], ...] | None = None


class StaticHeads(Backbone):
    """The dense model with smaller projections; without data it keeps the first heads of each layer."""

    def __init__(self, config: ModelConfig, options: Options) -> None:
        self.kept = kept_heads(config, options)
        super().__init__(config, [len(heads) for heads in self.kept])
        self.options = options

    def one_pass(self, batch: Batch, routing: Routing | None) -> Output:
        visible = self.visibility(batch)
        h = self.embedded(batch)
        for block in self.blocks:
            h = block(h, visible)
        heads = torch.zeros(len(self.kept), self.config.n_heads, dtype=torch.bool, device=h.device)
        for layer, kept in enumerate(self.kept):
            heads[layer, list(kept)] = True
        decided = Routing(path=("pruned",) * len(self.kept), heads=heads.expand(batch.n_examples, -1, -1))
        return Output(self.head(h, batch.padding_mask), decided)


def kept_heads(config: ModelConfig, options: Options) -> tuple[tuple[int, ...], ...]:
    """The heads of each layer.

    Raises EffauditError when `kept_heads` does not fit the size.
    """
    if options.kept_heads is None:
        n_kept = max(round(options.head_fraction * config.n_heads), 1)
        return (tuple(range(n_kept)),) * config.n_layers
    fits = len(options.kept_heads) == config.n_layers and all(
        heads and all(0 <= head < config.n_heads for head in heads) and len(set(heads)) == len(heads)
        for heads in options.kept_heads
    )
    if not fits:
        raise EffauditError(
            f"static_heads: kept_heads {options.kept_heads} does not fit {config.n_layers} layers of "
            f"{config.n_heads} heads"
        )
    return options.kept_heads


def head_importance(dense: Backbone, batches: Iterable[Batch]) -> Tensor:
    """|dL/dxi| of a mask xi on each head, mean over examples, l2-normalised per layer: (L, H)."""
    config = dense.config
    total = torch.zeros(config.n_layers, config.n_heads)
    for batch in batches:
        for example in range(batch.n_examples):
            one = part(batch, slice(example, example + 1))
            mask = torch.ones(1, config.n_layers, config.n_heads, device=batch.tokens.device, requires_grad=True)
            loss = task_loss(dense(one, Routing(head_gate=mask)).logits, one)
            (gradient,) = torch.autograd.grad(loss, mask)
            total += gradient[0].abs().cpu()
    norms = total.norm(dim=1, keepdim=True)
    return total / norms.clamp_min(torch.finfo(total.dtype).tiny)


def choose_heads(importance: Tensor, head_fraction: float) -> tuple[tuple[int, ...], ...]:
    """The most important heads over all layers, at least one in each."""
    n_layers, n_heads = importance.shape
    n_kept = max(round(head_fraction * n_layers * n_heads), n_layers)
    ranked = importance.clone()
    ranked[torch.arange(n_layers), importance.argmax(dim=1)] = torch.inf  # the guard: each layer's best stays
    best = ranked.flatten().topk(n_kept).indices
    keep = torch.zeros(n_layers * n_heads, dtype=torch.bool).index_fill(0, best, True).view(n_layers, n_heads)
    return tuple(tuple(row.nonzero().flatten().tolist()) for row in keep)


def prune(config: ModelConfig, dense: Backbone, batches: Iterable[Batch]) -> StaticHeads:
    """The dense model without its least important heads; `config` gets the heads that were kept."""
    options = validated(Options, config.options, "options of `static_heads`")
    kept = choose_heads(head_importance(dense.eval(), batches), options.head_fraction)
    options_found = {**config.options, "kept_heads": [list(heads) for heads in kept]}
    model = build(config.model_copy(update={"options": options_found}))
    own, source = model.state_dict(), dense.state_dict()
    head_dim = config.d_model // config.n_heads
    for name in own:
        value = source[name]
        if name.startswith("blocks.") and ".attn." in name:
            heads = torch.tensor(kept[int(name.split(".")[1])])
            if name.endswith("qkv.weight"):
                value = value.unflatten(0, (3, config.n_heads, head_dim))[:, heads].flatten(0, 2)
            else:
                value = value.unflatten(1, (config.n_heads, head_dim))[:, heads].flatten(1, 2)
        own[name] = value.clone()
    model.load_state_dict(own)
    return model


def initialise(config: ModelConfig, source: nn.Module, batches: Iterable[Batch]) -> nn.Module:
    """Training starts from the pruned source.

    Raises EffauditError when the source is not a dense model.
    """
    assert isinstance(source, Backbone)
    if source.config.variant != "dense":
        raise EffauditError(
            f"static_heads prunes a dense model, not a model of variant `{source.config.variant}`",
            "let `init_from` name a dense model",
        )
    return prune(config, source, batches)


def build(config: ModelConfig) -> StaticHeads:
    return StaticHeads(config, validated(Options, config.options, "options of `static_heads`"))


def flops(config: ModelConfig, batch: Batch, routing: Routing, execution: Execution) -> Tensor:
    costs = Costs(config, batch.tokens.shape[1])
    if execution == "dense":
        return per_example(batch, costs.dense)
    kept = kept_heads(config, validated(Options, config.options, "options of `static_heads`"))
    n_left_out = config.n_layers * config.n_heads - sum(len(heads) for heads in kept)
    return per_example(batch, costs.dense - n_left_out * (costs.attention // config.n_heads))
