"""The parts that all variants share: options, backbone and the FLOPs of its parts.

Shapes: B batch, T tokens, D width, H heads, C classes, V vocabulary.
FLOPs: 1 multiply-add = 2, matrix products only, attention dense (causal not halved).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from effaudit.profile_spec import Integer, ModelConfig, Spec
from effaudit.variants._dropout import Dropout
from effaudit.variants._layers import Block
from effaudit.variants._linear import linear, linear_of_normed_rows, linear_of_rows
from effaudit.variants._norm import Norm
from effaudit.variants._passes import joined, part
from effaudit.variants._policy import Policy
from effaudit.variants._visibility import Rows, Visibility
from effaudit.workload import IGNORED_LABEL, AttentionFlops, Batch, Output, Routing


class VariantOptions(Spec):
    """Options that every variant has; `masked` computes everything and multiplies the skipped parts away, `auto`
    chooses between the two for each layer and batch by what they cost on this machine."""

    execution: Literal["skip", "masked", "auto"] = "skip"
    micro_batch: Literal["auto"] | Annotated[Integer, Field(ge=1)] = "auto"  # tokens per pass through the layers

    def policy(self) -> Policy | None:
        """What `auto` chooses by, still without costs."""
        return Policy() if self.execution == "auto" else None

    @property
    def is_skipping_tokens(self) -> bool:
        """Whether token-blocks are really left out."""
        return False

    @property
    def untrained_use(self) -> str:
        """How inference under these options departs from what they train, or an empty string."""
        return ""


class TiedHead(nn.Module):
    """Logits from the embedding's weight, which stays the backbone's: a module, so that its FLOPs have their row."""

    def forward(self, h: Tensor, weight: Tensor, norm: Norm | None = None, rows: Rows | None = None) -> Tensor:
        """Of `h` (…, D), or of the `norm` of `rows` of it, in one step, where `is_by_rows(h)`."""
        if norm is not None:
            return linear_of_normed_rows(h, norm, weight, rows)
        return linear_of_rows(h, weight) if h.dim() == 2 else linear(h, weight)


class Backbone(nn.Module):
    """Embeddings, blocks, final norm and head: an encoder with masked mean pooling or a decoder with a tied head."""

    blocks: Sequence[Block]

    def __init__(self, config: ModelConfig, heads_per_layer: list[int] | None = None) -> None:
        super().__init__()
        self.config = config
        self.is_causal = config.task == "causal_lm"
        asked = config.options.get("micro_batch", "auto")
        self.tokens_per_pass: int | None = None if asked == "auto" else asked  # None takes a batch as a whole
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.position = nn.Embedding(config.max_tokens, config.d_model)
        self.dropout = Dropout(config.dropout)
        counts = heads_per_layer or [config.n_heads] * config.n_layers
        self.blocks = nn.ModuleList(Block(config, n) for n in counts)  # type: ignore[assignment]
        self.norm = Norm(config.d_model)
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
        return Visibility.of(batch, self.is_causal, self.embed.weight)

    def head(self, h: Tensor, mask: Tensor | None) -> Tensor:
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
        """In evaluation by `tokens_per_pass`, whole examples; each is answered for itself, so nothing changes."""
        n = batch.n_examples
        if not self.training and self.tokens_per_pass is not None:
            n = max(self.tokens_per_pass // batch.tokens.shape[1], 1)
        if n >= batch.n_examples:
            return self.one_pass(batch, routing)
        spans = [slice(start, start + n) for start in range(0, batch.n_examples, n)]
        return joined([self.one_pass(part(batch, s), None if routing is None else part(routing, s)) for s in spans])

    def one_pass(self, batch: Batch, routing: Routing | None) -> Output:
        raise NotImplementedError

    def loss(self, batch: Batch, progress: float) -> Tensor:
        """The training loss; `progress` in [0, 1] drives schedules."""
        return task_loss(self(batch).logits, batch)

    def finish(self) -> None:
        """Called once when training has ended, before the weights are saved."""


def masked_mean(h: Tensor, mask: Tensor | None) -> Tensor:
    """Mean over real tokens, (B, T, D) to (B, D); without a mask all are real."""
    if mask is None:
        return h.mean(dim=1)
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
