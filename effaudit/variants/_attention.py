"""How attention is computed: for all queries, for gathered ones alone, or in chosen heads alone.

Shapes: B batch, T tokens, D width, H heads, dh width of one, N gathered tokens, b examples that run k heads each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from effaudit import onednn
from effaudit.kernels import products
from effaudit.kernels.attention import is_usable, row_attention
from effaudit.variants._dropout import Dropout
from effaudit.variants._head_sets import HeadGroup
from effaudit.variants._linear import Linear, Residual, add_product, is_inference, linear, linear_of_rows
from effaudit.variants._visibility import Rows, Visibility


class Attention(nn.Module):
    """Multi-head attention over fused, bias-free projections; `n_heads` may be fewer than D / head_dim.

    With `onto`, outputs are added onto it in place instead of being returned alone; no gradient flows then.
    """

    def __init__(self, d_model: int, n_heads: int, head_dim: int, dropout: float) -> None:
        super().__init__()
        self.n_heads, self.head_dim = n_heads, head_dim
        self.dropout = Dropout(dropout)
        self.qkv = Linear(d_model, 3 * n_heads * head_dim, bias=False)
        self.proj = Residual(n_heads * head_dim, d_model, bias=False)

    def forward(
        self,
        x: Tensor,
        visible: Visibility,
        head_gate: Tensor | None = None,
        onto: Tensor | None = None,
        gate: Tensor | None = None,
        rows: Rows | None = None,
        is_query_kept: bool = False,
        groups: Sequence[HeadGroup] | None = None,
    ) -> Tensor:
        """`x` (B, T, D) to (B, T, D); `head_gate` (B, H) multiplies the heads' outputs.

        `gate` multiplies what is added onto `onto`. With `rows`, only their queries run, to (N, D), unless
        `is_query_kept`, and only onto theirs is added. With `groups`, only the heads of each.
        """
        if rows is not None and not is_query_kept:
            mixed = self._mixed_rows(*self._qkv_rows(x, rows), visible, rows)
            return self.proj(mixed, onto, gate, rows)
        if groups is not None:
            return self._heads(x, visible, groups, head_gate, onto)
        mixed = self._mixed(self.qkv(x).chunk(3, dim=-1), visible, head_gate)
        return self.proj(mixed, onto, gate, rows)

    def _mixed(self, qkv: Sequence[Tensor], visible: Visibility, head_gate: Tensor | None) -> Tensor:
        """Values mixed by scores, all (B, T, k * dh); `head_gate` (B, k)."""
        q, k, v = qkv
        if is_inference(self, q) and is_usable(q, self.head_dim):
            return row_attention(q, k, v, self.head_dim, visible.is_causal, real=visible.keys, gate=head_gate)
        q, k, v = (self._split(x) for x in (q, k, v))
        if self.training and q.device.type == "cpu" and (self.dropout.p or torch.is_autocast_enabled("cpu")):
            mixed = self._mixed_by_steps(q, k, v, visible)
        else:
            is_causal, dropout = visible.is_causal and visible.mask is None, self.dropout.p if self.training else 0.0
            mixed = F.scaled_dot_product_attention(q, k, v, visible.mask, dropout, is_causal)
        if head_gate is not None:
            mixed = mixed * head_gate[:, :, None, None]
        return mixed.transpose(1, 2).flatten(2)

    def _mixed_by_steps(self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility) -> Tensor:
        """The same where torch's own op is several times slower on a CPU: with dropout, or in bfloat16 backward."""
        scores = (q * self.head_dim**-0.5) @ k.transpose(-1, -2)  # (B, k, T, T)
        mixed: Tensor = self.dropout((scores + visible.added).softmax(dim=-1)) @ v
        return mixed

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, H, T, dh)

    def _qkv_rows(self, x: Tensor, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (N, D), and keys and values (B, T, D) of all tokens, as a cache of them needs."""
        width = self.n_heads * self.head_dim
        q = linear_of_rows(x, self.qkv.weight[:width], rows)
        k, v = linear(x, self.qkv.weight[width:]).chunk(2, dim=-1)
        return q, k, v

    def _mixed_rows(self, q: Tensor, k: Tensor, v: Tensor, visible: Visibility, rows: Rows) -> Tensor:
        if is_inference(self, q) and is_usable(q, self.head_dim):
            return row_attention(q, k, v, self.head_dim, visible.is_causal, rows.positions, rows.counts, visible.keys)
        if min(rows.counts) == max(rows.counts):
            even = self._split(q.unflatten(0, (len(rows.counts), -1)))  # (B, H, n, dh)
            mixed = F.scaled_dot_product_attention(even, self._split(k), self._split(v), visible.even_rows(rows))
            return mixed.transpose(1, 2).flatten(2).flatten(0, 1)
        queries = q.unflatten(1, (self.n_heads, self.head_dim)).transpose(0, 1)[None].split(rows.counts, dim=2)
        keys, values = (self._split(x).split(1) for x in (k, v))
        # Example by example, as their numbers of queries differ; torch lays (1, H, n, dh) out as (n, H, dh) here.
        parts = [
            F.scaled_dot_product_attention(query, key, value, mask)[0].transpose(0, 1).flatten(1)
            for query, key, value, mask in zip(queries, keys, values, visible.rows(rows), strict=True)
            if query.shape[2]
        ]
        return torch.cat([q[:0], *parts])

    def _heads(
        self,
        x: Tensor,
        visible: Visibility,
        groups: Sequence[HeadGroup],
        gate: Tensor | None,
        onto: Tensor | None,
    ) -> Tensor:
        """Examples are taken together by their number of heads for the scores, by their set for the projections."""
        onto = torch.zeros_like(x) if onto is None else onto
        for group in groups:
            chosen = None if gate is None else gate.index_select(0, group.examples).gather(1, group.heads)  # (b, k)
            mixed = self._mixed(self._qkv_of(x, group).unbind(2), visible.select(group.examples), chosen)
            self._project(mixed.to(onto.dtype), group, onto)
        return onto

    def _qkv_of(self, x: Tensor, group: HeadGroup) -> Tensor:
        """(b, T, 3, k * dh), each example's in its own heads."""
        n_run = group.heads.shape[1]
        width = n_run * self.head_dim
        if self._is_by_heads(x, n_run):
            of_heads = products.from_heads(x, group.examples, group.heads, self.qkv.weight, self.head_dim)
            return of_heads.unflatten(2, (3, width))
        weight = self.qkv.weight.unflatten(0, (3, self.n_heads, self.head_dim))
        qkv = x.new_empty(len(group.examples), x.shape[1], 3 * width)
        for heads in group.sets:
            chosen = heads.of(weight, dim=1).flatten(0, 2)  # (3 * k * dh, D)
            for span in heads.spans:
                rows, place = x[span.start : span.stop].flatten(0, 1), qkv[span.rows].view(-1, len(chosen))
                if torch.is_grad_enabled() or onednn.is_quicker_than_mkl():
                    place.copy_(linear(rows, chosen))
                else:
                    torch.mm(rows, chosen.t(), out=place)
        return qkv.unflatten(2, (3, width))

    def _is_by_heads(self, x: Tensor, n_run: int) -> bool:
        is_some = n_run < self.n_heads
        return is_some and is_inference(self, x) and products.is_usable_for_heads(x, self.head_dim, n_run)

    def _project(self, mixed: Tensor, group: HeadGroup, onto: Tensor) -> None:
        if self._is_by_heads(onto, group.heads.shape[1]):
            products.onto_heads(onto, group.examples, group.heads, self.proj.weight, self.head_dim, mixed)
            return
        weight = self.proj.weight.unflatten(1, (self.n_heads, self.head_dim))
        for heads in group.sets:
            chosen = heads.of(weight, dim=1).flatten(1)  # (D, k * dh)
            for span in heads.spans:
                place = onto[span.start : span.stop].view(-1, onto.shape[2])
                add_product(place, mixed[span.rows].flatten(0, 1), chosen)
