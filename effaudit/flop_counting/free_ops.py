"""Which ops cost no FLOPs by convention: they move data, make it, or work per element.

Ops that torch itself tags as pointwise or as views are free without being named here; so are in-place forms
(`fill_` as `fill`) and copying views (`…_copy`). What is neither free nor has a formula is reported as uncounted.
"""

from __future__ import annotations

from functools import cache

import torch
from torch._ops import OpOverload


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Bookkeeping of the runtime and communication between processes.
FREE_NAMESPACES = frozenset(_words("prim profiler c10d _c10d_functional _c10d_functional_autograd symm_mem"))

# Families, by the start of their names.
FREE_PREFIXES = _words(
    """
    adaptive_ _adaptive_avg_pool avg_pool max_pool fractional_max_pool max_unpool mkldnn_max_pool mkldnn_adaptive
    quantized_max_pool upsample_ _upsample_ reflection_pad replication_pad grid_sampler _grid_sampler
    cudnn_grid_sampler cudnn_affine_grid

    batch_norm_ _batch_norm _native_batch_norm native_batch_norm native_layer_norm native_group_norm _fused_rms_norm
    cudnn_batch_norm miopen_batch_norm _weight_norm _softmax _log_softmax _masked_softmax

    nll_loss mse_loss huber_loss smooth_l1_loss soft_margin_loss multi_margin_loss multilabel_margin_loss
    binary_cross_entropy _foreach_ _fused_adagrad _fused_adam _fused_sgd _amp_

    empty _empty new_ bernoulli random randint normal uniform exponential _philox tril triu native_dropout
    _fused_dropout _cudnn_init_dropout

    index_ _index_put scatter gather masked_ embedding _nested_ _segment_reduce _unique unique_ _resize resize _reshape
    _to_sparse _convert_ _coalesce mkldnn_reorder _make_per q_ quantize_per fake_quantize _fake_quantize
    _thnn_fused_ _fused_moving_avg_obs _assert _functional_assert _functional_sym sym_constrain
    sparse_resize _sparse_compressed_tensor_with _histogramdd
    """
)

FREE_NAMES = frozenset(
    _words(
        """
        Bool Int Float ScalarImplicit item _local_scalar_dense is_nonzero equal allclose is_same_size
        is_pinned is_coalesced is_set_to _is_all_true _is_any_true _has_same_storage_numel dense_dim sparse_dim _dimI
        _dimV _nnz qscheme int_repr dequantize record_stream _pin_memory pin_memory _fused_sdp_choice is_contiguous
        sym_is_contiguous is_strides_like_format is_non_overlapping_and_dense size sym_size stride sym_stride
        storage_offset sym_storage_offset numel sym_numel dim _linalg_check_errors
        _validate_compressed_sparse_indices

        arange eye full full_like linspace logspace ones ones_like zeros zeros_like zero fill scalar_tensor range rand
        rand_like randn randn_like randperm binomial poisson multinomial cauchy geometric log_normal _standard_gamma
        _standard_gamma_grad _sample_dirichlet _dirichlet_grad bartlett_window blackman_window hamming_window
        hann_window kaiser_window complex _efficientzerotensor fft_fftfreq fft_rfftfreq affine_grid_generator
        _sparse_coo_tensor_with_dims _sparse_coo_tensor_with_dims_and_tensors sparse_compressed_tensor
        _fill_mem_eff_dropout_mask

        index _unsafe_index_put
        cat stack _stack _chunk_cat copy _copy_from _copy_from_and_resize _to_copy _to_dense _lazy_clone clone lift
        lift_fresh alias contiguous set from_file block_diag flip roll rot90 repeat repeat_interleave constant_pad_nd
        pixel_shuffle pixel_unshuffle channel_shuffle im2col col2im unfold_backward select_backward slice_backward
        diagonal_backward select_scatter slice_scatter diagonal_scatter as_strided as_strided_scatter diag_embed take
        put nonzero nonzero_static bucketize searchsorted isin sort topk kthvalue mode median nanmedian _unsafe_view
        _unsafe_index _unsafe_masked_index _unsafe_masked_index_put_accumulate _mkldnn_reshape _mkldnn_transpose
        to_mkldnn to_padded_tensor _pack_padded_sequence _jagged_to_padded_dense_forward
        _padded_dense_to_jagged_forward unsafe_split unsafe_split_with_sizes squeeze unsqueeze t transpose detach
        sparse_mask sparse_coo_tensor _sparse_mask_projection _new_zeros_with_same_feature_meta _print lu_unpack
        _make_dep_token _use_miopen_ctc_loss _sparse_broadcast_to copy_sparse_to_sparse _spdiags
        _cudnn_rnn_flatten_weight _transform_bias_rescale_qkv

        sum nansum mean prod amin amax aminmax _aminmax max min argmax argmin all any count_nonzero norm
        linalg_vector_norm linalg__powsum dist std var std_mean var_mean logsumexp cumsum cumprod cummax cummin
        _cummax_helper _cummin_helper logcumsumexp _logcumsumexp trace bincount histc histogram segment_reduce renorm
        hash_tensor linalg_cross glu glu_backward log_sigmoid_forward hardswish _prelu_kernel _prelu_kernel_backward
        rrelu_with_noise rrelu_with_noise_backward hardswish_backward
        _safe_softmax _add_relu floor_divide native_norm threshold gelu abs mish _masked_scale
        _embedding_bag_dense_backward _sparse_sum _sparse_sum_backward _sparse_csr_sum _sparse_softmax
        _sparse_log_softmax _ctc_loss _ctc_loss_backward _cudnn_ctc_loss _use_cudnn_ctc_loss
        log_sigmoid_backward softplus_backward hardshrink_backward softshrink_backward hardtanh_backward polar
        glu_jvp glu_backward_jvp rrelu_with_noise_functional quantized_batch_norm _sparse_csr_prod
        _sparse_softmax_backward_data _sparse_log_softmax_backward_data __lshift__ __rshift__ __ilshift__ __irshift__

        reshape reshape_as view_as flatten unflatten chunk split tensor_split to type_as mT numpy_T movedim moveaxis
        swapaxes expand_as broadcast_to narrow where square softmax log_softmax dropout feature_dropout layer_norm
        """
    )
)

