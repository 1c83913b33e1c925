"""FLOPs of ops that run a whole recurrent layer, or an embedding bag.

As in `formulas`: the output comes first, then the op's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torch import Tensor

Formula = Callable[..., int]


def _rnn(x: Tensor, weights: Sequence[Tensor]) -> int:
    """Every weight matrix meets every step of every sequence: x (T, B, I) or packed (N, I)."""
    n_steps = prod(x.shape[:-1])
    return 2 * n_steps * sum(w.numel() for w in weights if w.dim() == 2)


def twice(forward: Formula) -> Formula:
    """The backward pass of products: one for the gradient of each factor."""
    return lambda out, /, *args, **kwargs: 2 * forward(out, *args, **kwargs)


def mkldnn_rnn(out: object, /, x: Tensor, w_input: Tensor, w_hidden: Tensor, *_: object, **__: object) -> int:
    return _rnn(x, (w_input, w_hidden))


def cudnn_rnn(out: object, /, x: Tensor, weights: Sequence[Tensor], *_: object, **__: object) -> int:
    return _rnn(x, weights)


def lstm_mps(out: object, /, x: Tensor, state: object, weights: Sequence[Tensor], *_: object, **__: object) -> int:
    return _rnn(x, weights)


def lstm_mps_backward(out: object, /, *args: Any, **__: object) -> int:
    x, weights = args[5], args[8]
    return 2 * _rnn(x, weights)


def embedding_bag(out: object, /, weight: Tensor, indices: Tensor, *rest: Any, **kwargs: Any) -> int:
    """Sums move data; weighted sums are products."""
    weights = kwargs.get("per_sample_weights", rest[4] if len(rest) > 4 else None)
    return 0 if weights is None else 2 * indices.numel() * weight.shape[1]


def embedding_bag_backward(out: object, /, grad: Tensor, indices: Tensor, *rest: Any, **__: object) -> int:
    weights = rest[8] if len(rest) > 8 else None
    return 0 if weights is None else 2 * indices.numel() * grad.shape[1]


def bag_weights_backward(
    out: object, /, grad: Tensor, weight: Tensor, indices: Tensor, *_: object, **__: object
) -> int:
    return 2 * indices.numel() * grad.shape[1]
