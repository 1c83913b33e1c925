"""Early exit: a test after each block decides who leaves, per example (classifier) or per token (language model)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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
from effaudit.variants._layers import Block
from effaudit.variants._linear import is_by_rows
from effaudit.variants._norm import Norm
from effaudit.variants._policy import Trial, flags, random_share
from effaudit.variants._visibility import Rows, Visibility, true_places
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
        return self.execution != "masked" and self.state == "copy"

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

    def record(self, units: Tensor, logits: Tensor, layer: int) -> None:
        self.logits.index_copy_(0, units, logits.to(self.logits.dtype))
        self.exits.index_fill_(0, units, layer)

    def agreements(self, units: Tensor, predicted: Tensor) -> Tensor:
        """How many tests in a row repeated the one before, this one included (PABEE)."""
        agrees = predicted == self._last[units]
        self._streak[units] = torch.where(agrees, self._streak[units] + 1, 0)
        self._last[units] = predicted
        return self._streak[units]


@dataclass(frozen=True)
class Tested:
    """The units that a test after a block is about: their places in the ledger and their states."""

    units: Tensor  # (N,)
    before: Tensor | None  # (N, …, D), where the criterion compares it with `after`
    states: Tensor  # (N, …, D), or (B, T, D) of which `rows` are meant
    mask: Tensor | None = None  # (N, T) of examples that are padded
    rows: Rows | None = None
    may_leave: Tensor | None = None  # (N,) bool

    @cached_property
    def after(self) -> Tensor:
        """(N, …, D)"""
        return self.states if self.rows is None else self.rows.take(self.states)

    def pooled(self, states: Tensor) -> Tensor:
        return states if states.dim() == 2 else masked_mean(states, self.mask)


class EarlyExit(Backbone):
    """`copy` freezes what left, so that others attend to its last state; `oracle` goes on updating it (as TSA)."""

    exit_norms: Sequence[Norm]
    exit_classifiers: Sequence[nn.Linear]
    fixed: Tensor | None  # layers run by unit, decisions that were drawn instead of learned

    def __init__(self, config: ModelConfig, options: Options) -> None:
        super().__init__(config)
        if options.min_layer > config.n_layers:
            raise EffauditError(f"early_exit: min_layer {options.min_layer} is beyond the last of {config.n_layers}")
        if options.loss == "last+frozen" and config.n_layers == 1:
            raise EffauditError("early_exit: one layer has no exits to train once it is frozen", "choose another loss")
        self.options, self.policy = options, options.policy()
        fixed = exit_layers(config, options.keep_rate).clamp(min=options.min_layer) if options.is_random else None
        self.register_buffer("fixed", fixed, persistent=False)
        inner = range(config.n_layers - 1)
        self.exit_norms = nn.ModuleList(Norm(config.d_model) for _ in inner)  # type: ignore[assignment]
        if config.n_classes is not None:
            classifiers = (nn.Linear(config.d_model, config.n_classes) for _ in inner)
            self.exit_classifiers = nn.ModuleList(classifiers)  # type: ignore[assignment]
        else:
            self.exit_heads = nn.ModuleList(TiedHead() for _ in inner)

    def exit_head(
        self, layer: int, h: Tensor, mask: Tensor | None, is_frozen: bool = False, rows: Rows | None = None
    ) -> Tensor:
        """Logits after block `layer` (0-based): of tokens (…, D) or `rows` of them, or of examples (N, T, D) pooled
        over `mask`.

        `is_frozen` keeps the tied embedding, which is the backbone's too, out of the gradient.
        """
        is_last = layer == len(self.blocks) - 1
        norm = self.norm if is_last else self.exit_norms[layer]
        if self.is_causal:
            tied_head = self.tied_head if is_last else self.exit_heads[layer]
            weight = self.embed.weight.detach() if is_frozen else self.embed.weight
            is_gathered = rows is not None or h.dim() == 2
            by_steps = not (is_gathered and is_by_rows(h))
            logits: Tensor = tied_head(norm(h, rows), weight) if by_steps else tied_head(h, weight, norm, rows)
            return logits
        classifier = self.classifier if is_last else self.exit_classifiers[layer]
        answer: Tensor = classifier(masked_mean(norm(h), mask))
        return answer

    def one_pass(self, batch: Batch, routing: Routing | None) -> Output:
        given = self._drawn(batch) if routing is None or routing.exits is None else routing.exits.flatten()
        masked: list[bool] = []
        ledger = self._tokens(batch, given, masked) if self.is_causal else self._examples(batch, given)
        shape = batch.tokens.shape if self.is_causal else batch.tokens.shape[:1]
        path = ("oracle" if self.options.state == "oracle" else self.options.execution,) * len(self.blocks)
        chosen = None if self.policy is None or not masked else flags(batch, masked)
        decided = Routing(path=path, exits=ledger.exits.view(shape), masked=chosen)
        return Output(ledger.logits.unflatten(0, shape), decided)

    def _drawn(self, batch: Batch) -> Tensor | None:
        """The exits of `random_fixed`: by position in a text to be continued, by example in one to be classified."""
        if self.fixed is None:
            return None
        if self.is_causal:
            positions = torch.arange(batch.tokens.shape[1], device=self.fixed.device) % len(self.fixed)
            return self.fixed[positions].expand_as(batch.tokens).flatten()
        return self.fixed[batch.index % len(self.fixed)]

    def _examples(self, batch: Batch, given: Tensor | None) -> Ledger:
        h, visible, mask = self.embedded(batch), self.visibility(batch), batch.padding_mask
        units = torch.arange(batch.n_examples, device=h.device)
        ledger = Ledger(batch.n_examples, self.classifier.out_features, h)
        for layer, block in enumerate(self.blocks):
            before, h = self._kept(h), block(h, visible)
            tested = Tested(units, before, h, mask)
            leaves, logits = self._test(ledger, tested, layer, given)
            if leaves is None:
                continue
            n_left = int(leaves.sum())  # the one transfer to the host
            self._record(ledger, tested, layer, true_places(leaves, n_left), logits)
            if not self.options.is_skipping_tokens or n_left == 0:
                continue
            if n_left == len(units):
                break
            stay = true_places(~leaves, len(units) - n_left)
            units, h, visible = units[stay], h.index_select(0, stay), visible.select(stay)
            mask = None if mask is None else mask[stay]
        return ledger

    def _tokens(self, batch: Batch, given: Tensor | None, masked: list[bool]) -> Ledger:
        """`masked` gets a flag a layer: whether `auto` had it compute the tokens that left too."""
        h, visible, is_real = self.embedded(batch), self.visibility(batch), batch.mask.flatten()
        rows, here = Rows.whole(batch.tokens), torch.ones_like(is_real)
        ledger, n_here = Ledger(len(is_real), self.config.vocab_size, h), len(is_real)
        for layer, block in enumerate(self.blocks):
            before = self._kept(h, rows)
            h, is_masked = self._through(block, h, visible, rows, here)
            masked.append(is_masked)
            may_leave = None if batch.padding_mask is None else is_real[rows.index]
            tested = Tested(rows.index, before, h, rows=rows, may_leave=may_leave)
            leaves, logits = self._test(ledger, tested, layer, given)
            if leaves is None:
                continue
            here = here & ~leaves if len(rows) == len(here) else here.index_copy(0, rows.index, ~leaves)
            stay = Rows.of(here.view_as(batch.mask))  # the one transfer to the host
            self._record(ledger, tested, layer, true_places(leaves, n_here - len(stay)), logits)
            n_here = len(stay)
            del tested, logits  # the next block needs the room
            if self.options.is_skipping_tokens:
                rows = stay
        return ledger

    def _through(self, block: Block, h: Tensor, visible: Visibility, rows: Rows, here: Tensor) -> tuple[Tensor, bool]:
        """The states after the block, and whether `auto` had it compute those that left too."""
        if self.options.state == "oracle":
            return block(h, visible), False
        if self.options.execution == "masked":
            return _masked(block, h, visible, here), False
        share = len(rows) / len(here)
        if self.policy is not None and share < 1 and not self.policy.is_skipping(len(here), share):
            return _masked(block, h, visible, here), True
        return block(h, visible, rows=rows), False

    def trials(self, batch: Batch) -> list[Trial]:
        """One block in each way, on random exits: what `auto` learns its costs from; examples that left cost nothing
        in either, so that skipping them always pays."""
        if not self.is_causal:
            return []
        h, visible, block = self.embedded(batch), self.visibility(batch), self.blocks[-1]

        def trial(share: float, is_masked: bool = False) -> Trial:
            here = random_share(batch.mask, share)
            if is_masked:
                return Trial(lambda: _masked(block, h, visible, here), is_masked=True)
            return Trial(lambda: block(h, visible, rows=Rows.of(here)), share)

        return [trial(0.5, is_masked=True), trial(0.25), trial(0.75)]

    def _kept(self, h: Tensor, rows: Rows | None = None) -> Tensor | None:
        """The states before a block, which overwrites them, where the criterion compares the two."""
        if self.options.criterion != "saturation":
            return None
        return h.clone() if rows is None else rows.take(h).clone()

    def _test(
        self, ledger: Ledger, tested: Tested, layer: int, given: Tensor | None
    ) -> tuple[Tensor, Tensor | None] | tuple[None, None]:
        """Which units leave after block `layer`, and the logits that said so; None, None where there is no test.

        Padding may not leave before the end, so that no saving comes from it.
        """
        is_last = layer == len(self.blocks) - 1
        if layer + 1 < self.options.min_layer and not is_last:
            return None, None
        logits = None if self.options.is_blind else self.exit_head(layer, tested.states, tested.mask, rows=tested.rows)
        is_here = None if self.options.is_skipping_tokens else ledger.exits[tested.units] == 0  # None: all of them
        if is_last:
            return torch.ones_like(tested.units, dtype=torch.bool) if is_here is None else is_here, logits
        # Decisions given from outside replace the test's, which runs all the same; drawn ones are no test's.
        leaves = None if self.options.is_random else self._is_confident(ledger, tested, logits)
        if given is not None:
            leaves = given.index_select(0, tested.units) == layer + 1
        assert leaves is not None
        if tested.may_leave is not None:
            leaves = leaves & tested.may_leave
        return leaves if is_here is None else leaves & is_here, logits

    def _record(self, ledger: Ledger, tested: Tested, layer: int, left: Tensor, logits: Tensor | None) -> None:
        if not len(left):
            return
        if logits is None:
            mask = None if tested.mask is None else tested.mask[left]
            answers = self.exit_head(layer, tested.after[left], mask)
        else:
            answers = logits if len(left) == len(logits) else logits.index_select(0, left)
        ledger.record(tested.units.index_select(0, left), answers, layer + 1)

    def _is_confident(self, ledger: Ledger, tested: Tested, logits: Tensor | None) -> Tensor:
        threshold = self.options.threshold
        if logits is None:
            assert tested.before is not None
            before, after = tested.pooled(tested.before), tested.pooled(tested.after)
            return F.cosine_similarity(before, after, dim=-1) > threshold
        if self.options.criterion == "patience":
            return ledger.agreements(tested.units, logits.argmax(dim=-1)) >= threshold
        log_p = F.log_softmax(logits, dim=-1)
        if self.options.criterion == "entropy":
            return -(log_p.exp() * log_p).sum(dim=-1) < threshold
        if self.options.criterion == "maxprob":
            return log_p.amax(dim=-1).exp() > threshold
        best = log_p.topk(2, dim=-1).values.exp()
        return best[:, 0] - best[:, 1] > threshold

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
            return task_loss(self.head(states[-1], batch.padding_mask), batch)
        for layer in range(n_layers - 1 if is_frozen else n_layers):
            losses.append(task_loss(self.exit_head(layer, states[layer + 1], batch.padding_mask, is_frozen), batch))
        if self.options.loss == "depth-weighted":
            depths = range(1, n_layers + 1)
            return sum((d * loss for d, loss in zip(depths, losses, strict=True)), losses[0] * 0) / sum(depths)
        return torch.stack(losses).mean()


def _masked(block: Block, h: Tensor, visible: Visibility, here: Tensor) -> Tensor:
    """`h` (B, T, D) with the block's changes where `here`, flattened or not, says so."""
    changed: Tensor = block(h, visible, here.view(h.shape[:2]).to(h.dtype))
    return changed


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
    is_dense = execution == "masked" or (execution != "best" and options.state == "oracle")
    n_run = torch.full_like(exits, config.n_layers) if is_dense else exits
    n_heads = torch.ones_like(exits) if options.is_blind else n_run - options.min_layer + 1
    if exits.dim() == 1:
        return n_run * costs.block + n_heads * costs.one_head
    if execution == "auto" and routing.masked is not None and not is_dense:
        layers = torch.arange(config.n_layers, device=exits.device)
        n_run = exits + (routing.masked[:, None] & (layers >= exits[..., None])).sum(dim=2)
    keys = config.n_layers * costs.n_tokens * costs.key_value
    return keys + (n_run * (costs.query + costs.ffn) + n_heads * costs.one_head).sum(dim=1)
