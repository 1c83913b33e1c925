"""Which linear layers do more than their product in one step in inference: an activation, an addition."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from effaudit import onednn
from effaudit.kernels import products
from effaudit.variants._visibility import Places

MIN_FUSED_ROWS = 256  # below, setting the fused op up costs more than the pass over the outputs that it spares
MIN_PRODUCTS, MIN_OUTPUTS = 2**20, 8  # below, setting oneDNN's op up costs more than MKL's slower kernel


def is_inference(module: nn.Module, x: Tensor) -> bool:
    """Whether nothing needs what was there before: no dropout, no gradient, no autocast (blind to such ops)."""
    return not module.training and _is_free(x)


def _is_free(x: Tensor) -> bool:
    return not (torch.is_grad_enabled() or torch.is_autocast_enabled(x.device.type))


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """As `F.linear`, in inference by the quicker library."""
    is_large = x.numel() * weight.shape[0] >= MIN_PRODUCTS and weight.shape[0] >= MIN_OUTPUTS
    if is_large and onednn.is_quicker_than_mkl() and _is_free(x) and _is_cpu_float(x):
        return onednn.linear(x, weight, bias)
    return F.linear(x, weight, bias)


def linear_of_rows(x: Tensor, weight: Tensor, rows: Places | None = None) -> Tensor:
    """As `F.linear` of gathered rows (N, in), or of `rows` of `x` (B, T, in)."""
    if is_by_rows(x):
        flat = x.flatten(0, -2)
        return products.chain(flat, (weight, None), index=None if rows is None else rows.among(len(flat)))
    x = x if rows is None else rows.take(x)
    parts = [linear(x[span], weight) for span in onednn.spans(x)]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def linear_of_normed_rows(x: Tensor, norm: nn.LayerNorm, weight: Tensor, rows: Places | None = None) -> Tensor:
    """The same of their norm, where `is_by_rows(x)`."""
    flat = x.flatten(0, -2)
    index = None if rows is None else rows.among(len(flat))
    return products.chain(flat, (weight, None), "none", index, (norm.weight, norm.bias), norm.eps)


def is_by_rows(x: Tensor) -> bool:
    """Whether rows of `x` (…, in) are multiplied where they lie, which no gradient comes through."""
    return _is_free(x) and products.is_usable(x)


def _is_cpu_float(x: Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype == torch.float32


class Linear(nn.Linear):
    """A linear layer by the quicker library in inference."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class ActivatedLinear(nn.Linear):
    """A linear layer followed by an activation; oneDNN does both in one pass over the outputs."""

    def __init__(self, in_features: int, out_features: int, activation: Literal["gelu", "relu"]) -> None:
        super().__init__(in_features, out_features)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        is_large = x.numel() >= MIN_FUSED_ROWS * self.in_features
        if onednn.HAS_LINEAR and is_large and is_inference(self, x) and _is_cpu_float(x):
            return onednn.linear(x, self.weight, self.bias, self.activation)
        product = linear(x, self.weight, self.bias)
        return F.gelu(product) if self.activation == "gelu" else F.relu(product)


class Residual(nn.Linear):
    """A linear layer that can add its outputs onto a tensor in place."""

    def forward(
        self, x: Tensor, onto: Tensor | None = None, gate: Tensor | None = None, rows: Places | None = None
    ) -> Tensor:
        """With `onto` (…, D), that with the outputs times `gate` (…) added, in place; no gradient flows.

        With `rows`, onto these alone: `gate` is (N,) then, and `x` (N, in) of them or (B, T, in) of all.
        """
        if onto is None:
            return F.linear(x, self.weight, self.bias)
        if rows is not None and x.dim() == 2 and products.is_usable(x):
            layers = (self.weight, self.bias)
            products.add_chain(onto.view(-1, self.out_features), layers, index=rows.index, gate=gate, x=x)
        elif rows is not None:
            for part, span in rows.parts() if x.dim() == 2 else [(rows, slice(None))]:
                part.add(onto, linear(x[span], self.weight, self.bias), None if gate is None else gate[span])
        elif gate is not None:
            onto.addcmul_(linear(x, self.weight, self.bias), gate[..., None])
        else:
            add_product(onto.view(-1, self.out_features), x.flatten(0, -2), self.weight, self.bias)
        return onto


def add_product(onto: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """Adds `linear(x, weight, bias)` (N, D) onto `onto` in place; no gradient flows."""
    if onednn.is_quicker_than_mkl():
        onto.add_(linear(x, weight, bias))
        return
    if bias is not None:
        onto.add_(bias)
    onto.addmm_(x, weight.t())


class PlainLinear(nn.Module):
    """One of these layers around a plain one of torch, the only kind that quantisation replaces."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.activation = layer.activation if isinstance(layer, ActivatedLinear) else None
        self.linear = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None, device="meta")
        self.linear.weight, self.linear.bias = layer.weight, layer.bias

    def forward(
        self, x: Tensor, onto: Tensor | None = None, gate: Tensor | None = None, rows: Places | None = None
    ) -> Tensor:
        assert rows is None, "what is quantised skips nothing"
        product: Tensor = self.linear(x)
        if self.activation is not None:
            return F.gelu(product) if self.activation == "gelu" else F.relu(product)
        if onto is None:
            return product
        return onto.add_(product) if gate is None else onto.addcmul_(product, gate[..., None])


def with_plain_linears(model: nn.Module) -> nn.Module:
    """`model` with its layers of these kinds as plain ones, in place."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, Linear | ActivatedLinear | Residual):
                setattr(parent, name, PlainLinear(child))
    return model
