"""How a block changes its tokens: all of them, or gathered ones alone.

Shapes: B batch, T tokens, D width, N gathered tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from effaudit.kernels import products
from effaudit.profile_spec import ModelConfig
from effaudit.variants._attention import Attention
from effaudit.variants._dropout import Dropout
from effaudit.variants._head_sets import HeadGroup
from effaudit.variants._linear import ActivatedLinear, Residual, is_inference
from effaudit.variants._norm import Norm
from effaudit.variants._visibility import Rows, Visibility


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int, dropout: float) -> None:
        super().__init__()
        self.up = ActivatedLinear(d_model, d_ff, "gelu")
        self.down = Residual(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        h: Tensor,
        norm: Norm,
        onto: Tensor | None = None,
        gate: Tensor | None = None,
        rows: Rows | None = None,
    ) -> Tensor:
        """Of `norm(h, rows)`, which is not held beyond the first layer: the second needs as much room.

        With `onto`, outputs times `gate` are added onto it in place, without dropout; no gradient flows then.
        """
        if onto is None:
            return self.dropout(self.down(self.dropout(self.up(norm(h, rows)))))
        if onto is h and products.is_usable(h) and isinstance(self.up, ActivatedLinear):
            layers = (self.up.weight, self.up.bias, self.down.weight, self.down.bias)
            factor = gate if gate is None or rows is not None else gate.expand(h.shape[:-1]).flatten()
            flat, index = h.view(-1, h.shape[-1]), None if rows is None else rows.index
            by = (norm.weight, norm.bias)
            products.add_chain(flat, layers, self.up.activation, index, factor, norm=by, eps=norm.eps)
            return onto
        if rows is None:
            return self.down(self.up(norm(h)), onto, gate)
        for part, span in rows.parts():
            self.down(self.up(norm(h, part)), onto, None if gate is None else gate[span], part)
        return onto


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, config: ModelConfig, n_heads: int | None = None) -> None:
        super().__init__()
        head_dim = config.d_model // config.n_heads
        self.norm1 = Norm(config.d_model)
        self.attn = Attention(config.d_model, n_heads or config.n_heads, head_dim, config.dropout)
        self.norm2 = Norm(config.d_model)
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
        if rows is None or len(rows) == h.shape[0] * h.shape[1]:
            return self.feed(self.attend(h, visible, gate, head_gate), gate)
        factor = None if gate is None else gate.flatten().index_select(0, rows.index)  # (N,)
        h = self.attend(h, visible, factor, rows=rows, is_attention_kept=is_attention_kept)
        return self.feed(h, factor, rows)

    def attend(
        self,
        h: Tensor,
        visible: Visibility,
        gate: Tensor | None = None,
        head_gate: Tensor | None = None,
        groups: Sequence[HeadGroup] | None = None,
        normed: Tensor | None = None,
        rows: Rows | None = None,
        is_attention_kept: bool = False,
    ) -> Tensor:
        """`h` with attention times `gate` (B, T) added; in inference the same tensor.

        `groups` of examples run their own heads alone; `normed` is norm1(h) where the caller has it already. With
        `rows`, `gate` (N,) is theirs.
        """
        onto = h if is_inference(self, h) else None
        normed = self.norm1(h) if normed is None else normed
        attended = self.attn(normed, visible, head_gate, onto, gate, rows, is_attention_kept, groups)
        return attended if onto is not None else _added(h, attended, gate, rows)

    def feed(self, h: Tensor, gate: Tensor | None = None, rows: Rows | None = None) -> Tensor:
        """`h` with the FFN times `gate` (…) added; in inference the same tensor."""
        onto = h if is_inference(self, h) else None
        fed = self.ffn(h, self.norm2, onto, gate, rows)
        return fed if onto is not None else _added(h, fed, gate, rows)


def _added(h: Tensor, x: Tensor, gate: Tensor | None, rows: Rows | None) -> Tensor:
    """`h` with `x` times `gate` added, onto the gathered tokens alone where there are `rows`; gradients flow."""
    if rows is None:
        return h + (x if gate is None else gate[..., None] * x)
    changes = rows.gated(x.flatten(0, -2), gate).to(h.dtype)  # which autocast may have made another one
    return h.flatten(0, 1).index_add(0, rows.index, changes).view_as(h)
