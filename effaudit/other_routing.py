"""Other decisions of the kind that a model takes: drawn at random at the rates seen, or always the most common ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from effaudit.workload import Batch, Routing

Decide = Callable[[Batch], Routing]


class Decisions:
    """The decisions of a pass: how many of which kind in each layer, over real tokens and examples."""

    def __init__(self, n_layers: int) -> None:
        self.n_layers = n_layers
        self.n_tokens = 0
        self.kept = torch.zeros(n_layers, dtype=torch.float64)  # tokens
        self.gates = torch.zeros(n_layers, dtype=torch.float64)  # summed, of all tokens or heads
        self.open_gates = torch.zeros(n_layers, dtype=torch.float64)  # summed, of what is kept alone
        self.has_gates = False
        self.patterns: Counter[tuple[bool, ...]] = Counter()  # of a token over the layers
        self.exits = torch.zeros(n_layers, dtype=torch.float64)  # units by the layers that they run
        self._exits_by_token = False
        self.head_sets: list[Counter[tuple[bool, ...]]] = [Counter() for _ in range(n_layers)]

    def add(self, batch: Batch, routing: Routing) -> None:
        if routing.tokens is not None:
            self._add_tokens(routing.tokens[batch.mask].cpu(), routing.gate, batch)
        if routing.exits is not None:
            self._exits_by_token = routing.exits.dim() == 2
            exits = routing.exits[batch.mask] if self._exits_by_token else routing.exits
            self.exits += torch.bincount(exits.cpu(), minlength=self.n_layers + 1)[1:]
        if routing.heads is not None:
            self._add_heads(routing.heads.cpu(), routing.head_gate)

    def _add_tokens(self, tokens: Tensor, gate: Tensor | None, batch: Batch) -> None:
        self.n_tokens += len(tokens)
        self.kept += tokens.sum(dim=0)
        patterns, counts = tokens.unique(dim=0, return_counts=True)
        self.patterns.update(dict(zip(map(tuple, patterns.tolist()), counts.tolist(), strict=True)))
        if gate is not None:
            self._add_gates(gate[batch.mask].cpu(), tokens)

    def _add_heads(self, heads: Tensor, gate: Tensor | None) -> None:
        for layer, sets in enumerate(self.head_sets):
            sets.update(map(tuple, heads[:, layer].tolist()))
        if gate is not None:
            by_layer = (part.transpose(1, 2).flatten(0, 1) for part in (gate.cpu(), heads))
            self._add_gates(*by_layer)

    def _add_gates(self, gates: Tensor, kept: Tensor) -> None:
        """Both (n, L)."""
        self.has_gates = True
        self.gates += gates.double().sum(dim=0)
        self.open_gates += (gates.double() * kept).sum(dim=0)

    @property
    def n_heads(self) -> int:
        return len(next(iter(self.head_sets[0]), ()))

    @property
    def rate(self) -> float | None:
        """The share of token-blocks (the first block aside), of layers after the first, or of heads that run."""
        if self.n_heads:
            return float(self._heads_run().sum() / (self._n_examples * self.n_layers * self.n_heads))
        if self.n_layers == 1:
            return None
        if self.n_tokens:
            return float(self.kept[1:].mean() / self.n_tokens)
        if self.exits.any():
            return float((self.exits @ torch.arange(self.n_layers).double()) / self.exits.sum() / (self.n_layers - 1))
        return None

    @property
    def soft_rate(self) -> float | None:
        """The mean gate of the same."""
        if not self.has_gates or self.n_layers == 1:
            return None
        if self.n_heads:
            return float(self.gates.sum() / (self._n_examples * self.n_layers * self.n_heads))
        return float(self.gates[1:].mean() / self.n_tokens)

    @property
    def _n_examples(self) -> int:
        return self.head_sets[0].total()

    def _heads_run(self) -> Tensor:
        return torch.tensor([sum(n * sum(kept) for kept, n in sets.items()) for sets in self.head_sets]).double()

    def _mean_open_gate(self, kept: Tensor) -> Tensor:
        """(L,) the mean gate of what is kept, so that no decision comes with a gate that was never open."""
        return (self.open_gates / kept.double().clamp_min(1)).float()

    def at_random(self, seed: int) -> Decide:
        """Decisions drawn anew for every token, example and layer at the rates seen; the same for the same seed."""
        source = torch.Generator().manual_seed(seed)

        def decide(batch: Batch) -> Routing:
            n, width = batch.tokens.shape
            if self.n_heads:
                return self._routed_heads(batch, self._random_heads(n, source))
            if self.n_tokens:
                kept = torch.rand(n, width, self.n_layers, generator=source) < self.kept / self.n_tokens
                return self._routed_tokens(batch, kept)
            units = batch.mask.shape if self._exits_by_token else torch.Size([n])
            drawn = torch.multinomial(self.exits, units.numel(), replacement=True, generator=source)
            return Routing(exits=1 + drawn.view(units).to(batch.tokens.device))

        return decide

    def most_common(self) -> Decide:
        """The same decisions for every input: the most common pattern of a token, exit, or set of heads of a layer."""

        def decide(batch: Batch) -> Routing:
            n, width = batch.tokens.shape
            if self.n_heads:
                sets = torch.tensor([sets.most_common(1)[0][0] for sets in self.head_sets])
                return self._routed_heads(batch, sets.expand(n, -1, -1))
            if self.n_tokens:
                pattern = torch.tensor(self.patterns.most_common(1)[0][0])
                return self._routed_tokens(batch, pattern.expand(n, width, -1))
            units = batch.mask.shape if self._exits_by_token else (n,)
            return Routing(exits=torch.full(units, 1 + int(self.exits.argmax()), device=batch.tokens.device))

        return decide

    def _random_heads(self, n_examples: int, source: torch.Generator) -> Tensor:
        """(B, L, H) bool: in each layer a number of heads as often as it was seen, which ones by chance."""
        layers = []
        for sets in self.head_sets:
            sizes = torch.tensor([sum(kept) for kept in sets])
            shares = torch.tensor([float(n) for n in sets.values()])
            k = sizes[torch.multinomial(shares, n_examples, replacement=True, generator=source)]
            rank = torch.rand(n_examples, self.n_heads, generator=source).argsort(dim=1).argsort(dim=1)
            layers.append(rank < k[:, None])
        return torch.stack(layers, dim=1)

    def _routed_tokens(self, batch: Batch, kept: Tensor) -> Routing:
        device = batch.tokens.device
        gate = self._mean_open_gate(self.kept) * kept if self.has_gates else None
        return Routing(tokens=kept.to(device), gate=None if gate is None else gate.to(device))

    def _routed_heads(self, batch: Batch, heads: Tensor) -> Routing:
        device = batch.tokens.device
        gate = self._mean_open_gate(self._heads_run())[:, None] * heads if self.has_gates else None
        return Routing(heads=heads.to(device), head_gate=None if gate is None else gate.to(device))
