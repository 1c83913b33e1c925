"""Fourteen small models whose FLOPs are known by hand, on which FLOP counters differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

B, T, D = 2, 16, 32  # the input of every row
BIG = 128
VOCABULARY = 50


class Calls(nn.Module):
    """A module whose forward pass is a function of itself and its input."""

    def __init__(self, function: Callable[..., object], **parts: nn.Module | nn.Parameter) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> object:
        return self.function(self, x)


@dataclass(frozen=True)
class Row:
    """One model with its input (B, T, D) and the FLOPs of one forward pass."""

    build: Callable[[], nn.Module]
    flops: int
    is_training: bool = False
    sign: int = 1  # of the input

    def model(self) -> nn.Module:
        return self.build().train(self.is_training)

    def input(self) -> Tensor:
        return self.sign * torch.rand(B, T, D)


def _linear(n_out: int = D) -> nn.Linear:
    return nn.Linear(D, n_out, bias=False)  # so that counters which count bias additions can be exact too


def _attend(h: Tensor) -> Tensor:
    q = h.view(B, T, 4, D // 4).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q)


def _twice(h: Tensor) -> Tensor:
    return h @ h.transpose(1, 2) @ h


def _attention() -> nn.Module:
    return Calls(lambda m, x: m.a(x, x, x)[0], a=nn.MultiheadAttention(D, 4, batch_first=True))


def _encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(D, 4, 2 * D, batch_first=True)


def _shared() -> nn.Module:
    fc = _linear()
    return nn.Sequential(*(Calls(lambda m, x: m.fc(x), fc=fc) for _ in range(2)))


def _branches() -> nn.Module:
    return Calls(lambda m, x: m.big(x) if x.sum() > 0 else m.small(x), big=_linear(BIG), small=_linear())


def _tied(m: nn.Module, x: Tensor) -> Tensor:
    ids = torch.zeros(B, T, dtype=torch.long)
    return F.linear(m.table(ids), m.table.weight)  # type: ignore[operator, union-attr, arg-type]


_LINEAR = 2 * B * T * D * D
_SCORES_AND_MIX = 4 * B * T * T * D

ROWS: dict[str, Row] = {
    "Linear": Row(_linear, _LINEAR),
    "Linear, scaled_dot_product_attention": Row(
        lambda: Calls(lambda m, x: _attend(m.fc(x)), fc=_linear()), _LINEAR + _SCORES_AND_MIX
    ),
    "Linear, h @ hᵀ @ h": Row(lambda: Calls(lambda m, x: _twice(m.fc(x)), fc=_linear()), _LINEAR + _SCORES_AND_MIX),
    "Linear, einsum": Row(
        lambda: Calls(lambda m, x: torch.einsum("btd,bsd->bts", m.fc(x), x), fc=_linear()),
        _LINEAR + _SCORES_AND_MIX // 2,
    ),
    "MultiheadAttention": Row(_attention, 4 * _LINEAR + _SCORES_AND_MIX),
    "MultiheadAttention, train": Row(_attention, 4 * _LINEAR + _SCORES_AND_MIX, is_training=True),
    "TransformerEncoderLayer": Row(_encoder_layer, 8 * _LINEAR + _SCORES_AND_MIX),
    "TransformerEncoderLayer, train": Row(_encoder_layer, 8 * _LINEAR + _SCORES_AND_MIX, is_training=True),
    "Linear shared by two blocks": Row(_shared, 2 * _LINEAR),
    "branch taken": Row(_branches, BIG // D * _LINEAR),
    "other branch taken": Row(_branches, _LINEAR, sign=-1),
    "self.fc.forward(x)": Row(lambda: Calls(lambda m, x: m.fc.forward(x), fc=_linear()), _LINEAR),
    "F.linear with a Parameter": Row(
        lambda: Calls(lambda m, x: F.linear(x, m.w), w=nn.Parameter(torch.rand(D, D))), _LINEAR
    ),
    "tied embedding and head": Row(lambda: Calls(_tied, table=nn.Embedding(VOCABULARY, D)), 2 * B * T * D * VOCABULARY),
}
