"""FLOPs of ops on quantized tensors and packed weights, and which of them multiply integers.

As in `formulas`: the output comes first, then the op's arguments.
"""

from __future__ import annotations

from math import prod
from typing import Any

from torch import Tensor

from effaudit.flop_counting.layer_formulas import Formula


def linear(out: Tensor, /, x: Tensor, *_: object, **__: object) -> int:
    """Any x (…, K) times a (K, N) weight, however the weight is packed."""
    return 2 * x.numel() * int(out.shape[-1])


def _matmul(out: Tensor, /, a: Tensor, b: Tensor, *_: object, **__: object) -> int:
    return 2 * out.numel() * a.shape[-1]


def _conv(out: Tensor, /, x: Tensor, *rest: Any, **__: object) -> int:
    weight, _bias = _packed(rest).unpack()
    return 2 * out.numel() * prod(weight.shape[1:])


def _transposed_conv(out: Tensor, /, x: Tensor, *rest: Any, **__: object) -> int:
    weight, _bias = _packed(rest).unpack()
    return 2 * x.numel() * prod(weight.shape[1:])


def _packed(args: Any) -> Any:
    """The packed weights among the arguments."""
    return next(a for a in args if hasattr(a, "unpack"))


def _cell(n_gates: int) -> Formula:
    """One step: x (B, I), hidden state (B, H), alone or with the cell's."""

    def flops(out: object, /, x: Tensor, state: Any, *_: object, **__: object) -> int:
        hidden = (state if isinstance(state, Tensor) else state[0]).shape[-1]
        return 2 * x.shape[0] * n_gates * hidden * (x.shape[-1] + hidden)

    return flops


def _layers(n_gates: int) -> Formula:
    """Layers of cells: x (…, I), or (N, I) before the batch sizes (T,); hidden state (layers x directions, B, H)."""

    def flops(out: object, /, x: Tensor, *args: Any, **__: object) -> int:
        is_packed = isinstance(args[0], Tensor) and args[0].dim() == 1
        state, _params, _has_biases, n_layers, _dropout, _train, is_bidirectional = args[is_packed : is_packed + 7]
        hidden = (state if isinstance(state, Tensor) else state[0]).shape[-1]
        n_directions = 2 if is_bidirectional else 1
        widths = x.shape[-1] + (n_layers - 1) * hidden * n_directions + n_layers * hidden
        return 2 * prod(x.shape[:-1]) * n_gates * hidden * widths * n_directions

    return flops


QUANTIZED: dict[str, Formula] = {
    **{f"quantized::linear{kind}": linear for kind in ("", "_relu", "_leaky_relu", "_tanh")},
    **{f"quantized::linear{kind}_dynamic{dtype}": linear for kind in ("", "_relu") for dtype in ("", "_fp16")},
    **{f"sparse::qlinear{kind}": linear for kind in ("", "_relu", "_dynamic", "_relu_dynamic")},
    **{f"quantized::conv{n}d{kind}": _conv for n in (1, 2, 3) for kind in ("", "_relu", "_dynamic")},
    **{f"quantized::conv2d_add{kind}": _conv for kind in ("", "_relu")},
    **{f"quantized::conv_transpose{n}d{kind}": _transposed_conv for n in (1, 2, 3) for kind in ("", "_dynamic")},
    "quantized::matmul": _matmul,
    "quantized::quantized_lstm_cell_dynamic": _cell(4),
    "quantized::quantized_gru_cell_dynamic": _cell(3),
    "quantized::quantized_rnn_tanh_cell_dynamic": _cell(1),
    "quantized::quantized_rnn_relu_cell_dynamic": _cell(1),
    "aten::quantized_lstm": _layers(4),
    "aten::quantized_gru": _layers(3),
}

_INTEGER = frozenset({*QUANTIZED, "aten::_int_mm"})  # whatever the dtype of their output


def is_integer(name: str, args: tuple[Any, ...]) -> bool:
    """Whether the op multiplies integers: not where its weights are packed as float16."""
    return name in _INTEGER and not name.endswith("fp16") and not any(map(_is_half, args))


def _is_half(argument: Any) -> bool:
    if isinstance(argument, list | tuple):
        return bool(argument) and _is_half(argument[0])
    if hasattr(argument, "unpack"):
        return not argument.unpack()[0].is_quantized
    state = argument.__getstate__() if type(argument).__name__ == "ScriptObject" else None
    return isinstance(state, tuple) and "quantized_fp16" in state[0]
