"""BudgetFormer (arXiv 2604.22583): each input chooses how many heads each layer runs, and which.

The published description leaves gaps (pooling, noise, schedules, rounding of k); each is an option.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from effaudit.errors import EffauditError
from effaudit.profile_spec import ModelConfig, Real, validated
from effaudit.variants._blocks import Backbone, Costs, masked_mean, per_example, task_loss
from effaudit.variants._fixed_routing import RoutedOptions, kept_heads
from effaudit.variants._head_sets import HeadGroup, head_groups
from effaudit.variants._knobs import Knob, Knobs
from effaudit.variants._policy import Trial, flags
from effaudit.variants._visibility import Visibility
from effaudit.workload import Batch, Execution, Output, Routing

TASKS = ("classification",)
KNOBS: Knobs = {"budget_offset": lambda config: Knob(-1.0, 1.0)}
GATES = ("budgets.",)
SOFT = {"k_rule": "all", "head_gate": "soft"}

Unit = Annotated[Real, Field(ge=0, le=1)]
NonNegative = Annotated[Real, Field(ge=0)]


class Options(RoutedOptions):
    """`k_rule`, `head_gate` and `budget_offset` act at inference; the losses, noise and temperature in training only.

    `all` runs every head, weighed by its gate, as training does: nothing is skipped.
    """

    k_rule: Literal["floor", "ceil", "round", "all"] = "floor"
    head_gate: Literal["soft", "binary"] = "soft"
    budget_offset: Annotated[Real, Field(ge=-1, le=1)] = 0.0  # added to every budget s
    budget_scope: Literal["layer", "model"] = "layer"  # pool each layer's normed input, or the embeddings once
    budget_loss: Literal["band", "target"] = "band"
    s_min: Unit = 0.1
    s_max: Unit = 0.9
    s_target: Unit = 0.5
    lambda_budget: NonNegative = 1.0
    lambda_entropy: NonNegative = 0.01  # rewards entropy at first, penalises it at the end
    noise: NonNegative = 1.0  # initial deviation of the Gaussian noise on scores, falls linearly to 0
    tau_start: Annotated[Real, Field(gt=0)] = 2.0
    tau_end: Annotated[Real, Field(gt=0)] = 0.5


class BudgetNet(nn.Module):
    """Budget s (two layers, sigmoid) and head scores u (one linear layer) of a pooled input."""

    def __init__(self, d_model: int, n_scores: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(d_model, budget_width(d_model))
        self.budget = nn.Linear(budget_width(d_model), 1)
        self.scores = nn.Linear(d_model, n_scores)
        nn.init.zeros_(self.budget.bias)

    def forward(self, pooled: Tensor) -> tuple[Tensor, Tensor]:
        """`pooled` (B, D) to s (B,) and u (B, n_scores)."""
        s = torch.sigmoid(self.budget(torch.relu(self.hidden(pooled))))
        return s.squeeze(-1), self.scores(pooled)


def budget_width(d_model: int) -> int:
    return max(d_model // 4, 1)


@dataclass(frozen=True)
class Decision:
    """What one layer decided: budget s (B,), relevance p, heads run and their gates (B, H)."""

    s: Tensor
    p: Tensor
    runs: Tensor
    gate: Tensor
    is_masked: bool = False  # `auto` had every head computed


class BudgetFormer(Backbone):
    """Training weighs all heads softly; inference runs the k best-scored ones, k >= 1."""

    temperature: Tensor
    budgets: Sequence[BudgetNet]
    fixed: Tensor | None  # (L, H) bool, heads that were drawn instead of chosen by input

    def __init__(self, config: ModelConfig, options: Options) -> None:
        super().__init__(config)
        self.options, self.policy = options, options.policy()
        is_shared = options.budget_scope == "model"
        n_scores = config.n_heads * (config.n_layers if is_shared else 1)
        nets = (BudgetNet(config.d_model, n_scores) for _ in range(1 if is_shared else config.n_layers))
        self.budgets = nn.ModuleList(nets)  # type: ignore[assignment]
        self.register_buffer("temperature", torch.tensor(options.tau_end))
        fixed = kept_heads(config, options.keep_rate) if options.is_random else None
        self.register_buffer("fixed", fixed, persistent=False)
        self._noise = 0.0

    def one_pass(self, batch: Batch, routing: Routing | None) -> Output:
        return self._run(batch, routing)[0] if self.fixed is None else self._run_fixed(batch, self.fixed)

    def _run_fixed(self, batch: Batch, fixed: Tensor) -> Output:
        """The output under heads that are the same for every input; no budget or score network runs."""
        visible = self.visibility(batch)
        h = self.embedded(batch)
        heads = fixed.expand(batch.n_examples, -1, -1)
        gates, masked = heads.to(h.dtype), []
        for layer, block in enumerate(self.blocks):
            h, is_masked = self._attend(layer, h, block.norm1(h), visible, heads[:, layer], gates[:, layer])
            h = block.feed(h)
            masked.append(is_masked)
        chosen = self._chosen(batch, masked)
        decided = Routing(path=self._path, heads=heads, head_gate=gates, masked=chosen)
        return Output(self.head(h, batch.padding_mask), decided)

    def _chosen(self, batch: Batch, masked: list[bool]) -> Tensor | None:
        return None if self.policy is None else flags(batch, masked)

    def _run(self, batch: Batch, routing: Routing | None) -> tuple[Output, Tensor]:
        """The output, and the heads' relevance p (B, L, H)."""
        visible = self.visibility(batch)
        h = self.embedded(batch)
        shared = self.budgets[0](masked_mean(h, batch.padding_mask)) if self.options.budget_scope == "model" else None
        decisions: list[Decision] = []
        for layer, block in enumerate(self.blocks):
            h, decision = self.attend(layer, h, visible, batch, routing, shared)
            h = block.feed(h)
            decisions.append(decision)

        def stacked(name: str) -> Tensor:
            return torch.stack([getattr(decision, name) for decision in decisions], dim=1)

        decided = Routing(
            path=self._path,
            heads=stacked("runs"),
            budget=stacked("s"),
            head_gate=stacked("gate"),
            masked=self._chosen(batch, [decision.is_masked for decision in decisions]),
        )
        return Output(self.head(h, batch.padding_mask), decided), stacked("p")

    def attend(
        self,
        layer: int,
        h: Tensor,
        visible: Visibility,
        batch: Batch,
        routing: Routing | None = None,
        shared: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Decision]:
        """The attention layer with its budget: `h` (B, T, D) with its outputs, in inference the same tensor.

        `shared` is the budget and the scores of all layers, where one net serves them all.
        """
        normed = self.blocks[layer].norm1(h)
        if shared is None:
            s, scores = self.budgets[layer](masked_mean(normed, batch.padding_mask))
        else:
            s, scores = shared[0], shared[1].unflatten(-1, (len(self.blocks), -1))[:, layer]
        decision = self._decide(s, scores, layer, routing)
        h, is_masked = self._attend(layer, h, normed, visible, decision.runs, decision.gate)
        return h, replace(decision, is_masked=is_masked)

    def _decide(self, s: Tensor, scores: Tensor, layer: int, routing: Routing | None) -> Decision:
        if self.options.budget_offset and not self.training:
            s = (s + self.options.budget_offset).clamp(0, 1)
        if self.training and self._noise > 0:
            scores = scores + self._noise * torch.randn_like(scores)
        p = torch.softmax(scores / self.temperature, dim=-1)  # (B, H)
        gate = (s[:, None] * p.shape[1] * p).clamp(max=1)
        runs = self._top(scores, s)
        if routing is not None and routing.heads is not None:
            runs = routing.heads[:, layer]
            gate = torch.ones_like(gate) if routing.head_gate is None else routing.head_gate[:, layer]
        elif self.options.head_gate == "binary" and not self.training:
            gate = torch.ones_like(gate)
        return Decision(s, p, runs, gate)

    def _attend(
        self, layer: int, h: Tensor, normed: Tensor, visible: Visibility, runs: Tensor, gate: Tensor
    ) -> tuple[Tensor, bool]:
        """`h` with the layer's attention added, and whether `auto` had it compute every head."""
        block, groups = self.blocks[layer], None
        if self.options.execution != "masked" and not self.training:
            groups = head_groups(runs)
        is_masked = groups is not None and self.policy is not None and not self._is_paying(groups, h, runs)
        groups = None if is_masked else groups
        factor = gate if groups is not None or self.training else gate * runs
        return block.attend(h, visible, head_gate=factor, groups=groups, normed=normed), is_masked

    def _is_paying(self, groups: list[HeadGroup], h: Tensor, runs: Tensor) -> bool:
        assert self.policy is not None
        n_sets = sum(len(heads.spans) for group in groups for heads in group.sets)
        share = sum(group.heads.numel() for group in groups) / runs.numel()
        return self.policy.is_skipping(h.shape[0] * h.shape[1], share, n_sets / len(runs))

    def trials(self, batch: Batch) -> list[Trial]:
        """The attention of one block in each way, on random heads: what `auto` learns its costs from."""
        h, visible, block = self.embedded(batch), self.visibility(batch), self.blocks[-1]
        normed, n_heads, n = block.norm1(h), self.config.n_heads, batch.n_examples

        def trial(n_run: int, is_shared: bool) -> Trial:
            order = torch.rand(1 if is_shared else n, n_heads, generator=torch.Generator().manual_seed(n_run))
            runs = (order.argsort(dim=1) < n_run).expand(n, -1).to(h.device)
            gate = runs.to(h.dtype)

            def run() -> Tensor:
                return block.attend(h, visible, head_gate=gate, groups=head_groups(runs), normed=normed)

            return Trial(run, n_run / n_heads, 1 / n if is_shared else 1.0)

        few, many = max(n_heads // 4, 1), max(3 * n_heads // 4, 1)
        gate = torch.ones(n, n_heads, dtype=h.dtype, device=h.device)
        masked = Trial(lambda: block.attend(h, visible, head_gate=gate, normed=normed), is_masked=True)
        return [masked, trial(few, False), trial(many, False), trial(few, True), trial(many, True)]

    @property
    def _path(self) -> tuple[str, ...]:
        return ("soft" if self.training else self.options.execution,) * len(self.blocks)

    def _top(self, scores: Tensor, s: Tensor) -> Tensor:
        """The k best-scored heads as (B, H) bool, ties to the lowest index."""
        n_heads = scores.shape[1]
        # s*H of 3 heads may come out as 2.9999998: a relative slack keeps floor and ceil from tipping over.
        wanted = s.float() * n_heads
        slack = 1e-5
        if self.options.k_rule == "all":
            return torch.ones_like(scores, dtype=torch.bool)
        if self.options.k_rule == "round":
            k = wanted.round()
        else:
            k = (wanted + slack).floor() if self.options.k_rule == "floor" else (wanted - slack).ceil()
        rank = scores.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1)
        return rank < k.clamp(1, n_heads)[:, None]

    def loss(self, batch: Batch, progress: float) -> Tensor:
        """Task + budget + entropy loss, with the noise and temperature of `progress`."""
        o = self.options
        if self.fixed is not None:
            return task_loss(self(batch).logits, batch)
        self._noise = o.noise * (1 - progress)
        self.temperature.fill_(o.tau_end + (o.tau_start - o.tau_end) * math.exp(-5 * progress))
        output, p = self._run(batch, None)
        s = output.routing.budget
        assert s is not None
        if o.budget_loss == "band":
            budget = (torch.relu(o.s_min - s) + torch.relu(s - o.s_max)).mean()
        else:
            budget = (s.mean() - o.s_target) ** 2
        entropy = -(p * p.clamp_min(1e-9).log()).sum(dim=-1).mean() / math.log(max(p.shape[-1], 2))
        schedule = 2 * progress - 1
        return task_loss(output.logits, batch) + o.lambda_budget * budget + o.lambda_entropy * schedule * entropy


