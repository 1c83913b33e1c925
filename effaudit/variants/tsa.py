"""Token-Selective Attention (arXiv 2605.05222): a router before each block but the first gates every token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from effaudit.kernels import products
from effaudit.profile_spec import ModelConfig, Real, validated
from effaudit.variants._blocks import Backbone, Costs, per_example, task_loss
from effaudit.variants._fixed_routing import RoutedOptions, kept_positions
from effaudit.variants._knobs import Knob, Knobs
from effaudit.variants._layers import Block
from effaudit.variants._linear import ActivatedLinear, is_inference
from effaudit.variants._policy import Trial, flags, random_share
from effaudit.variants._visibility import Rows, Visibility
from effaudit.workload import Batch, Execution, Output, Routing

TASKS = ("classification", "causal_lm")
KNOBS: Knobs = {"threshold": lambda config: Knob(0.0, 1.0)}
GATES = ("routers.",)
SOFT = {"mode": "soft"}

# Shares of an annealed training: first the soft gate, then its temperature falls, last the hard gate runs forward
# and the soft one backward. Temperature alone does not close the gap: logits shrink with it, gates stay fractional.
ANNEAL_START, ANNEAL_STOP = 0.2, 0.5
HARD_TEMPERATURE = 1e-6  # of a gate that training ran hard: p is 0 or 1, so that what is claimed is what is skipped


class Options(RoutedOptions):
    """`lambda` and `router_bias` act in training only, mode at inference only; gate and threshold at inference and
    once an annealed training has hardened its gates."""

    mode: Literal["soft", "ffn", "ffn+query"] = "ffn+query"
    gate: Literal["scaled", "binary"] = "scaled"
    threshold: Annotated[Real, Field(ge=0, le=1)] = 0.5  # a token is active iff p < threshold
    # Room of a gated block, as a share of an example's tokens: those of the least gates beyond it are halted too.
    # Without padding all shapes are known beforehand then, and the host waits for no device.
    capacity: Annotated[Real, Field(gt=0, le=1)] | None = None
    router_bias: Real = -1.0
    lambda_: Annotated[Real, Field(ge=0, alias="lambda")] = 0.001
    anneal_to: Annotated[Real, Field(gt=0, le=1)] = 1.0  # final gate temperature; 1 is the published gate

    @property
    def is_skipping_tokens(self) -> bool:
        return self.execution != "masked" and self.mode != "soft"

    def places(self, batch: Batch) -> int | None:
        """Tokens of each example that a gated block runs, some in vain; None for those alone that the rule keeps."""
        if self.capacity is None or batch.is_padded:  # with padding, what is left out would be padding
            return None
        return math.ceil(round(self.capacity * batch.tokens.shape[1], 6))

    @property
    def untrained_use(self) -> str:
        is_hardened = self.anneal_to < 1
        return "trained with hardened gates, run with soft ones" if is_hardened and self.mode == "soft" else ""


class Router(nn.Module):
    """The logit of halting each token, from the raw residual stream (TSA paper §2.2)."""

    def __init__(self, d_model: int, bias: float) -> None:
        super().__init__()
        hidden = router_width(d_model)
        self.hidden = ActivatedLinear(d_model, hidden, "relu")
        self.halt = nn.Linear(hidden, 1)
        nn.init.constant_(self.halt.bias, bias)

    def forward(self, h: Tensor) -> Tensor:
        if is_inference(self, h) and products.is_usable(h):
            layers = (self.hidden.weight, self.hidden.bias, self.halt.weight, self.halt.bias)
            return products.chain(h.flatten(0, 1), layers, "relu").view(h.shape[:2])
        logit: Tensor = self.halt(self.hidden(h))
        return logit.squeeze(-1)  # (B, T)


def router_width(d_model: int) -> int:
    return max(d_model // 4, 16)


class TokenSelective(Backbone):
    """Halted tokens keep their state; padding is never halted, so that no saving comes from it."""

    temperature: Tensor
    routers: Sequence[Router]
    fixed: Tensor | None  # (T, L) bool, decisions that were drawn instead of learned

    def __init__(self, config: ModelConfig, options: Options) -> None:
        super().__init__(config)
        self.options, self.policy = options, options.policy()
        routers = (Router(config.d_model, options.router_bias) for _ in range(config.n_layers - 1))
        self.routers = nn.ModuleList(routers)  # type: ignore[assignment]
        self.register_buffer("temperature", torch.ones(()))
        fixed = kept_positions(config, options.keep_rate) if options.is_random else None
        self.register_buffer("fixed", fixed, persistent=False)
        self._is_hardened = False  # whether training runs the hard gate forward

    def one_pass(self, batch: Batch, routing: Routing | None) -> Output:
        visible = self.visibility(batch)
        h = self.blocks[0](self.embedded(batch), visible)
        everyone = torch.ones_like(batch.mask)
        tokens, gates, masked = [everyone], [everyone.to(h.dtype)], [False]
        for layer, (router, block) in enumerate(zip(self.routers, self.blocks[1:], strict=True), start=1):
            if self.fixed is None:
                gate = torch.sigmoid(-router(h) / self.temperature)  # (B, T), 1 - p
                active = gate > 1 - self.options.threshold
            else:
                active = self.fixed[: batch.tokens.shape[1], layer].expand_as(batch.mask)
                gate = active.to(h.dtype)
            if routing is not None and routing.tokens is not None:
                active = routing.tokens[:, :, layer]
                gate = torch.ones_like(gate) if routing.gate is None else routing.gate[:, :, layer]
            n_places = self.options.places(batch)
            active = self._with_room(active, gate, batch.mask, n_places)
            if batch.is_padded:
                active = active | ~batch.mask
            h, is_masked = self._gated(block, h, visible, active, gate, n_places)
            tokens.append(active)
            gates.append(gate)
            masked.append(is_masked)
        path = ("full", *[self.options.mode if self._is_hard else "soft"] * len(self.routers))
        soft = torch.stack(gates, dim=-1) if self.fixed is None else None
        chosen = None if self.policy is None else flags(batch, masked)
        decided = Routing(path=path, tokens=torch.stack(tokens, dim=-1), gate=soft, masked=chosen)
        return Output(self.head(h, batch.padding_mask), decided)

    @property
    def _is_hard(self) -> bool:
        return self.options.mode != "soft" and not self.training

    def _with_room(self, active: Tensor, gate: Tensor, real: Tensor, n_places: int | None) -> Tensor:
        """Those of `active` that there is room for, by falling gate."""
        capacity = self.options.capacity
        if capacity is None or not self._is_hard:
            return active
        order = gate.masked_fill(~(active & real), -torch.inf).argsort(dim=1, descending=True, stable=True)
        places = order.argsort(dim=1)
        if n_places is not None:
            return active & (places < n_places)
        return active & (places < (capacity * real.sum(dim=1, keepdim=True)).round(decimals=6).ceil())

    def _gated(
        self, block: Block, h: Tensor, visible: Visibility, active: Tensor, gate: Tensor, n_places: int | None
    ) -> tuple[Tensor, bool]:
        """The states after the block, and whether `auto` had it compute everything."""
        if not self._is_hard and not (self.training and self._is_hardened):
            return block(h, visible, gate), False
        scale = gate if self.options.gate == "scaled" else None
        if self.training:
            hard = active.to(h.dtype) if scale is None else active * scale
            return block(h, visible, gate + (hard - gate).detach()), False
        if self.options.execution == "masked":
            return _masked(block, h, visible, active, scale), False
        if n_places is None:
            rows = Rows.of(active)
        else:
            rows = Rows.within(active, n_places)
            scale = active.to(h.dtype) if scale is None else active * scale
        share = len(rows) / active.numel()
        if self.policy is not None and share < 1 and not self.policy.is_skipping(active.numel(), share):
            return _masked(block, h, visible, active, scale), True
        return block(h, visible, scale, rows=rows, is_attention_kept=self.options.mode == "ffn"), False

    def trials(self, batch: Batch) -> list[Trial]:
        """One block in each way, on random decisions: what `auto` learns its costs from."""
        h, visible, block = self.embedded(batch), self.visibility(batch), self.blocks[-1]
        scale = torch.ones_like(batch.mask, dtype=h.dtype) if self.options.gate == "scaled" else None
        is_attention_kept = self.options.mode == "ffn"

        def trial(share: float, is_masked: bool = False) -> Trial:
            active = random_share(batch.mask, share)
            if is_masked:
                return Trial(lambda: _masked(block, h, visible, active, scale), is_masked=True)
            return Trial(
                lambda: block(h, visible, scale, rows=Rows.of(active), is_attention_kept=is_attention_kept), share
            )

        return [trial(0.5, is_masked=True), trial(0.25), trial(0.75)]

    def finish(self) -> None:
        """Ends the annealing: a binary gate ran hard at the end of training, its soft twin served gradients alone."""
        if self.options.anneal_to < 1 and self.options.gate == "binary":
            self.temperature.fill_(HARD_TEMPERATURE)

    def loss(self, batch: Batch, progress: float) -> Tensor:
        """Cross-entropy + lambda * mean over routers and real tokens of (1 - p)."""
        ramp = min(max((progress - ANNEAL_START) / (ANNEAL_STOP - ANNEAL_START), 0.0), 1.0)
        self.temperature.fill_(self.options.anneal_to**ramp)
        self._is_hardened = ramp == 1 and self.options.anneal_to < 1
        output = self(batch)
        if output.routing.gate is None or not self.routers:
            return task_loss(output.logits, batch)
        kept = output.routing.gate[..., 1:].mean(dim=-1)[batch.mask].mean()
        return task_loss(output.logits, batch) + self.options.lambda_ * kept


def _masked(block: Block, h: Tensor, visible: Visibility, active: Tensor, scale: Tensor | None) -> Tensor:
    changed: Tensor = block(h, visible, active.to(h.dtype) if scale is None else active * scale)
    return changed


def build(config: ModelConfig) -> TokenSelective:
    return TokenSelective(config, validated(Options, config.options, "options of `tsa`"))


def flops(config: ModelConfig, batch: Batch, routing: Routing, execution: Execution) -> Tensor:
    """Routers count except in `dense`; a halted token still costs its keys and values, in `ffn` its attention too."""
    costs = Costs(config, batch.tokens.shape[1])
    dense = per_example(batch, costs.dense)
    if execution == "dense":
        return dense
    hidden = router_width(config.d_model)
    options = validated(Options, config.options, "options of `tsa`")
    if not options.is_random:
        dense += (config.n_layers - 1) * costs.n_tokens * 2 * (config.d_model * hidden + hidden)
    if execution == "masked" or (execution != "best" and options.mode == "soft"):
        return dense
    assert routing.tokens is not None
    runs = routing.tokens
    if execution == "auto" and routing.masked is not None:
        runs = runs | routing.masked[:, None]
    n_halted = (~runs).sum(dim=(1, 2))  # (B,)
    n_places = options.places(batch)
    if n_places is not None and execution != "best":
        is_skipping = torch.ones_like(runs[:, 0, 1:]) if routing.masked is None else ~routing.masked[:, 1:]
        n_halted = (costs.n_tokens - n_places) * is_skipping.sum(dim=1)
    spared = costs.ffn if execution != "best" and options.mode == "ffn" else costs.ffn + costs.query
    return dense - n_halted * spared
