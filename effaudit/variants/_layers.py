"""How a block changes its tokens: all of them, or gathered ones alone.

Shapes: B batch, T tokens, D width, N gathered tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from effaudit.profile_spec import ModelConfig
from effaudit.variants._attention import Attention
from effaudit.variants._dropout import Dropout
from effaudit.variants._head_sets import HeadGroup
from effaudit.variants._linear import ActivatedLinear, Residual, is_inference
from effaudit.variants._visibility import Rows, Visibility, true_places

# Halted tokens to others, up to which giving them back what they were is quicker than multiplying by a gate; what they
# were is then 4 % of a dense peak at most.
RESTORED = 0.33


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.up = ActivatedLinear(d_model, d_ff, "gelu")
        self.down = Residual(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, h: Tensor, norm: nn.Module, onto: Tensor | None = None, gate: Tensor | None = None) -> Tensor:
        """Of `norm(h)`, which is not held beyond the first layer: the second needs as much room.

        With `onto`, outputs times `gate` are added onto it in place, without dropout; no gradient flows then.
        """
        if onto is not None:
            return self.down(self.up(norm(h)), onto, gate)
        return self.dropout(self.down(self.dropout(self.up(norm(h)))))


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
        rows: Rows | None = None,
        is_attention_kept: bool = False,
    ) -> Tensor:
        """`h` (B, T, D), which inference overwrites; `gate` (B, T) multiplies what both sub-layers add.

        With `rows` the other tokens stay as they are: their query, scores, mix, output projection and FFN are
        skipped, or with `is_attention_kept` their FFN alone.
        """
        if rows is not None and len(rows) < h.shape[0] * h.shape[1]:
            return self._skip(h, visible, rows, gate, is_attention_kept)
        return self.feed(self.attend(h, visible, gate, head_gate), gate)

    def attend(
        self,
        h: Tensor,
        visible: Visibility,
        gate: Tensor | None = None,
        head_gate: Tensor | None = None,
        groups: Sequence[HeadGroup] | None = None,
        normed: Tensor | None = None,
    ) -> Tensor:
        """`h` with attention times `gate` (B, T) added; in inference the same tensor.

        `groups` of examples run their own heads alone; `normed` is norm1(h) where the caller has it already.
        """
        normed = self.norm1(h) if normed is None else normed
        if is_inference(self, h):
            return self.attn(normed, visible, head_gate, onto=h, gate=gate, groups=groups)
        attended = self.attn(normed, visible, head_gate, groups=groups)
        return h + (attended if gate is None else gate[..., None] * attended)

    def feed(self, h: Tensor, gate: Tensor | None = None) -> Tensor:
        """`h` with the FFN times `gate` (…) added; in inference the same tensor."""
        if is_inference(self, h):
            return self.ffn(h, self.norm2, onto=h, gate=gate)
        fed = self.ffn(h, self.norm2)
        return h + (fed if gate is None else gate[..., None] * fed)

    def _skip(self, h: Tensor, visible: Visibility, rows: Rows, gate: Tensor | None, is_attention_kept: bool) -> Tensor:
        factor = None if gate is None else gate.flatten().index_select(0, rows.index)  # (N,)
        if is_attention_kept:
            flat = self._attend_all(h, visible, rows, gate).view(-1, h.shape[2])
            kept = flat.index_select(0, rows.index)  # (N, D)
        else:
            flat = (h if is_inference(self, h) else h.clone()).view(-1, h.shape[2])
            kept = self._attend_rows(h, visible, rows, factor)
        return flat.index_copy_(0, rows.index, self.feed(kept, factor)).view_as(h)

    def _attend_all(self, h: Tensor, visible: Visibility, rows: Rows, gate: Tensor | None) -> Tensor:
        """`h` with attention added to the gathered tokens, computed for all."""
        n_others = h.shape[0] * h.shape[1] - len(rows)
        if is_inference(self, h) and n_others <= RESTORED * len(rows):
            flat, others = h.view(-1, h.shape[2]), true_places(~rows.flags, n_others)
            before = flat.index_select(0, others)
            self.attend(h, visible, gate)
            flat.index_copy_(0, others, before)
            return h
        runs = rows.flags.view(h.shape[:2]).to(h.dtype)
        return self.attend(h, visible, runs if gate is None else runs * gate)

    def _attend_rows(self, h: Tensor, visible: Visibility, rows: Rows, factor: Tensor | None) -> Tensor:
        """(N, D) the gathered tokens with their attention added."""
        if is_inference(self, h):
            return self.attn(self.norm1(h), visible, onto=h, gate=factor, rows=rows)
        attended = self.attn(self.norm1(h), visible, rows=rows)
        return rows.take(h) + (attended if factor is None else factor[:, None] * attended)
