"""How many FLOPs one call of an op costs: matrix and convolution products only, a multiply-add is 2 FLOPs.

A formula takes the op's output, then its arguments as dispatched. Attention is counted dense (causal not
halved), a complex multiply-add like a real one. Ops without a formula here take torch's own, if it has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from effaudit.flop_counting import own_formulas
from effaudit.flop_counting.attention_formulas import (
    attention,
    attention_backward,
    cudnn,
    efficient,
    efficient_backward,
    encoder_layer,
    flash,
    flash_backward,
    flash_in_place,
    native_mha,
)
from effaudit.flop_counting.layer_formulas import (
    Formula,
    bag_weights_backward,
    cudnn_rnn,
    embedding_bag,
    embedding_bag_backward,
    lstm_mps,
    lstm_mps_backward,
    mkldnn_rnn,
    twice,
)
from effaudit.flop_counting.quantized_formulas import QUANTIZED, linear


def _n_elements(a: Tensor) -> int:
    """Entries that are multiplied: all of a strided tensor, the stored ones of a sparse one."""
    if a.layout is torch.strided:
        return a.numel()
    if a.layout in (torch.sparse_bsr, torch.sparse_bsc):
        return a.values().numel()
    return a._nnz()


def _mm(out: Tensor, /, a: Tensor, b: Tensor, *_: object, **__: object) -> int:  # (M, K) @ (K, N)
    if b.layout is torch.strided:
        return 2 * _n_elements(a) * b.shape[1]
    if a.layout is torch.strided:
        return 2 * a.shape[0] * _n_elements(b)
    raise NotImplementedError("sparse @ sparse depends on the pattern")


def _addmm(out: Tensor, /, bias: Tensor, a: Tensor, b: Tensor, *_: object, **__: object) -> int:
    return _mm(out, a, b)


def _bmm(out: Tensor, /, a: Tensor, b: Tensor, *_: object, **__: object) -> int:  # (B, M, K) @ (B, K, N)
    return 2 * _n_elements(a) * b.shape[-1]


def _baddbmm(out: Tensor, /, bias: Tensor, a: Tensor, b: Tensor, *_: object, **__: object) -> int:
    return _bmm(out, a, b)


def _mv(out: Tensor, /, a: Tensor, b: Tensor, *_: object, **__: object) -> int:
    return 2 * _n_elements(a)


def _addmv(out: Tensor, /, bias: Tensor, a: Tensor, b: Tensor, *_: object, **__: object) -> int:
    return 2 * _n_elements(a)


def _outer(out: Tensor, /, *_: object, **__: object) -> int:
    return 2 * out.numel()


def _grouped_mm(out: Tensor, /, a: Tensor, b: Tensor, *_: object, **__: object) -> int:
    """Groups are ragged along one dimension of the 2-D operand, so its total size stands for all of them."""
    one_group = a.numel() // a.shape[0] if (a.dim(), b.dim()) == (3, 2) else a.numel()
    return 2 * one_group * b.shape[-1]


def _conv(out: Tensor, /, x: Tensor, weight: Tensor, *rest: Any, **__: object) -> int:
    """Padding is multiplied like data; a transposed convolution spreads each input over the filter."""
    is_transposed = len(rest) > 4 and rest[4] is True
    positions = x if is_transposed else out
    return 2 * positions.numel() * prod(weight.shape[1:])


def _plain_conv(out: Tensor, /, x: Tensor, weight: Tensor, *_: object, **__: object) -> int:
    return 2 * out.numel() * prod(weight.shape[1:])


def _transposed_conv(out: Tensor, /, x: Tensor, weight: Tensor, *_: object, **__: object) -> int:
    return 2 * x.numel() * prod(weight.shape[1:])


def _conv_tbc(out: Tensor, /, x: Tensor, weight: Tensor, *_: object, **__: object) -> int:  # weight (k, C_in, C_out)
    return 2 * out.numel() * weight.shape[0] * weight.shape[1]


def _conv_backward(out: object, /, grad: Tensor, x: Tensor, weight: Tensor, *rest: Any, **__: object) -> int:
    """The gradients of input and weight each cost as much as the forward pass; `rest` ends with which are asked."""
    *_bias_sizes, _stride, _padding, _dilation, is_transposed, _output_padding, _groups, mask = rest
    positions = x if is_transposed else grad
    return sum(mask[:2]) * 2 * positions.numel() * prod(weight.shape[1:])


def _trilinear(
    out: Tensor,
    /,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    summed: Sequence[int],
    *_: object,
    **__: object,
) -> int:
    """Two products, as torch runs them: `a` with `b`, summing what `c` lacks, then the rest with `c`."""
    full = []
    for tensor, expanded in ((a, expand_a), (b, expand_b), (c, expand_c)):
        shape = list(tensor.shape)
        for dim in expanded:
            shape.insert(dim, 1)
        full.append(shape)
    sizes = [max(column) for column in zip(*full, strict=True)]
    first = prod(max(x, y) for x, y in zip(full[0], full[1], strict=True))
    second = prod(size for dim, size in enumerate(sizes) if not (dim in summed and dim in expand_c))
    return 2 * (first + second)


def _linear_backward(
    out: object, /, x: Tensor, grad: Tensor, weight: Tensor, mask: Sequence[bool], *_: object, **__: object
) -> int:
    return sum(mask[:2]) * 2 * x.numel() * weight.shape[0]


def _nested_linear(out: Tensor, /, x: Tensor, weight: Tensor, *_: object, **__: object) -> int:
    return 2 * x.numel() * weight.shape[0]


def _nested_matmul(out: Tensor, /, a: Tensor, b: Tensor, *_: object, **__: object) -> int:
    """Row by row, as the parts differ in size; `b` may be an ordinary tensor that all share."""
    rows = a._nested_tensor_size().tolist()
    columns = [row[-1] for row in b._nested_tensor_size().tolist()] if b.is_nested else [b.shape[-1]] * len(rows)
    return sum(2 * prod(row) * n for row, n in zip(rows, columns, strict=True))


def _nested_matmul_backward(
    out: object, /, grad: Tensor, a: Tensor, b: Tensor, mask: Sequence[bool], *_: object, **__: object
) -> int:
    return sum(mask) * _nested_matmul(grad, a, b)


def _foreach_mm(out: object, /, a: Sequence[Tensor], b: Sequence[Tensor], *_: object, **__: object) -> int:
    return sum(_mm(x, x, y) for x, y in zip(a, b, strict=True))


FORMULAS: dict[str, Formula] = {
    "aten::mm": _mm,
    "aten::_sparse_mm": _mm,
    "aten::_int_mm": _mm,
    "aten::_scaled_mm": _mm,
    "aten::_scaled_mm_v2": _mm,
    "aten::addmm": _addmm,
    "aten::_addmm_activation": _addmm,
    "aten::_sparse_addmm": _addmm,
    "aten::hspmm": _mm,
    "aten::sspaddmm": _addmm,
    "aten::_foreach_mm": _foreach_mm,
    "aten::bmm": _bmm,
    "aten::baddbmm": _baddbmm,
    "aten::addbmm": _baddbmm,
    "aten::mv": _mv,
    "aten::dot": _mv,
    "aten::vdot": _mv,
    "aten::addmv": _addmv,
    "aten::addr": _outer,
    "aten::linear_backward": _linear_backward,
    "aten::mkldnn_linear_backward": _linear_backward,
    "aten::sparse_sampled_addmm": lambda out, /, pattern, a, b, **_: 2 * _n_elements(pattern) * a.shape[-1],
    "aten::_grouped_mm": _grouped_mm,
    "aten::_scaled_grouped_mm": _grouped_mm,
    "aten::_scaled_grouped_mm_v2": _grouped_mm,
    "aten::mkldnn_linear": linear,
    "aten::_weight_int8pack_mm": linear,
    "aten::_weight_int4pack_mm": linear,
    "aten::_weight_int4pack_mm_for_cpu": linear,
    "aten::_weight_int4pack_mm_with_scales_and_zeros": linear,
    "aten::_dyn_quant_matmul_4bit": linear,
    "aten::_mixed_dtypes_linear": linear,
    "aten::_trilinear": _trilinear,
    "aten::convolution": _conv,
    "aten::_convolution": _conv,
    "aten::convolution_overrideable": _conv,
    "aten::convolution_backward": _conv_backward,
    "aten::convolution_backward_overrideable": _conv_backward,
    "aten::cudnn_convolution": _plain_conv,
    "aten::cudnn_convolution_relu": _plain_conv,
    "aten::cudnn_convolution_add_relu": _plain_conv,
    "aten::mkldnn_convolution": _plain_conv,
    "aten::miopen_convolution": _plain_conv,
    "aten::miopen_convolution_relu": _plain_conv,
    "aten::miopen_convolution_add_relu": _plain_conv,
    "aten::miopen_depthwise_convolution": _plain_conv,
    "aten::_mps_convolution": _plain_conv,
    "aten::_nnpack_spatial_convolution": _plain_conv,
    "aten::_conv_depthwise2d": _plain_conv,
    "aten::conv_depthwise3d": _plain_conv,
    "aten::_slow_conv2d_forward": _plain_conv,
    "aten::slow_conv3d_forward": _plain_conv,
    "aten::slow_conv_dilated2d": _plain_conv,
    "aten::slow_conv_dilated3d": _plain_conv,
    "aten::cudnn_convolution_transpose": _transposed_conv,
    "aten::miopen_convolution_transpose": _transposed_conv,
    "aten::_mps_convolution_transpose": _transposed_conv,
    "aten::slow_conv_transpose2d": _transposed_conv,
    "aten::slow_conv_transpose3d": _transposed_conv,
    "aten::conv_tbc": _conv_tbc,
    "aten::_scaled_dot_product_flash_attention_for_cpu": attention,
    "aten::_scaled_dot_product_flash_attention": attention,
    "aten::_scaled_dot_product_efficient_attention": attention,
    "aten::_scaled_dot_product_cudnn_attention": attention,
    "aten::_scaled_dot_product_fused_attention_overrideable": attention,
    "aten::_scaled_dot_product_attention_math_for_mps": attention,
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
    "aten::_scaled_dot_product_flash_attention_backward": attention_backward,
    "aten::_scaled_dot_product_efficient_attention_backward": attention_backward,
    "aten::_scaled_dot_product_cudnn_attention_backward": attention_backward,
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": attention_backward,
    "aten::_flash_attention_forward": flash,
    "aten::_flash_attention_forward_no_dropout_inplace": flash_in_place,
    "aten::_flash_attention_backward": flash_backward,
    "aten::_efficient_attention_forward": efficient,
    "aten::_efficient_attention_backward": efficient_backward,
    "aten::_cudnn_attention_forward": cudnn,
    "aten::_triton_scaled_dot_attention": attention,
    "aten::_native_multi_head_attention": native_mha,
    "aten::_triton_multi_head_attention": native_mha,
    "aten::_transformer_encoder_layer_fwd": encoder_layer,
    "aten::mkldnn_rnn_layer": mkldnn_rnn,
    "aten::_cudnn_rnn": cudnn_rnn,
    "aten::miopen_rnn": cudnn_rnn,
    "aten::_lstm_mps": lstm_mps,
    "aten::lstm_mps_backward": lstm_mps_backward,
    "aten::mkldnn_rnn_layer_backward": twice(mkldnn_rnn),
    "aten::_cudnn_rnn_backward": twice(cudnn_rnn),
    "aten::miopen_rnn_backward": twice(cudnn_rnn),
    "aten::_embedding_bag": embedding_bag,
    "aten::_embedding_bag_forward_only": embedding_bag,
    "aten::_embedding_bag_backward": embedding_bag_backward,
    "aten::_embedding_bag_per_sample_weights_backward": bag_weights_backward,
    "mkldnn::_linear_pointwise": linear,
    **own_formulas.PRODUCTS,
    **QUANTIZED,
}


HIGHER_ORDER_FORMULAS: dict[str, Formula] = {  # operators whose products lie outside the functions they are given
    "flex_attention": attention,
    "flex_attention_backward": lambda out, /, q, k, v, *_, **__: attention_backward(out, q, q, k, v),
}


NESTED_FORMULAS: dict[str, Formula] = {  # strided nested tensors, whose kernels sit above the products
    "aten::linear": _nested_linear,
    "aten::matmul": _nested_matmul,
    "aten::bmm": _nested_matmul,
    "aten::matmul_backward": _nested_matmul_backward,
    "aten::_native_multi_head_attention": native_mha,
    "aten::_transformer_encoder_layer_fwd": encoder_layer,
}
