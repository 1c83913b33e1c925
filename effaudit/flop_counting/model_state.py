"""What a counted forward pass may change about a model or the process, put back afterwards."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

Restorer = Callable[[], object]


def _restoring(get: Callable[[], Any], put: Callable[[Any], object]) -> Restorer:
    state = get()
    return lambda: put(state)


def _random_states() -> list[Restorer]:
    """One call for every generator in use, that sets it back to its state of now."""
    states = [
        _restoring(random.getstate, random.setstate),
        _restoring(torch.get_rng_state, torch.set_rng_state),
    ]
    if "numpy" in sys.modules:
        numpy_random = sys.modules["numpy"].random
        states.append(_restoring(numpy_random.get_state, numpy_random.set_state))
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states.append(_restoring(torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all))
    if torch.backends.mps.is_available():
        states.append(_restoring(torch.mps.get_rng_state, torch.mps.set_rng_state))
    return states


def _is_changed(tensor: Tensor, value: Tensor) -> bool:
    return tensor.shape != value.shape or not (tensor.is_meta or torch.equal(tensor, value))


def _buffers(module: nn.Module) -> Restorer:
    """A call that gives the module the buffers of now: the same tensors with the same values."""
    kept = {name: (t, None if t is None else t.detach().clone()) for name, t in module._buffers.items()}

    def put_back() -> None:
        for name in set(module._buffers.keys()) - set(kept):  # TorchScript's mapping cannot be iterated
            del module._buffers[name]
        for name, (tensor, value) in kept.items():
            if dict(module._buffers.items()).get(name) is not tensor:
                module._buffers[name] = tensor
            if tensor is not None and value is not None and _is_changed(tensor, value):
                tensor.resize_(value.shape).copy_(value)

    return put_back


def _train_flag(module: nn.Module) -> Restorer:
    flag: bool | None = getattr(module, "training", None)  # a frozen TorchScript module has none

    def put_back() -> None:
        if flag is not None and module.training != flag:
            module.training = flag

    return put_back


@contextmanager
def preserved(model: object) -> Iterator[None]:
    """Restores train flags, buffers (batch-norm statistics, say) and random generators, also after an exception.

    Buffers are copied, parameters are not: a forward pass that writes to parameters is left as it is.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    restorers = _random_states() + [_train_flag(module) for module in modules]
    restorers += [_buffers(module) for module in modules if module._buffers]
    try:
        yield
    finally:
        with torch.inference_mode():  # the only mode in which every buffer may be written to
            for restore in restorers:
                restore()
