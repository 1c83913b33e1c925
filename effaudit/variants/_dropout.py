"""Dropout whose mask is drawn 16 bits an element: torch's own costs a CPU more than the layers around it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

N_CODES = 2**16  # that 16 bits can hold; probabilities are rounded to one of them


class Dropout(nn.Dropout):
    """As `torch.nn.Dropout`, from another random stream on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0 or x.device.type != "cpu":
            return super().forward(x)
        return x * _factors(x, self.p)


def _factors(x: Tensor, p: float) -> Tensor:
    """Of the shape of `x`: 0 with probability `p`, else what makes the mean 1."""
    n_dropped = min(round(p * N_CODES), N_CODES - 1)
    drawn = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    codes = drawn.view(torch.int16)[: x.numel()].view(x.shape)
    kept = torch.ge(codes, n_dropped - N_CODES // 2, out=torch.empty(x.shape, dtype=x.dtype))
    return kept.mul_(N_CODES / (N_CODES - n_dropped))
