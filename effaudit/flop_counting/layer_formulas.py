"""FLOPs of ops that run a whole layer: attention, recurrent layers, embedding bags, fused transformer layers.

As in `formulas`: the output comes first, then the op's arguments; attention is dense.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor

Formula = Callable[..., int]


def attention(out: object, /, q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> int:
    """Scores and mix: q (…, H, L, E), k (…, H', S, E), v (…, H', S, V); grouped heads are shared, not dropped."""
    return 2 * prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def attention_backward(out: object, /, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> int:
    """Scores again, then the gradients of mix (2 products) and scores (2 products)."""
    return 2 * prod(q.shape[:-1]) * k.shape[-2] * (3 * q.shape[-1] + 2 * v.shape[-1])


def _rnn(x: Tensor, weights: Sequence[Tensor]) -> int:
    """Every weight matrix meets every step of every sequence: x (T, B, I) or packed (N, I)."""
    n_steps = prod(x.shape[:-1])
    return 2 * n_steps * sum(w.numel() for w in weights if w.dim() == 2)


def quantized_rnn(n_gates: int) -> Formula:
    """Layers of cells with packed weights: x (…, I), hidden state (layers x directions, B, H)."""

    def flops(out: object, /, x: Tensor, state: Any, params: object, *rest: Any, **__: object) -> int:
        n_layers, is_bidirectional = rest[1], rest[4]
        hidden = (state if isinstance(state, Tensor) else state[0]).shape[-1]
        n_directions = 2 if is_bidirectional else 1
        widths = x.shape[-1] + (n_layers - 1) * hidden * n_directions + n_layers * hidden
        return 2 * prod(x.shape[:-1]) * n_gates * hidden * widths * n_directions

    return flops


def twice(forward: Formula) -> Formula:
    """The backward pass of products: one for the gradient of each factor."""
    return lambda out, /, *args, **kwargs: 2 * forward(out, *args, **kwargs)


def mkldnn_rnn(out: object, /, x: Tensor, w_input: Tensor, w_hidden: Tensor, *_: object, **__: object) -> int:
    return _rnn(x, (w_input, w_hidden))


def cudnn_rnn(out: object, /, x: Tensor, weights: Sequence[Tensor], *_: object, **__: object) -> int:
    return _rnn(x, weights)


def lstm_mps(out: object, /, x: Tensor, state: object, weights: Sequence[Tensor], *_: object, **__: object) -> int:
    return _rnn(x, weights)


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


def _lengths(x: Tensor) -> list[int]:
    """Tokens of each sequence: x (B, T, D), nested or padded."""
    if x.is_nested:
        return [int(row[0]) for row in x._nested_tensor_size().tolist()]
    return [x.shape[1]] * x.shape[0]


@dataclass(frozen=True)
class Part:
    """FLOPs of a fused op that stand for one of its submodules; attention's core apart from its projections."""

    module: str  # "" where the op is all of the module that calls it
    flops: int
    is_core: bool = False


def _fused_attention(module: str, query: Tensor, key: Tensor, width: int) -> tuple[Part, Part]:
    """Four width x width projections and dense attention, padding left out of nested inputs."""
    pairs = list(zip(_lengths(query), _lengths(key), strict=True))
    return (
        Part(module, sum(4 * width**2 * (n + m) for n, m in pairs)),
        Part(module, sum(4 * n * m * width for n, m in pairs), is_core=True),
    )


def native_mha_parts(query: Tensor, key: Tensor, value: Tensor, width: int, *_: object, **__: object) -> Sequence[Part]:
    return _fused_attention("", query, key, width)


def native_mha(out: object, /, *args: Any, **kwargs: Any) -> int:
    return sum(part.flops for part in native_mha_parts(*args, **kwargs))


def encoder_layer_parts(
    src: Tensor, width: int, n_heads: int, qkv_weight: Tensor, qkv_bias: Tensor, proj_weight: Tensor, *rest: Any
) -> Sequence[Part]:
    feed_forward = 2 * sum(_lengths(src)) * rest[8].numel()
    attention = _fused_attention("self_attn", src, src, width)
    return (*attention, Part("linear1", feed_forward), Part("linear2", feed_forward))


def encoder_layer(out: object, /, *args: Any, **__: object) -> int:
    return sum(part.flops for part in encoder_layer_parts(*args))
