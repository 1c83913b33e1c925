"""What an op does besides products: FLOPs per element (see ELEMENT_CONVENTION), bytes gathered or scattered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from effaudit.flop_counting import own_formulas
from effaudit.flop_counting.attention_formulas import token_pairs
from effaudit.flop_counting.free_ops import is_arithmetic
from effaudit.flop_counting.own_formulas import NORM, SCORE

ELEMENT_CONVENTION = (
    "1 FLOP per element of the result of arithmetic on floats, whatever the function, and of a bias; 1 per element "
    "that a reduction reads or that is added onto chosen places; per element 5 in softmax, 4 in rms norm, 7 in other "
    "norms, 6 per score in fused attention; none for pooling, sorting, losses, random numbers and gates inside fused "
    "recurrent layers"
)
ELEMENT_NAMESPACES = ("aten", "effaudit", "mkldnn")  # whose ops are told by their bare names
GATHERED = "elements gathered or scattered, read and written once each, and their indices; copies that this takes"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SOFTMAX, RMS_NORM = 5, 4

_SOFTMAXES = _words(
    """
    softmax _softmax log_softmax _log_softmax _safe_softmax _masked_softmax _softmax_backward_data
    _log_softmax_backward_data _masked_softmax_backward _nested_tensor_softmax_with_shape
    """
)
_NORM_STEMS = ("layer_norm", "group_norm", "batch_norm")
_REDUCTIONS = _words(
    """
    sum nansum mean prod amax amin aminmax max min argmax argmin norm linalg_vector_norm std var std_mean var_mean
    logsumexp cumsum cumprod cummax cummin logcumsumexp _logcumsumexp trace
    """
)
_ADDITIONS = {"index_add": 3, "index_reduce": 3, "scatter_add": 2, "scatter_reduce": 2}  # as many as the argument has
_BIASED = _words("addmm baddbmm addbmm addmv addr")
_CONVOLUTIONS = _words("convolution _convolution cudnn_convolution mkldnn_convolution")
_FUSED_LAYERS = _words("_native_multi_head_attention _triton_multi_head_attention _transformer_encoder_layer_fwd")

_GATHERS = {  # the position of the indices
    **dict.fromkeys(_words("index _unsafe_index take embedding masked_select"), 1),
    **dict.fromkeys(_words("index_select gather"), 2),
}
_SCATTERS = {  # the positions of the indices and of what is written there
    **dict.fromkeys(_words("index_put _index_put_impl _unsafe_index_put put masked_scatter"), (1, 2)),
    **dict.fromkeys(_words("index_copy index_add index_fill index_reduce scatter scatter_add scatter_reduce"), (2, 3)),
}


def element_flops(name: str, out: Any, args: tuple[Any, ...], kwargs: dict[str, Any], products: int) -> int:
    """FLOPs beside its `products` of one call of an op, named without namespace and in-place underscore."""
    if name in _FUSED_LAYERS:
        return _fused_layer(name, args)
    if name in own_formulas.ELEMENTS:
        return own_formulas.ELEMENTS[name](*args)
    inputs = list(_tensors((*args, *kwargs.values())))
    results = list(_tensors((out,)))
    if not results or not any(t.is_floating_point() or t.is_complex() for t in inputs):
        return 0
    size = results[0].numel()
    if products:
        return _beside_products(name, size, args, kwargs, products)
    if name in _SOFTMAXES:
        return SOFTMAX * size
    if "rms_norm" in name:
        return RMS_NORM * inputs[0].numel()
    if any(stem in name for stem in _NORM_STEMS):
        return NORM * inputs[0].numel()
    if name in _ADDITIONS:
        return sum(t.numel() for t in _tensors(args[_ADDITIONS[name] :][:1]))
    if name in _REDUCTIONS and len(inputs) == 1:
        return inputs[0].numel()
    if name == "dropout" and not args[2]:
        return 0
    return size if is_arithmetic(name) else 0


def _beside_products(name: str, size: int, args: tuple[Any, ...], kwargs: dict[str, Any], products: int) -> int:
    if "attention" in name and "backward" not in name:
        q, _k, v = args[:3]
        is_masked = isinstance(kwargs.get("attn_mask", args[3] if len(args) > 3 else None), Tensor)
        return (SCORE + is_masked) * (products // (2 * (q.shape[-1] + v.shape[-1])))
    if name == "_linear_pointwise":  # oneDNN's
        return size * ((args[2] is not None) + (args[3] != "none"))
    if name == "_addmm_activation":
        return 2 * size
    if name in _BIASED:
        return size if kwargs.get("beta", 1) else 0
    if name in _CONVOLUTIONS:
        return size if len(args) > 2 and args[2] is not None else 0
    return 0


def _fused_layer(name: str, args: tuple[Any, ...]) -> int:
    """Biases of the projections and the scores; around them in an encoder layer two norms, two sums, an activation."""
    is_whole_layer = name == "_transformer_encoder_layer_fwd"
    query, key = (args[0], args[0]) if is_whole_layer else args[:2]
    width, n_heads = args[1:3] if is_whole_layer else args[3:5]
    n_queries, n_keys, n_pairs = token_pairs(query, key)
    attention: int = 2 * width * (n_queries + n_keys) + SCORE * n_heads * n_pairs
    if not is_whole_layer:
        return attention
    d_ff = args[14].shape[0]  # rows of the first linear layer's weight
    return attention + n_queries * ((2 * NORM + 2 + 1) * width + 2 * d_ff)


def moved_bytes(name: str, out: Any, args: tuple[Any, ...], is_in_place: bool) -> int:
    """Bytes that one call of an op gathers or scatters, 0 where it does neither."""
    if name in _GATHERS:
        return 2 * _size(out) + sum(map(_size, _tensors(args[_GATHERS[name] :][:1])))
    if name in own_formulas.MOVED:
        return own_formulas.MOVED[name](*args)
    if name not in _SCATTERS:
        return 0
    index_at, values_at = _SCATTERS[name]
    indices = list(_tensors(args[index_at : index_at + 1]))
    written = _written(name, args, args[values_at]) * args[0].element_size()
    copied = 0 if is_in_place else 2 * _size(args[0])
    return 2 * written + sum(map(_size, indices)) + copied


def _written(name: str, args: tuple[Any, ...], values: Any) -> int:
    """How many elements a scatter writes: as many as it is given, or as its indices name where one goes to all."""
    if name in ("index_put", "_index_put_impl", "_unsafe_index_put"):
        places = tuple(slice(None) if index is None else index for index in args[1])
        return int(args[0][places].numel())
    if isinstance(values, Tensor) and values.dim():
        return values.numel()
    index = args[2]
    return int(index.numel() * (args[0].numel() // args[0].shape[args[1]] if name == "index_fill" else 1))


def _size(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _tensors(values: Iterable[Any]) -> Iterable[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)
