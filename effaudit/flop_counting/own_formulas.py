"""What our own ops cost, as `formulas` and `element_work` say it of torch's.

Products take the op's output, then its arguments as dispatched; work of other kinds takes the arguments alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

SCORE, NORM = 6, 7  # scale, and softmax: maximum, difference, exponential, sum, quotient; a norm's of an element

Layers = Sequence[Tensor | None]


def row_attention(out: object, /, q: Tensor, k: Tensor, *_: object) -> int:
    """Scores and mix: q (…, D), each row on all T keys of its example, k (B, T, D)."""
    return 4 * q.numel() * k.shape[1]


def _rows(x: Tensor, index: Tensor | None) -> int:
    return len(x) if index is None else len(index)


def _weights(layers: Layers) -> list[Tensor]:
    return [w for w in layers[::2] if w is not None]


def chain(
    out: object, /, x: Tensor, index: Tensor | None, norm: object, eps: object, layers: Layers, activation: object
) -> int:
    return 2 * _rows(x, index) * sum(w.numel() for w in _weights(layers))


def add_chain(out: object, /, onto: Tensor, index: Tensor | None, gate: object, x: object, *rest: Any) -> int:
    return chain(out, onto, index, *rest)


def from_heads(out: Tensor, /, x: Tensor, *_: object) -> int:
    return 2 * out.numel() * x.shape[2]


def onto_heads(out: object, /, onto: Tensor, examples: object, heads: object, w: object, dim: int, x: Tensor) -> int:
    return 2 * x.numel() * onto.shape[2]


PRODUCTS: dict[str, Callable[..., int]] = {
    "effaudit::row_attention": row_attention,
    "effaudit::chain": chain,
    "effaudit::add_chain": add_chain,
    "effaudit::from_heads": from_heads,
    "effaudit::onto_heads": onto_heads,
}


def _beside_attention(q: Tensor, k: Tensor, v: Tensor, head_dim: int, *rest: Any) -> int:
    """Scores of heads that lie side by side, and the gates of their outputs."""
    *_, gate = rest
    return SCORE * (row_attention(None, q, k) // (4 * head_dim)) + (0 if gate is None else q.numel())


def _beside_chain(
    x: Tensor, index: Tensor | None, norm: Sequence[Tensor], eps: object, layers: Layers, activation: str
) -> int:
    """The norm of what goes in, biases, and the activation of what the first layer gives."""
    first = _weights(layers)[0]
    biases = sum(len(b) for b in layers[1::2] if b is not None)
    of_row = (NORM * first.shape[1] if norm else 0) + biases + (len(first) if activation != "none" else 0)
    return _rows(x, index) * of_row


def _beside_add_chain(onto: Tensor, index: Tensor | None, gate: Tensor | None, x: Tensor | None, *rest: Any) -> int:
    """Also gate and addition of what comes out; to all rows one, as of torch's `addcmul`, so that ways compare."""
    around = 1 if gate is None or index is None else 2
    return _beside_chain(onto, index, *rest) + _rows(onto, index) * around * onto.shape[1]


def _norm_rows(h: Tensor, index: Tensor | None, *_: object) -> int:
    return NORM * _rows(h, index) * h.shape[1]


def _add_rows(h: Tensor, index: Tensor, x: object, gate: Tensor | None) -> int:
    return (1 if gate is None else 2) * len(index) * h.shape[1]


def _onto_heads(onto: Tensor, examples: Tensor, *_: object) -> int:
    return len(examples) * onto[0].numel()


ELEMENTS: dict[str, Callable[..., int]] = {
    "row_attention": _beside_attention,
    "chain": _beside_chain,
    "add_chain": _beside_add_chain,
    "from_heads": lambda *_: 0,
    "onto_heads": _onto_heads,
    "norm_rows": _norm_rows,
    "add_rows": _add_rows,
}


def _moved(x: Tensor, index: Tensor | None, times: int = 1) -> int:
    """Bytes of chosen rows, read and written once each, and of their indices."""
    if index is None:
        return 0
    return times * len(index) * (2 * x.shape[1] * x.element_size() + index.element_size())


MOVED: dict[str, Callable[..., int]] = {
    "chain": lambda x, index, *_: _moved(x, index),
    "add_chain": lambda onto, index, gate, x, *_: _moved(onto, index, 2 if x is None else 1),
    "norm_rows": lambda h, index, *_: _moved(h, index),
    "add_rows": lambda h, index, *_: _moved(h, index),
}
