"""What a model's weights amount to: how many numbers, how many bytes; quantised layers keep theirs packed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from torch import Tensor, nn


def count_parameters(model: nn.Module) -> int:
    """Parameters of a model, shared tensors once, buffers left out."""
    unique = {(p.data_ptr() or id(p), p.shape): p.numel() for p in model.parameters()}
    return sum(unique.values()) + sum(tensor.numel() for tensor in _packed(model))


def weight_bytes(model: nn.Module) -> int:
    """Bytes of parameters and buffers; storage that several share counts once."""
    storages = {}
    for tensor in chain(model.parameters(), model.buffers()):
        storage = tensor.untyped_storage()
        storages[(str(tensor.device), storage.data_ptr() or id(tensor))] = storage.nbytes()
    return sum(storages.values()) + sum(tensor.untyped_storage().nbytes() for tensor in _packed(model))


def _packed(model: nn.Module) -> Iterator[Tensor]:
    """Weights that are no parameters: torch's quantised layers unpack theirs when they are asked."""
    for module in model.modules():
        for name in ("weight", "bias"):
            ask = getattr(module, name, None)
            tensor = ask() if callable(ask) and hasattr(module, "_packed_params") else None
            if isinstance(tensor, Tensor):
                yield tensor
