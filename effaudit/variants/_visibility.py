"""Which tokens are gathered, and which keys a query may attend to.

Shapes: B batch, T tokens, N gathered tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from effaudit import onednn
from effaudit.kernels import rows as kernels
from effaudit.workload import Batch


@dataclass(frozen=True)
class Places:
    """Tokens of a batch: where they stand in the flattened (B*T) tokens, in order."""

    index: Tensor  # (N,) into B*T

    def __len__(self) -> int:
        return len(self.index)

    def among(self, n_tokens: int) -> Tensor | None:
        """`index`, or None where they are all of so many."""
        return None if len(self) == n_tokens else self.index

    def take(self, h: Tensor) -> Tensor:
        """(N, …) of `h` (B, T, …); `h` itself, flattened, where they are all."""
        flat = h.flatten(0, 1)
        return flat if len(self) == len(flat) else flat.index_select(0, self.index)

    def add(self, h: Tensor, x: Tensor, gate: Tensor | None = None) -> None:
        """Adds `x` (N, D), or (B, T, D) of which theirs are taken, times `gate` (N,) onto `h` (B, T, D) in place."""
        flat, x = h.view(-1, h.shape[-1]), x.flatten(0, -2)
        if kernels.is_usable(flat):
            kernels.add_rows(flat, self.index, x, gate)
        else:
            flat.index_add_(0, self.index, self.gated(x, gate).to(flat.dtype))

    def gated(self, x: Tensor, gate: Tensor | None) -> Tensor:
        """(N, D) of `x` (N, D) or (B*T, D), times `gate` (N,)."""
        own = x if len(x) == len(self) else x.index_select(0, self.index)
        return own if gate is None else own * gate[:, None]

    def parts(self) -> list[tuple[Places, slice]]:
        """In the parts in which they are multiplied, each with where it lies in the N."""
        spans = onednn.spans(self.index)
        return [(self, spans[0])] if len(spans) == 1 else [(Places(self.index[span]), span) for span in spans]


@dataclass(frozen=True)
class Rows(Places):
    """Gathered tokens of a batch, by example."""

    flags: Tensor  # (B*T,) bool, True at `index`
    n_tokens: int  # T

    @classmethod
    def of(cls, active: Tensor) -> Rows:
        """The True places of `active` (B, T); one transfer to the host, which the algorithm needs."""
        if active.device.type == "cpu":
            return cls(active.flatten().nonzero().squeeze(1), active.flatten(), active.shape[1])
        counts = active.sum(dim=1).tolist()
        return cls(true_places(active.flatten(), sum(counts)), active.flatten(), active.shape[1])._counted(counts)

    @classmethod
    def within(cls, active: Tensor, n: int) -> Rows:
        """`n` places of each example: the True ones of `active` (B, T), which are no more, and others beside them.

        Nothing is transferred to the host.
        """
        places = active.to(torch.uint8).topk(n, dim=1).indices.sort(dim=1).values  # (B, n)
        starts = torch.arange(0, active.numel(), active.shape[1], device=active.device)
        index = (places + starts[:, None]).flatten()
        flags = torch.zeros_like(active.flatten()).index_fill_(0, index, True)
        return cls(index, flags, active.shape[1])._counted([n] * len(active))

    @classmethod
    def whole(cls, tokens: Tensor) -> Rows:
        """All of `tokens` (B, T)."""
        index = torch.arange(tokens.numel(), device=tokens.device)
        everyone = torch.ones_like(index, dtype=torch.bool)
        return cls(index, everyone, tokens.shape[1])._counted([tokens.shape[1]] * tokens.shape[0])

    def _counted(self, counts: list[int]) -> Rows:
        """The same, its counts known already."""
        self.__dict__["counts"] = counts
        return self

    @cached_property
    def counts(self) -> list[int]:
        """Per example, its part of the N."""
        counts: list[int] = self.flags.view(-1, self.n_tokens).sum(dim=1).tolist()
        return counts

    @cached_property
    def positions(self) -> Tensor:
        """(N,) into T."""
        return self.index % self.n_tokens


def true_places(flags: Tensor, n: int) -> Tensor:
    """The places of the `n` True flags, in order."""
    return flags.nonzero().squeeze(1) if flags.device.type == "cpu" else found_places(flags, n)


def found_places(flags: Tensor, n: int) -> Tensor:
    """The same by a search, as `nonzero` would ask a GPU for their number again."""
    return torch.searchsorted(flags.cumsum(0), torch.arange(1, n + 1, device=flags.device))


@dataclass(frozen=True)
class Visibility:
    """Which keys a query may attend to: the real ones, and when causal only those up to its own position.

    Masks are what is added to scores, 0 or -inf, made once for all layers of a forward pass.
    """

    is_causal: bool
    n_tokens: int
    like: Tensor  # its dtype and device are those of the masks
    keys: Tensor | None  # (B, T) bool; None where nothing is padded

    @classmethod
    def of(cls, batch: Batch, is_causal: bool, like: Tensor) -> Visibility:
        return cls(is_causal, batch.tokens.shape[1], like, batch.mask if batch.is_padded else None)

    @cached_property
    def mask(self) -> Tensor | None:
        """For all queries, (B, 1, T or 1, T); None where `is_causal` alone says it."""
        if self._padding is None or not self.is_causal:
            return self._padding
        return self._padding + self._triangle

    @property
    def added(self) -> Tensor | float:
        """The same where nothing else says that it is causal."""
        if self.mask is None:
            return self._triangle if self.is_causal else 0.0
        return self.mask

    def even_rows(self, rows: Rows) -> Tensor | None:
        """For gathered queries that are as many in each example, (B or 1, 1, n or 1, T)."""
        if not self.is_causal:
            return self._padding
        causal = self._triangle.index_select(0, rows.positions).view(len(rows.counts), 1, -1, self.n_tokens)
        return causal if self._padding is None else causal + self._padding

    def rows(self, rows: Rows) -> list[Tensor | None]:
        """For the gathered queries of each example, (1, 1, n or 1, T)."""
        padding = [None] * len(rows.counts) if self._padding is None else self._padding.split(1)
        if not self.is_causal:
            return list(padding)
        causal = self._triangle.index_select(0, rows.positions)[None, None].split(rows.counts, dim=2)
        return [mask if keys is None else mask + keys for mask, keys in zip(causal, padding, strict=True)]

    def select(self, examples: Tensor) -> Visibility:
        return self if self.keys is None else Visibility(self.is_causal, self.n_tokens, self.like, self.keys[examples])

    @cached_property
    def _padding(self) -> Tensor | None:
        return None if self.keys is None else self._added(self.keys)[:, None, None, :]

    @cached_property
    def _triangle(self) -> Tensor:
        positions = torch.arange(self.n_tokens, device=self.like.device)
        return self._added(positions[:, None] >= positions)  # (T, T)

    def _added(self, allowed: Tensor) -> Tensor:
        zeros = torch.zeros(allowed.shape, dtype=self.like.dtype, device=self.like.device)
        return zeros.masked_fill_(~allowed, -torch.inf)
