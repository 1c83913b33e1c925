"""How a batch goes through a model in several passes, as one that fits the caches may be quicker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from effaudit.workload import Batch, Output, Routing

WholeT = TypeVar("WholeT", Batch, Routing)


def part(whole: WholeT, examples: slice) -> WholeT:
    """These examples of a batch or of decisions about it."""
    tensors: dict[str, Any] = {
        name: value[examples] for name, value in vars(whole).items() if isinstance(value, Tensor)
    }
    return replace(whole, **tensors)


def joined(outputs: Sequence[Output]) -> Output:
    """The outputs of the parts of a batch, in order, as those of the whole."""
    routings = [output.routing for output in outputs]
    decided: dict[str, Any] = {
        field.name: torch.cat([getattr(routing, field.name) for routing in routings])
        for field in fields(Routing)
        if isinstance(getattr(routings[0], field.name), Tensor)
    }
    return Output(torch.cat([output.logits for output in outputs]), replace(routings[0], **decided))
