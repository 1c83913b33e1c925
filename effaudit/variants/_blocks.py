"""The parts that all variants share: attention, block, backbone, their skipping paths and their FLOPs.

Shapes: B batch, T tokens, D width, H heads, N gathered tokens, C classes, V vocabulary.
FLOPs: 1 multiply-add = 2, matrix products only, attention dense (causal not halved).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from effaudit.profile_spec import ModelConfig, Spec
from effaudit.workload import IGNORED_LABEL, AttentionFlops, Batch, Output, Routing


class VariantOptions(Spec):
    """Options that every variant has; `masked` computes everything and multiplies the skipped parts away."""

    execution: Literal["skip", "masked"] = "skip"

    @property
    def is_skipping_tokens(self) -> bool:
        """Whether token-blocks are really left out."""
        return False

    @property
    def untrained_use(self) -> str:
        """How inference under these options departs from what they train, or an empty string."""
        return ""


@dataclass(frozen=True)
class Visibility:
    """Which keys a query may attend to: the real ones, and when causal only those up to its own position."""

    is_causal: bool
    keys: Tensor | None  # (B, T) bool; None where nothing is padded

    @classmethod
    def of(cls, batch: Batch, is_causal: bool) -> Visibility:
        return cls(is_causal, batch.mask if batch.is_padded else None)

    def mask(self, n_tokens: int) -> Tensor | None:
        """The mask for all queries, None where is_causal alone says it."""
        if self.keys is None:
            return None
        mask = self.keys[:, None, None, :]  # (B, 1, 1, T)
        if self.is_causal:
            positions = torch.arange(n_tokens, device=mask.device)
            mask = mask & (positions[:, None] >= positions)  # (B, 1, T, T)
        return mask

    def rows(self, example: int, positions: Tensor, n_tokens: int) -> Tensor | None:
        """The mask for the queries of one example at `positions` (N,), as (1, 1, N or 1, T)."""
        mask = None if self.keys is None else self.keys[None, None, example : example + 1, :]
        if self.is_causal:
            causal = positions[:, None] >= torch.arange(n_tokens, device=positions.device)  # (N, T)
            mask = causal[None, None] if mask is None else mask & causal
        return mask

    def select(self, examples: Tensor) -> Visibility:
        return self if self.keys is None else Visibility(self.is_causal, self.keys[examples])


class Attention(nn.Module):
    """Multi-head attention over fused, bias-free projections; `n_heads` may be fewer than D / head_dim."""

    def __init__(self, d_model: int, n_heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.head_dim, self.dropout = n_heads, head_dim, dropout
        self.qkv = nn.Linear(d_model, 3 * n_heads * head_dim, bias=False)
        self.proj = nn.Linear(n_heads * head_dim, d_model, bias=False)

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, H, T, dh)

    def forward(
        self,
        x: Tensor,
        visible: Visibility,
        head_gate: Tensor | None = None,
        rows: Rows | None = None,
        runs: Tensor | None = None,
    ) -> Tensor:
        """`x` (B, T, D) to (B, T, D); `head_gate` (B, H) multiplies the heads' outputs.

        With `rows`, only their queries: (N, D). With `runs` (B, H) bool, only those heads.
        """
        if rows is not None:
            return self._rows(x, visible, rows)
        if runs is not None:
            return self._heads(x, visible, runs, head_gate)
        q, k, v = (self._split(part) for part in self.qkv(x).chunk(3, dim=-1))
        mask = visible.mask(x.shape[1])
        mixed = F.scaled_dot_product_attention(
            q, k, v, mask, self.dropout if self.training else 0.0, visible.is_causal and mask is None
        )
        if head_gate is not None:
            mixed = mixed * head_gate[:, :, None, None]
        return self.proj(mixed.transpose(1, 2).flatten(2))

    def _rows(self, x: Tensor, visible: Visibility, rows: Rows) -> Tensor:
        """Outputs (N, D) of the gathered queries; keys and values come from all tokens, as a cache of them needs."""
        width = self.n_heads * self.head_dim
        q = F.linear(x.flatten(0, 1)[rows.index], self.qkv.weight[:width])  # (N, D)
        k, v = (self._split(part) for part in F.linear(x, self.qkv.weight[width:]).chunk(2, dim=-1))
        q = q.unflatten(-1, (-1, self.head_dim)).transpose(0, 1)[None]  # (1, H, N, dh)
        parts = [q[:, :, :0]]
        for example, (start, stop) in enumerate(rows.spans):
            if start == stop:
                continue
            mask = visible.rows(example, rows.positions[start:stop], x.shape[1])
            keys, values = k[example : example + 1], v[example : example + 1]
            parts.append(F.scaled_dot_product_attention(q[:, :, start:stop], keys, values, mask))
        mixed = torch.cat(parts, dim=2)[0].transpose(0, 1).flatten(1)  # (N, D)
        return self.proj(mixed)

    def _heads(self, x: Tensor, visible: Visibility, runs: Tensor, gate: Tensor | None) -> Tensor:
        """Outputs (B, T, D) of the heads in `runs` (B, H) bool alone; `gate` (B, H) multiplies them."""
        n_tokens = x.shape[1]
        qkv = self.qkv.weight.unflatten(0, (3, self.n_heads, self.head_dim))
        proj = self.proj.weight.unflatten(1, (self.n_heads, self.head_dim))
        out = torch.zeros_like(x)
        for head, examples in enumerate(_examples_of_heads(runs)):
            if not len(examples):
                continue
            chosen = visible.select(examples)
            mask = chosen.mask(n_tokens)
            q, k, v = F.linear(x[examples], qkv[:, head].flatten(0, 1)).chunk(3, dim=-1)  # (b, T, dh)
            mixed = F.scaled_dot_product_attention(
                q[:, None], k[:, None], v[:, None], mask, is_causal=chosen.is_causal and mask is None
            )[:, 0]
            if gate is not None:
                mixed = mixed * gate[examples, head, None, None]
            out.index_add_(0, examples, F.linear(mixed, proj[:, head]))
        return out


def _examples_of_heads(runs: Tensor) -> tuple[Tensor, ...]:
    """For each head the examples (b,) that run it; one transfer to the host for all heads."""
    head, example = runs.T.nonzero(as_tuple=True)
    return example.split(torch.bincount(head, minlength=runs.shape[1]).tolist())


@dataclass(frozen=True)
class Rows:
    """Gathered tokens of a batch: where they stand in the flattened (B*T) tokens, in order."""

    index: Tensor  # (N,) into B*T
    positions: Tensor  # (N,) into T
    spans: tuple[tuple[int, int], ...]  # per example, its part of the N

    @classmethod
    def of(cls, active: Tensor) -> Rows:
        """The True places of `active` (B, T); one transfer to the host, which the algorithm needs."""
        index = active.flatten().nonzero().squeeze(1)
        stops = active.sum(dim=1).cumsum(0).tolist()
        return cls(index, index % active.shape[1], tuple(zip([0, *stops[:-1]], stops, strict=True)))

    def __len__(self) -> int:
        return len(self.index)


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.up = nn.Linear(d_model, d_ff)
        self.down = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.down(self.dropout(F.gelu(self.up(x)))))


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, config: ModelConfig, n_heads: int | None = None) -> None:
        super().__init__()
        head_dim = config.d_model // config.n_heads
        self.norm1 = nn.LayerNorm(config.d_model)
        self.attn = Attention(config.d_model, n_heads or config.n_heads, head_dim, config.dropout)
        self.norm2 = nn.LayerNorm(config.d_model)
        self.ffn = FeedForward(config.d_model, config.d_ff, config.dropout)

    def forward(
        self,
        h: Tensor,
        visible: Visibility,
        gate: Tensor | None = None,
        head_gate: Tensor | None = None,
        active: Tensor | None = None,
        is_attention_kept: bool = False,
    ) -> Tensor:
        """`h` (B, T, D); `gate` (B, T) multiplies what both sub-layers add.

        With `active` (B, T) bool the other tokens stay as they are: their query, scores, mix, output projection
        and FFN are skipped, or with `is_attention_kept` their FFN alone.
        """
        if active is not None and len(rows := Rows.of(active)) < active.numel():
            skip = self._ffn_rows if is_attention_kept else self._rows
            return skip(h, visible, rows, gate)
        attended = self.attn(self.norm1(h), visible, head_gate)
        h = h + (attended if gate is None else gate[..., None] * attended)
        fed = self.ffn(self.norm2(h))
        return h + (fed if gate is None else gate[..., None] * fed)

    def _ffn_rows(self, h: Tensor, visible: Visibility, rows: Rows, gate: Tensor | None) -> Tensor:
        gate = torch.ones_like(h[..., 0]) if gate is None else gate
        attended = gate[..., None] * self.attn(self.norm1(h), visible)
        flat = h.flatten(0, 1)
        kept = flat[rows.index] + attended.flatten(0, 1)[rows.index]  # (N, D)
        kept = kept + gate.flatten()[rows.index, None] * self.ffn(self.norm2(kept))
        return flat.index_copy(0, rows.index, kept).view_as(h)

    def _rows(self, h: Tensor, visible: Visibility, rows: Rows, gate: Tensor | None) -> Tensor:
        flat = h.flatten(0, 1)
        kept = flat[rows.index]  # (N, D)
        factor = None if gate is None else gate.flatten()[rows.index, None]
        attended = self.attn(self.norm1(h), visible, rows=rows)
        kept = kept + (attended if factor is None else factor * attended)
        fed = self.ffn(self.norm2(kept))
        kept = kept + (fed if factor is None else factor * fed)
        return flat.index_copy(0, rows.index, kept).view_as(h)


class TiedHead(nn.Module):
    """Logits from the embedding's weight, which stays the backbone's: a module, so that its FLOPs have their row."""

    def forward(self, h: Tensor, weight: Tensor) -> Tensor:
        return F.linear(h, weight)


class Backbone(nn.Module):
    """Embeddings, blocks, final norm and head: an encoder with masked mean pooling or a decoder with a tied head."""

    blocks: Sequence[Block]

    def __init__(self, config: ModelConfig, heads_per_layer: list[int] | None = None) -> None:
        super().__init__()
        self.config = config
        self.is_causal = config.task == "causal_lm"
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.position = nn.Embedding(config.max_tokens, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        counts = heads_per_layer or [config.n_heads] * config.n_layers
        self.blocks = nn.ModuleList(Block(config, n) for n in counts)  # type: ignore[assignment]
        self.norm = nn.LayerNorm(config.d_model)
        if config.n_classes is not None:
            self.classifier = nn.Linear(config.d_model, config.n_classes)
        else:
            self.tied_head = TiedHead()
        self._initialise()

    def _initialise(self) -> None:
        """As TSA: embeddings N(0, 0.02²), residual outputs N(0, (0.02 / sqrt(2L))²), the rest as torch has it."""
        scale = 0.02 / math.sqrt(2 * len(self.blocks))
        nn.init.normal_(self.embed.weight, std=0.02)
        nn.init.normal_(self.position.weight, std=0.02)
        for block in self.blocks:
            nn.init.normal_(block.attn.proj.weight, std=scale)
            nn.init.normal_(block.ffn.down.weight, std=scale)

    def embedded(self, batch: Batch) -> Tensor:
        positions = torch.arange(batch.tokens.shape[1], device=batch.tokens.device)
        return self.dropout(self.embed(batch.tokens) + self.position(positions))  # (B, T, D)

    def visibility(self, batch: Batch) -> Visibility:
        return Visibility.of(batch, self.is_causal)

    def head(self, h: Tensor, mask: Tensor) -> Tensor:
        """Final logits: (B, C) from the masked mean, or (B, T, V)."""
        if self.is_causal:
            logits: Tensor = self.tied_head(self.norm(h), self.embed.weight)
            return logits
        return self.classifier(masked_mean(self.norm(h), mask))

    def dense_attention(self, batch: Batch) -> AttentionFlops:
        """The closed formula of the attention with every head, layer and token on."""
        costs = Costs(self.config, batch.tokens.shape[1])
        n_layers = batch.n_examples * self.config.n_layers
        return AttentionFlops(core=n_layers * costs.core, layer=n_layers * costs.attention)

    def forward(self, batch: Batch, routing: Routing | None = None) -> Output:
        raise NotImplementedError

    def loss(self, batch: Batch, progress: float) -> Tensor:
        """The training loss; `progress` in [0, 1] drives schedules."""
        return task_loss(self(batch).logits, batch)

    def finish(self) -> None:
        """Called once when training has ended, before the weights are saved."""


def masked_mean(h: Tensor, mask: Tensor) -> Tensor:
    """Mean over real tokens, (B, T, D) to (B, D)."""
    weights = mask[..., None].to(h.dtype)
    return (h * weights).sum(dim=1) / weights.sum(dim=1)


def task_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Mean cross-entropy in nats over labelled examples or tokens."""
    return F.cross_entropy(logits.flatten(0, -2), batch.labels.flatten(), ignore_index=IGNORED_LABEL)


