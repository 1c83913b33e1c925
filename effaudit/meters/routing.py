"""What the gates decided: soft and hard active fractions, head budgets, exit layers, over real tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from torch import Tensor

from effaudit.example_table import Spill
from effaudit.meters._text_samples import text_samples
from effaudit.meters._token_classes import Texts, TokenClasses
from effaudit.profile_spec import AuditSpec
from effaudit.record import Better, Findings, LayerRow, Measurement, TextSample, unavailable
from effaudit.workload import Batch, Routing, Workload, real_positions

NO_TOKENS = "this model makes no decision per token"
NO_GATE = "this model has no continuous gate: its decisions are hard from the start"
NO_HEADS = "this model makes no decision per head"
NO_BUDGET = "this model has no continuous head budget"
NO_EXITS = "this model has no exits"


@dataclass
class Means:
    """Per layer: sums of a quantity and of its weights."""

    total: Tensor
    weight: float = 0.0

    def add(self, values: Tensor, weight: float) -> None:
        """`values` (L,) summed over `weight` tokens or examples."""
        self.total += values.cpu().double()
        self.weight += weight

    @property
    def means(self) -> list[float] | None:
        return (self.total / self.weight).tolist() if self.weight else None


@dataclass
class Tally:
    """All that one pass adds up; L means each, and a row an example."""

    n_layers: int
    examples: Spill
    quoted: Callable[[Sequence[int]], tuple[str, ...]] | None = None  # the texts of tokens that records may hold
    gated: tuple[int, ...] | None = None  # layers, from 0, that decide about tokens; None is all but the first
    soft: Means = field(init=False)
    hard: Means = field(init=False)
    budget: Means = field(init=False)
    heads: Means = field(init=False)
    exits: Means = field(init=False)
    ran: Means = field(init=False)
    text_samples: list[TextSample] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)
    head_use: Tensor | None = None  # (L, H) summed over examples

    def __post_init__(self) -> None:
        for name in ("soft", "hard", "ran", "budget", "heads", "exits"):
            setattr(self, name, Means(torch.zeros(self.n_layers, dtype=torch.float64)))

    def add(self, batch: Batch, routing: Routing) -> Tensor | None:
        """Adds a batch; returns what the hard rule keeps."""
        self.gated = routing.gated
        kept = kept_tokens(batch, routing, self.n_layers)
        decided = routing.gate if kept is None else kept
        real = batch.mask if decided is None else real_positions(batch, decided.shape[1])
        n_real = float(real.sum())
        if routing.gate is not None:
            self.soft.add(routing.gate[real].double().sum(dim=0), n_real)
        if kept is not None:
            self.hard.add(kept[real].double().sum(dim=0), n_real)
            ran = kept if routing.masked is None else kept | routing.masked[:, None]
            self.ran.add(ran[real].double().sum(dim=0), n_real)
        if routing.masked is not None:
            self.choices.append(_choices(routing.masked))
        if routing.budget is not None:
            self.budget.add(routing.budget.double().sum(dim=0), batch.n_examples)
        if routing.heads is not None:
            self.heads.add(routing.heads.double().mean(dim=2).sum(dim=0), batch.n_examples)
            used = routing.heads.double().sum(dim=0).cpu()
            self.head_use = used if self.head_use is None else self.head_use + used
        if routing.exits is not None:
            left = routing.exits if routing.exits.dim() == 1 else routing.exits[real]
            self.exits.add(torch.bincount(left, minlength=self.n_layers + 1)[1:], len(left))
        if columns := _columns(batch, routing, kept):
            self.examples.add(batch.index.tolist(), columns)
        if self.quoted is not None and kept is not None and kept.shape[:2] == batch.tokens.shape:
            self.text_samples += text_samples(batch, kept, self.quoted)
        return kept


def _choices(masked: Tensor) -> str:
    """(B, L) bool as a word a pass: consecutive examples with the same choices went through together."""
    words = ["".join("m" if is_masked else "s" for is_masked in row) for row in masked.tolist()]
    return "/".join(word for word, _ in groupby(words))


def kept_tokens(batch: Batch, routing: Routing, n_layers: int) -> Tensor | None:
    """(B, T, L) bool, the hard rule keeps the token in the block; None without decisions per token or exits."""
    if routing.tokens is not None:
        return routing.tokens
    if routing.exits is None:
        return None
    layers = torch.arange(n_layers, device=routing.exits.device)
    exits = routing.exits if routing.exits.dim() == 2 else routing.exits[:, None].expand_as(batch.mask)
    return layers < exits[..., None]


def gated_layers(gated: tuple[int, ...] | None, n_layers: int) -> list[int]:
    """The layers, from 0, that decide about tokens: those that are said, else all but the stem."""
    return list(range(1, n_layers) if gated is None else gated)


def _columns(batch: Batch, routing: Routing, kept: Tensor | None) -> dict[str, list[float]]:
    """What the example table shows of a batch, a value an example."""
    decided = routing.exits if kept is None else kept
    is_by_position = decided is not None and decided.dim() > 1
    real = real_positions(batch, decided.shape[1]) if decided is not None and is_by_position else batch.mask
    n_real = real.sum(dim=1).clamp_min(1)
    columns: dict[str, list[float]] = {}
    if routing.budget is not None:
        columns["budget"] = routing.budget.mean(dim=1).tolist()
    if routing.heads is not None:
        columns["heads"] = routing.heads.float().mean(dim=(1, 2)).tolist()
    gated = gated_layers(routing.gated, 0 if kept is None else kept.shape[2])
    if kept is not None and gated:
        share = kept[:, :, gated].float().mean(dim=2) * real
        columns["alpha_hard"] = (share.sum(dim=1) / n_real).tolist()
    if routing.exits is not None:
        exits = routing.exits.float()
        per_example = exits if exits.dim() == 1 else (exits * real).sum(dim=1) / n_real
        columns["exit_layer"] = per_example.tolist()
    return columns


def measure(works: Sequence[Workload], settings: AuditSpec) -> list[Findings]:
    """One pass a model; shares are means over real tokens (over examples for heads), the stem excluded from alpha."""
    known: dict[object, Texts] = {}  # by stream: its words are counted once for all models
    return [_measure_one(work, known) for work in works]


def _measure_one(work: Workload, known: dict[object, Texts]) -> Findings:
    tally = classes = None
    quoted = work.pieces if work.is_quotable else None
    for batch in work.batches():
        output = work.routed(batch)
        tally = tally or Tally(work.n_layers or len(output.routing.path), Spill(work.scratch), quoted)
        kept = tally.add(batch, output.routing)
        if work.pieces is not None and _is_by_token(work, batch, kept, output.routing):
            classes = classes or TokenClasses(_texts(work, known))
            classes.add(batch, output, kept)
    tally = tally or Tally(work.n_layers, Spill(work.scratch))
    return Findings(
        measurements=_measurements(work, tally),
        layers=_layers(tally),
        token_classes=classes.rows(gated_layers(tally.gated, tally.n_layers)) if classes else (),
        text_samples=tuple(tally.text_samples),
        choices=tuple(tally.choices),
        examples=tally.examples,
    )


def _is_by_token(work: Workload, batch: Batch, kept: Tensor | None, routing: Routing) -> bool:
    """Whether tokens are what the model answers, or what it decides about."""
    if not batch.has_tokens or (kept is not None and kept.shape[:2] != batch.tokens.shape):
        return False
    return work.task == "causal_lm" or routing.tokens is not None


def _texts(work: Workload, known: dict[object, Texts]) -> Texts:
    if work.batches not in known:
        assert work.pieces is not None
        known[work.batches] = Texts(work.pieces, work.is_characters)
        known[work.batches].count(work.batches())
    return known[work.batches]


def _measurements(work: Workload, tally: Tally) -> tuple[Measurement, ...]:
    gated = gated_layers(tally.gated, tally.n_layers)
    alpha_soft, alpha_hard = _of_gated(tally.soft, gated), _of_gated(tally.hard, gated)
    ran, saved = _of_gated(tally.ran, gated), None
    if ran is not None:
        saved = len(gated) / tally.n_layers * (1 - ran) if work.is_skipping_tokens else 0.0
    no_block = NO_TOKENS if tally.hard.means is None else "one layer has no gated block"
    no_gate = NO_TOKENS if tally.hard.means is None else NO_GATE
    exit_layer = None
    if (shares := tally.exits.means) is not None:
        exit_layer = sum(layer * share for layer, share in enumerate(shares, start=1))
    found: tuple[tuple[str, str, Better, float | None, str, str], ...] = (
        (
            "alpha_soft",
            "1",
            "neither",
            alpha_soft,
            "mean gate 1 - p of the gated blocks",
            no_gate,
        ),
        ("alpha_hard", "1", "neither", alpha_hard, "share of token-blocks that the hard rule keeps", no_block),
        ("tlops_saved", "1", "higher", saved, "token-blocks left out, stem included", no_block),
        ("budget", "1", "neither", _mean(tally.budget), "mean continuous s over layers and examples", NO_BUDGET),
        ("head_fraction", "1", "lower", _mean(tally.heads), "mean k/H over layers and examples", NO_HEADS),
        ("exit_layer", "layer", "lower", exit_layer, "mean layers run before leaving", NO_EXITS),
    )
    return tuple(
        unavailable(f"routing.{name}", unit, better, reason)
        if value is None
        else Measurement(name=f"routing.{name}", unit=unit, better=better, source="counted", method=method, value=value)
        for name, unit, better, value, method, reason in found
    )


def _mean(means: Means) -> float | None:
    values = means.means
    return sum(values) / len(values) if values else None


def _of_gated(means: Means, gated: Sequence[int]) -> float | None:
    values = [value for layer, value in enumerate(means.means or ()) if layer in gated]
    return sum(values) / len(values) if values else None


def _layers(tally: Tally) -> tuple[LayerRow, ...]:
    columns: dict[str, list[float | None] | None] = {
        "alpha_soft": _decided(tally.soft.means, tally),
        "alpha_hard": _decided(tally.hard.means, tally),
        "budget": _known(tally.budget.means),
        "head_fraction": _known(tally.heads.means),
        "exit_share": _known(tally.exits.means),
    }
    use = [] if tally.head_use is None else (tally.head_use / tally.heads.weight).tolist()
    return tuple(
        LayerRow(
            layer=i + 1,
            head_use=tuple(use[i]) if use else (),
            **{name: values[i] for name, values in columns.items() if values is not None},
        )
        for i in range(tally.n_layers)
    )


def _known(means: list[float] | None) -> list[float | None] | None:
    return None if means is None else [*means]


def _decided(means: list[float] | None, tally: Tally) -> list[float | None] | None:
    """None in a layer that logs no decision: it runs everything."""
    if means is None or tally.gated is None:
        return _known(means)
    return [value if layer in tally.gated else None for layer, value in enumerate(means)]
