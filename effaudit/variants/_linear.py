"""Which linear layers do more than their product in one step in inference: an activation, an addition."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# What torch's own compiler emits for a linear layer with an activation on a CPU; private, so it may be missing.
HAS_FUSED = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
MIN_FUSED_ROWS = 256  # below, setting the fused op up costs more than the pass over the outputs that it spares


def is_inference(module: nn.Module, x: Tensor) -> bool:
    """Whether nothing needs what was there before: no dropout, no gradient, no autocast (blind to such ops)."""
    return not (module.training or torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type))


class ActivatedLinear(nn.Linear):
    """A linear layer followed by an activation; oneDNN does both in one pass over the outputs."""

    def __init__(self, in_features: int, out_features: int, activation: Literal["gelu", "relu"]) -> None:
        super().__init__(in_features, out_features)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        if HAS_FUSED and is_inference(self, x) and self._is_fusable(x):
            op = torch.ops.mkldnn._linear_pointwise
            fused: Tensor = op(x, self.weight, self.bias, self.activation, [], "none")
            return fused
        product = F.linear(x, self.weight, self.bias)
        return F.gelu(product) if self.activation == "gelu" else F.relu(product)

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
