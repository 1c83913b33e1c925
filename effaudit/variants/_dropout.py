"""Dropout by the kernel that is quick on a CPU."""

from __future__ import annotations

from torch import Tensor, nn

from effaudit.kernels import dropout as kernels


class Dropout(nn.Dropout):
    """As `torch.nn.Dropout`, from another random stream where our kernel runs."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.p > 0 and kernels.is_usable(x):
            return kernels.dropout(x, self.p)
        return super().forward(x)
