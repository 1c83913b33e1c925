"""FLOPs of ops that run attention: every backend's kernels, sequences of unequal lengths, fused transformer layers.

As in `formulas`: the output comes first, then the op's arguments; attention is dense.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import Tensor


def attention(out: object, /, q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> int:
    """Scores and mix: q (…, H, L, E), k (…, H', S, E), v (…, H', S, V); grouped heads are shared, not dropped."""
    return 2 * prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])


def attention_backward(out: object, /, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: object, **__: object) -> int:
    """Scores again, then the gradients of mix (2 products) and scores (2 products)."""
    return 2 * prod(q.shape[:-1]) * k.shape[-2] * (3 * q.shape[-1] + 2 * v.shape[-1])


FORWARD, BACKWARD = (1, 1), (3, 2)  # how many products have the width of keys, and of values


def _ragged(products: tuple[int, int], q: Tensor, k: Tensor, v: Tensor, q_ends: Tensor, k_ends: Tensor) -> int:
    """Sequences of unequal lengths end to end, q (…, N, H, E), v (…, M, H', V); `…_ends` (B + 1,) from 0 on."""
    lengths = zip(q_ends.diff().tolist(), k_ends.diff().tolist(), strict=True)
    pairs: int = sum(n * m for n, m in lengths)
    return 2 * pairs * q.shape[-2] * (products[0] * q.shape[-1] + products[1] * v.shape[-1])


def _rows_first(products: tuple[int, int], q: Tensor, k: Tensor, v: Tensor) -> int:
    """q (B, L, H, E), k (B, S, H', E), v (B, S, H', V)."""
    return 2 * prod(q.shape[:-1]) * k.shape[-3] * (products[0] * q.shape[-1] + products[1] * v.shape[-1])


def _refuse_cache(kwargs: dict[str, Any]) -> None:
    if kwargs.get("block_table") is not None or kwargs.get("seqused_k") is not None:
        raise NotImplementedError("how much of a cache is used depends on its contents")


def flash(out: object, /, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **kwargs: Any) -> int:
    _refuse_cache(kwargs)
    if rest[0] is None:
        return _rows_first(FORWARD, q, k, v)
    return _ragged(FORWARD, q, k, v, rest[0], rest[1])


def flash_in_place(out: object, /, into: Tensor, *args: Any, **kwargs: Any) -> int:
    return flash(out, *args, **kwargs)


def flash_backward(out: object, /, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *rest: Any, **__: object) -> int:
    if rest[2] is None:
        return _rows_first(BACKWARD, q, k, v)
    return _ragged(BACKWARD, q, k, v, rest[2], rest[3])


def efficient(out: object, /, q: Tensor, k: Tensor, v: Tensor, bias: object, *rest: Any, **__: object) -> int:
    if rest[0] is None:
        return _rows_first(FORWARD, q, k, v)
    return _ragged(FORWARD, q, k, v, rest[0], rest[1])


def efficient_backward(
    out: object, /, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: object, *rest: Any, **__: object
) -> int:
    if rest[1] is None:
        return _rows_first(BACKWARD, q, k, v)
    return _ragged(BACKWARD, q, k, v, rest[1], rest[2])


def cudnn(out: object, /, q: Tensor, k: Tensor, v: Tensor, bias: object, *rest: Any, **__: object) -> int:
    return attention(out, q, k, v) if rest[0] is None else _ragged(FORWARD, q, k, v, rest[0], rest[1])


def _lengths(x: Tensor) -> list[int]:
    """Tokens of each sequence: x (B, T, D), nested or padded."""
    if x.is_nested:
        return [int(row[0]) for row in x._nested_tensor_size().tolist()]
    return [x.shape[1]] * x.shape[0]


def token_pairs(query: Tensor, key: Tensor) -> tuple[int, int, int]:
    """Queries, keys and pairs of them, over all examples, without the padding of nested inputs."""
    n, m = _lengths(query), _lengths(key)
    return sum(n), sum(m), sum(a * b for a, b in zip(n, m, strict=True))


@dataclass(frozen=True)
class Part:
    """FLOPs of a fused op that stand for one of its submodules; attention's core apart from its projections."""

    module: str  # "" where the op is all of the module that calls it
    flops: int
    is_core: bool = False


def _fused_attention(module: str, query: Tensor, key: Tensor, width: int) -> tuple[Part, Part]:
    """Four width x width projections and dense attention, padding left out of nested inputs."""
    n_queries, n_keys, n_pairs = token_pairs(query, key)
    projections = Part(module, 4 * width**2 * (n_queries + n_keys))
    return projections, Part(module, 4 * n_pairs * width, is_core=True)


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
