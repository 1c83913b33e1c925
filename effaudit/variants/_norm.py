"""The norm that all variants share."""

from __future__ import annotations

from torch import Tensor, nn

from effaudit.kernels import rows as kernels
from effaudit.variants._linear import is_inference
from effaudit.variants._visibility import Places


class Norm(nn.LayerNorm):
    """Layer norm of all tokens, or of gathered ones without their being copied first."""

    def forward(self, h: Tensor, rows: Places | None = None) -> Tensor:
        """Of `h` (…, D) its shape; with `rows` of `h` (B, T, D) theirs, (N, D)."""
        if not (is_inference(self, h) and kernels.is_usable(h)):
            return super().forward(h if rows is None else rows.take(h))
        flat = h.view(-1, h.shape[-1])
        index = None if rows is None else rows.among(len(flat))
        normed = kernels.norm_rows(flat, index, self.weight, self.bias, self.eps)
        return normed if rows is not None else normed.view_as(h)