@dataclass(frozen=True)
class Costs:
    """FLOPs of the parts of one model at T tokens."""

    config: ModelConfig
    n_tokens: int

    @property
    def query(self) -> int:
        """Per token: Q projection, score row, value mix, output projection (all heads)."""
        return 4 * self.config.d_model**2 + self.core // self.n_tokens

    @property
    def core(self) -> int:
        """Per example: the scores and the mix of one layer."""
        return 4 * self.n_tokens**2 * self.config.d_model

    @property
    def key_value(self) -> int:
        """Per token: K and V projections."""
        return 4 * self.config.d_model**2

    @property
    def ffn(self) -> int:
        """Per token."""
        return 4 * self.config.d_model * self.config.d_ff

    @property
    def attention(self) -> int:
        """Per example: the whole attention layer."""
        return self.n_tokens * (self.query + self.key_value)

    @property
    def block(self) -> int:
        """Per example: attention layer and FFN."""
        return self.attention + self.n_tokens * self.ffn

    @property
    def one_head(self) -> int:
        """Per token for a language model, per example for a classifier."""
        return 2 * self.config.d_model * (self.config.n_classes or self.config.vocab_size)

    @property
    def head(self) -> int:
        """Per example: the final head."""
        return self.one_head * (1 if self.config.n_classes else self.n_tokens)

    @property
    def dense(self) -> int:
        """Per example: every head, layer and token."""
        return self.config.n_layers * self.block + self.head


def per_example(batch: Batch, flops: int) -> Tensor:
    """The same FLOPs for each example, (B,) int64."""
    return torch.full((batch.n_examples,), flops, dtype=torch.int64, device=batch.tokens.device)