def build(config: ModelConfig) -> BudgetFormer:
    if config.task == "causal_lm":
        raise EffauditError(
            "budgetformer cannot model language: its budget pools all tokens, so each would see the future",
            "use tsa or early_exit, or a classification dataset",
        )
    return BudgetFormer(config, validated(Options, config.options, "options of `budgetformer`"))


def flops(config: ModelConfig, batch: Batch, routing: Routing, execution: Execution) -> Tensor:
    """A head not run spares its share of the attention layer; budget and score networks count except in `dense`."""
    costs = Costs(config, batch.tokens.shape[1])
    dense = per_example(batch, costs.dense)
    if execution == "dense":
        return dense
    options = validated(Options, config.options, "options of `budgetformer`")
    d, width = config.d_model, budget_width(config.d_model)
    n_nets = 1 if options.budget_scope == "model" else config.n_layers
    if not options.is_random:
        dense += n_nets * 2 * (d * width + width) + 2 * d * config.n_heads * config.n_layers
    if execution == "masked":
        return dense
    assert routing.heads is not None
    runs = routing.heads
    if execution == "auto" and routing.masked is not None:
        runs = runs | routing.masked[..., None]
    n_left_out = (~runs).sum(dim=(1, 2))  # (B,)
    return dense - n_left_out * (costs.attention // config.n_heads)
