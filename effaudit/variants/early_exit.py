"""Early exit: a test after each block decides who leaves, per example (classifier) or per token (language model)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from effaudit.errors import EffauditError
from effaudit.profile_spec import Integer, ModelConfig, Real, validated
from effaudit.variants._blocks import Backbone, Costs, TiedHead, masked_mean, per_example, task_loss
from effaudit.variants._fixed_routing import RoutedOptions, exit_layers
from effaudit.variants._knobs import Knob, Knobs
from effaudit.workload import Batch, Execution, Output, Routing

TASKS = ("classification", "causal_lm")

FROZEN_FROM = 0.5  # `last+frozen` trains the backbone for this share of the steps, then the exits alone


class Options(RoutedOptions):
    """`threshold` depends on the criterion: leave when maxprob, margin (top1 - top2) or saturation (cosine of the
    states before and after the block) exceed it, when entropy (nats) is below it, or when that many consecutive
    tests agreed (patience). `min_layer`, 1-based, is the first layer with a test."""

    criterion: Literal["maxprob", "entropy", "margin", "saturation", "patience"] = "maxprob"
    threshold: Annotated[Real, Field(ge=0)] = 0.9
    state: Literal["copy", "oracle"] = "copy"
    min_layer: Annotated[Integer, Field(ge=1)] = 1
    loss: Literal["uniform", "depth-weighted", "last+frozen"] = "uniform"

    @property
    def is_skipping_tokens(self) -> bool:
        return self.execution == "skip" and self.state == "copy"

    @property
    def is_blind(self) -> bool:
        """Whether decisions are taken without logits, which then only those who leave need."""
        return self.criterion == "saturation" or self.is_random


def _threshold(config: ModelConfig) -> Knob:
    """The thresholds between which nobody and everybody leaves at once."""
    criterion = validated(Options, config.options, "options of `early_exit`").criterion
    if criterion == "patience":
        return Knob(0, config.n_layers, is_integer=True)
    return Knob(0.0, math.log(config.n_classes or config.vocab_size) if criterion == "entropy" else 1.0)


KNOBS: Knobs = {"threshold": _threshold}
GATES = ("exit_norms.", "exit_classifiers.")


class Ledger:
    """Who left where and with which logits; a unit is an example or a token."""

    def __init__(self, n_units: int, n_outputs: int, like: Tensor) -> None:
        self.logits = like.new_zeros(n_units, n_outputs)
        self.exits = torch.zeros(n_units, dtype=torch.int64, device=like.device)  # 1-based, 0 while here
        self._last = torch.full_like(self.exits, -1)
        self._streak = torch.zeros_like(self.exits)

    def is_here(self, units: Tensor) -> Tensor:
        return self.exits[units] == 0

    def record(self, units: Tensor, logits: Tensor, layer: int) -> None:
        self.logits[units] = logits.to(self.logits.dtype)
        self.exits[units] = layer

    def agreements(self, units: Tensor, predicted: Tensor) -> Tensor:
        """How many tests in a row repeated the one before, this one included (PABEE)."""
        agrees = predicted == self._last[units]
        self._streak[units] = torch.where(agrees, self._streak[units] + 1, 0)
        self._last[units] = predicted
        return self._streak[units]


class EarlyExit(Backbone):
    """`copy` freezes what left, so that others attend to its last state; `oracle` goes on updating it (as TSA)."""

    exit_norms: Sequence[nn.LayerNorm]
    exit_classifiers: Sequence[nn.Linear]
    fixed: Tensor | None  # layers run by unit, decisions that were drawn instead of learned

    def __init__(self, config: ModelConfig, options: Options) -> None:
        super().__init__(config)
        if options.min_layer > config.n_layers:
            raise EffauditError(f"early_exit: min_layer {options.min_layer} is beyond the last of {config.n_layers}")
        if options.loss == "last+frozen" and config.n_layers == 1:
            raise EffauditError("early_exit: one layer has no exits to train once it is frozen", "choose another loss")
        self.options = options
        fixed = exit_layers(config, options.keep_rate).clamp(min=options.min_layer) if options.is_random else None
        self.register_buffer("fixed", fixed, persistent=False)
        inner = range(config.n_layers - 1)
        self.exit_norms = nn.ModuleList(nn.LayerNorm(config.d_model) for _ in inner)  # type: ignore[assignment]
        if config.n_classes is not None:
            classifiers = (nn.Linear(config.d_model, config.n_classes) for _ in inner)
            self.exit_classifiers = nn.ModuleList(classifiers)  # type: ignore[assignment]
        else:
            self.exit_heads = nn.ModuleList(TiedHead() for _ in inner)

    def exit_head(self, layer: int, h: Tensor, mask: Tensor | None, is_frozen: bool = False) -> Tensor:
        """Logits after block `layer` (0-based): of tokens (N, D), or of examples (N, T, D) pooled over `mask`.

        `is_frozen` keeps the tied embedding, which is the backbone's too, out of the gradient.
        """
        is_last = layer == len(self.blocks) - 1
        normed = (self.norm if is_last else self.exit_norms[layer])(h)
        logits: Tensor
        if mask is None:
            tied_head = self.tied_head if is_last else self.exit_heads[layer]
            logits = tied_head(normed, self.embed.weight.detach() if is_frozen else self.embed.weight)
        else:
            classifier = self.classifier if is_last else self.exit_classifiers[layer]
            logits = classifier(masked_mean(normed, mask))
        return logits

    def forward(self, batch: Batch, routing: Routing | None = None) -> Output:
        given = self._drawn(batch) if routing is None or routing.exits is None else routing.exits.flatten()
        run = self._tokens if self.is_causal else self._examples
        ledger = run(batch, given)
        shape = batch.tokens.shape if self.is_causal else batch.tokens.shape[:1]
        path = ("oracle" if self.options.state == "oracle" else self.options.execution,) * len(self.blocks)
        return Output(ledger.logits.unflatten(0, shape), Routing(path=path, exits=ledger.exits.view(shape)))

    def _drawn(self, batch: Batch) -> Tensor | None:
        """The exits of `random_fixed`: by position in a text to be continued, by example in one to be classified."""
        if self.fixed is None:
            return None
        if self.is_causal:
            positions = torch.arange(batch.tokens.shape[1], device=self.fixed.device) % len(self.fixed)
            return self.fixed[positions].expand_as(batch.tokens).flatten()
        return self.fixed[batch.index % len(self.fixed)]

    def _examples(self, batch: Batch, given: Tensor | None) -> Ledger:
        h, visible, mask = self.embedded(batch), self.visibility(batch), batch.mask
        units = torch.arange(batch.n_examples, device=h.device)
        ledger = Ledger(batch.n_examples, self.classifier.out_features, h)
        for layer, block in enumerate(self.blocks):
            before, h = h, block(h, visible)
            leaves = self._settle(ledger, units, layer, before, h, mask, given)
            if leaves is None or not self.options.is_skipping_tokens:
                continue
            stay = (~leaves).nonzero().squeeze(1)
            if len(stay) == 0:
                break
            if len(stay) < len(units):
                units, h, mask, visible = units[stay], h[stay], mask[stay], visible.select(stay)
        return ledger

    def _tokens(self, batch: Batch, given: Tensor | None) -> Ledger:
        h, visible = self.embedded(batch), self.visibility(batch)
        is_real = batch.mask.flatten()
        ledger = Ledger(is_real.numel(), self.config.vocab_size, h)
        everyone = torch.arange(is_real.numel(), device=h.device)
        for layer, block in enumerate(self.blocks):
            here = ledger.is_here(everyone)
            before = h
            if self.options.state == "oracle":
                h = block(h, visible)
            elif self.options.execution == "masked":
                h = torch.where(here.view_as(batch.mask)[..., None], block(h, visible), h)
            else:
                h = block(h, visible, active=here.view_as(batch.mask))
            units = here.nonzero().squeeze(1) if self.options.is_skipping_tokens else everyone
            prior, states = before.flatten(0, 1)[units], h.flatten(0, 1)[units]  # (N, D)
            self._settle(ledger, units, layer, prior, states, None, given, may_leave=is_real[units])
        return ledger

    def _settle(
        self,
        ledger: Ledger,
        units: Tensor,
        layer: int,
        before: Tensor,
        after: Tensor,
        mask: Tensor | None,
        given: Tensor | None,
        may_leave: Tensor | None = None,
    ) -> Tensor | None:
        """Tests the units after block `layer` and records those that leave; None where there is no test.

        Padding may not leave before the end, so that no saving comes from it.
        """
        is_last = layer == len(self.blocks) - 1
        if layer + 1 < self.options.min_layer and not is_last:
            return None
        logits = None if self.options.is_blind else self.exit_head(layer, after, mask)
        if given is None:
            leaves = self._is_confident(ledger, units, logits, before, after, mask)
        else:
            leaves = given[units] == layer + 1
        if may_leave is not None:
            leaves = leaves & may_leave
        leaves = (leaves | is_last) & ledger.is_here(units)
        if logits is None:
            left = self.exit_head(layer, after[leaves], None if mask is None else mask[leaves])
        else:
            left = logits[leaves]
        ledger.record(units[leaves], left, layer + 1)
        return leaves

    def _is_confident(
        self,
        ledger: Ledger,
        units: Tensor,
        logits: Tensor | None,
        before: Tensor,
        after: Tensor,
        mask: Tensor | None,
    ) -> Tensor:
        threshold = self.options.threshold
        if logits is None:
            if mask is not None:
                before, after = masked_mean(before, mask), masked_mean(after, mask)
            return F.cosine_similarity(before, after, dim=-1) > threshold
        if self.options.criterion == "patience":
            return ledger.agreements(units, logits.argmax(dim=-1)) >= threshold
        log_p = F.log_softmax(logits, dim=-1)
        if self.options.criterion == "entropy":
            return -(log_p.exp() * log_p).sum(dim=-1) < threshold
        best = log_p.exp().topk(2, dim=-1).values
        if self.options.criterion == "margin":
            return best[:, 0] - best[:, 1] > threshold
        return best[:, 0] > threshold

    def loss(self, batch: Batch, progress: float) -> Tensor:
        """Weighted mean of the cross-entropies of all exits; `last+frozen` in two stages (DeeBERT)."""
        is_staged = self.options.loss == "last+frozen"
        is_frozen = is_staged and progress >= FROZEN_FROM
        visible, n_layers = self.visibility(batch), len(self.blocks)
        losses = []
        with torch.set_grad_enabled(torch.is_grad_enabled() and not is_frozen):
            states = [self.embedded(batch)]
            for block in self.blocks:
                states.append(block(states[-1], visible))
        if is_staged and not is_frozen:
            return task_loss(self.head(states[-1], batch.mask), batch)
        for layer in range(n_layers - 1 if is_frozen else n_layers):
            mask = None if self.is_causal else batch.mask
            losses.append(task_loss(self.exit_head(layer, states[layer + 1], mask, is_frozen), batch))
        if self.options.loss == "depth-weighted":
            depths = range(1, n_layers + 1)
            return sum((d * loss for d, loss in zip(depths, losses, strict=True)), losses[0] * 0) / sum(depths)
        return torch.stack(losses).mean()


def build(config: ModelConfig) -> EarlyExit:
    return EarlyExit(config, validated(Options, config.options, "options of `early_exit`"))


def flops(config: ModelConfig, batch: Batch, routing: Routing, execution: Execution) -> Tensor:
    """Exit tests count except in `dense`; a token that left still costs its keys and values in each later layer."""
    options = validated(Options, config.options, "options of `early_exit`")
    costs = Costs(config, batch.tokens.shape[1])
    if execution == "dense":
        return per_example(batch, costs.dense)
    exits = routing.exits
    assert exits is not None
    is_dense = execution == "masked" or (execution == "skip" and options.state == "oracle")
    n_run = torch.full_like(exits, config.n_layers) if is_dense else exits
    n_heads = torch.ones_like(exits) if options.is_blind else n_run - options.min_layer + 1
    if exits.dim() == 1:
        return n_run * costs.block + n_heads * costs.one_head
    keys = config.n_layers * costs.n_tokens * costs.key_value
    return keys + (n_run * (costs.query + costs.ffn) + n_heads * costs.one_head).sum(dim=1)
