"""Which linear layers do more than their product in one step in inference: an activation, an addition."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# What torch's own compiler emits for a linear layer with an activation on a CPU; private, so it may be missing.
HAS_FUSED = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
MIN_FUSED_ROWS = 256  # below, setting the fused op up costs more than the pass over the outputs that it spares


def is_inference(module: nn.Module, x: Tensor) -> bool:
    """Whether nothing needs what was there before: no dropout, no gradient, no autocast (blind to such ops)."""
    return not (module.training or torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type))


class GeluLinear(nn.Linear):
    """A linear layer followed by GELU; oneDNN does both in one pass over the outputs."""

    def forward(self, x: Tensor) -> Tensor:
        if HAS_FUSED and is_inference(self, x) and self._is_fusable(x):
            fused: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "gelu", [], "none")
            return fused
        return F.gelu(F.linear(x, self.weight, self.bias))

    def _is_fusable(self, x: Tensor) -> bool:
        is_float = x.device.type == "cpu" and x.dtype == torch.float32
        return is_float and x.numel() >= MIN_FUSED_ROWS * self.in_features


class Residual(nn.Linear):
    """A linear layer that can add its outputs onto a tensor in place."""

    def forward(self, x: Tensor, onto: Tensor | None = None, gate: Tensor | None = None) -> Tensor:
        """With `onto` (…, D), that with the outputs times `gate` (…) added, in place; no gradient flows."""
        if onto is None:
            return F.linear(x, self.weight, self.bias)
        if gate is not None:
            return onto.addcmul_(F.linear(x, self.weight, self.bias), gate[..., None])
        if self.bias is not None:
            onto.add_(self.bias)
        onto.view(-1, self.out_features).addmm_(x.flatten(0, -2), self.weight.t())
        return onto