FREE_OWN = frozenset(_words("norm_rows add_rows"))

FREE_QUANTIZED = frozenset(
    _words(
        """
        add add_relu mul mul_relu cat cat_relu batch_norm batch_norm_relu batch_norm1d batch_norm2d batch_norm3d
        layer_norm group_norm instance_norm relu6 leaky_relu hardswish elu sigmoid softmax dropout prelu celu
        embedding_byte embedding_4bit add_scalar mul_scalar clamp threshold max_pool1d max_pool2d
        """
    )
)

# Quantization that export writes out around the float ops, one element at a time.
_DECOMPOSED = _words("quantize_per dequantize_per choose_qparams convert_element_type fake_quant_per")

# Products, or calls of them, whose names start like those of a free family.
_COSTLY = frozenset(_words("_foreach_mm embedding_bag"))


def _is_pointwise(namespace: str, name: str) -> bool:
    """Whether torch tags any form of the op so: the tag is missing from some `out=`, in-place and backward forms."""
    packet = getattr(getattr(torch.ops, namespace), name.removesuffix("_backward"), None)
    overloads = packet.overloads() if packet is not None else ()
    return any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in overloads)


# Tagged as pointwise, yet they move elements; and arithmetic that some versions of torch do not tag.
_MOVES = frozenset(_words("clone where masked_fill positive"))
_ARITHMETIC = frozenset(
    _words(
        """
        abs gelu mish hardswish hardswish_backward glu glu_backward log_sigmoid_forward log_sigmoid_backward threshold
        _prelu_kernel _prelu_kernel_backward floor_divide square _add_relu native_dropout dropout _fused_dropout
        softplus_backward hardshrink_backward softshrink_backward hardtanh_backward linalg_cross
        """
    )
)


@cache
def is_arithmetic(name: str) -> bool:
    """Whether `aten::{name}` computes each element of its result from those of its inputs."""
    return name in _ARITHMETIC or (name not in _MOVES and _is_pointwise("aten", name))


def is_free(op: OpOverload) -> bool:
    """Whether the op is known to cost no FLOPs by convention."""
    namespace, _, name = op._schema.name.partition("::")
    name = name.removesuffix("_")
    if namespace in FREE_NAMESPACES:
        return True
    if namespace == "effaudit":
        return name in FREE_OWN
    if namespace == "quantized":
        return name in FREE_QUANTIZED or "pack" in name
    if namespace == "quantized_decomposed":
        return name.startswith(_DECOMPOSED)
    if op.is_view or _is_pointwise(namespace, name):
        return True
    if namespace != "aten" or name in _COSTLY:
        return False
    return name in FREE_NAMES or name.endswith("_copy") or name.startswith(FREE_PREFIXES)
