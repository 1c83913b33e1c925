"""Kernels that few devices have and packed weights, against the products that they stand for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from effaudit.flop_counting import count_flops
from effaudit.flop_counting.formulas import FORMULAS

B, H, G, L, S, E = 2, 4, 2, 16, 12, 8
CORE = 4 * B * H * L * S * E
aten = torch.ops.aten


def meta(*shape: int) -> Tensor:
    return torch.empty(*shape, device="meta", dtype=torch.float16)


def heads_first(n_kv: int = H) -> tuple[Tensor, Tensor, Tensor]:
    return meta(B, H, L, E), meta(B, n_kv, S, E), meta(B, n_kv, S, E)


def rows_first() -> tuple[Tensor, Tensor, Tensor]:
    return meta(B, L, H, E), meta(B, S, H, E), meta(B, S, H, E)


BACKENDS: dict[str, Callable[[], object]] = {
    "cpu": lambda: aten._scaled_dot_product_flash_attention_for_cpu(*heads_first()),
    "flash": lambda: aten._scaled_dot_product_flash_attention(*heads_first()),
    "flash, grouped": lambda: aten._scaled_dot_product_flash_attention(*heads_first(G)),
    "efficient": lambda: aten._scaled_dot_product_efficient_attention(*heads_first(), None, True),
    "cudnn": lambda: aten._scaled_dot_product_cudnn_attention(*heads_first(), None, True),
    "math": lambda: aten._scaled_dot_product_attention_math(*heads_first()),
    "flash kernel": lambda: aten._flash_attention_forward(*rows_first(), None, None, L, S, 0.0, False, False),
    "efficient kernel": lambda: aten._efficient_attention_forward(*rows_first(), *[None] * 5, 0.0, 0, True),
}


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_of_attention(backend: str) -> None:
    count = count_flops(BACKENDS[backend])
    assert (count.total, count.complete) == (CORE, True)
    assert FORMULAS["aten::_scaled_dot_product_attention_math_for_mps"](None, *heads_first()) == CORE


def _ends(*lengths: int) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def test_sequences_of_unequal_lengths_have_no_padding() -> None:
    q_ends, k_ends, pairs = _ends(3, 5, 8), _ends(2, 6, 4), 3 * 2 + 5 * 6 + 8 * 4
    q, k, v = meta(16, H, E), meta(12, H, E), meta(12, H, 6)
    forward, backward = 2 * pairs * H * (E + 6), 2 * pairs * H * (3 * E + 2 * 6)
    packed = [t[None] for t in (q, k, v)]
    flash, efficient = FORMULAS["aten::_flash_attention_forward"], FORMULAS["aten::_efficient_attention_forward"]
    assert flash(None, q, k, v, q_ends, k_ends, 8, 6, 0.0, False, False) == forward
    assert efficient(None, *packed, None, q_ends, k_ends, 8, 6, 0.0, 0) == forward
    assert FORMULAS["aten::_cudnn_attention_forward"](None, q, k, v, None, q_ends, k_ends, 8, 6, True) == forward
    flash_backward = FORMULAS["aten::_flash_attention_backward"]
    assert flash_backward(None, q, q, k, v, q, None, q_ends, k_ends, 8, 6, 0.0, False) == backward
    efficient_backward = FORMULAS["aten::_efficient_attention_backward"]
    assert efficient_backward(None, packed[0], *packed, None, q, q_ends, k_ends, 8, 6) == backward
    with pytest.raises(NotImplementedError, match="cache"):
        flash(None, q, k, v, q_ends, k_ends, 8, 6, 0.0, False, False, block_table=q_ends)


def test_backward_kernels_without_offsets() -> None:
    q, k, v = rows_first()
    expected = 2 * B * H * L * S * 5 * E
    flash_backward = FORMULAS["aten::_flash_attention_backward"]
    assert flash_backward(None, q, q, k, v, q, None, None, None, L, S, 0.0, False) == expected
    efficient_backward = FORMULAS["aten::_efficient_attention_backward"]
    assert efficient_backward(None, q, q, k, v, None, q, None, None, L, S) == expected


quantization = torch.ao.quantization
pytestmark = [
    pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.mark.parametrize("dtype", [torch.qint8, torch.float16])
@pytest.mark.parametrize(("kind", "n_gates"), [(nn.LSTM, 4), (nn.GRU, 3)])
def test_quantized_layers_of_cells(kind: type[nn.Module], n_gates: int, dtype: torch.dtype) -> None:
    layer = kind(8, 16, num_layers=2, bidirectional=True)
    (quantized,) = quantization.quantize_dynamic(nn.Sequential(layer), {kind}, dtype=dtype)
    per_step = 2 * 2 * n_gates * 16 * (8 + 16 + 32 + 16)
    sequences = [torch.rand(5, 8), torch.rand(3, 8)]
    for x, n_steps in ((torch.rand(5, 2, 8), 10), (nn.utils.rnn.pack_sequence(sequences), 8)):
        count = count_flops(quantized, x)
        assert (count.total, count.complete) == (n_steps * per_step, True)
        assert sum(count.integer_ops.values()) == (count.total if dtype is torch.qint8 else 0)


@pytest.mark.parametrize(("kind", "n_gates"), [(nn.LSTMCell, 4), (nn.GRUCell, 3), (nn.RNNCell, 1)])
def test_quantized_cells(kind: type[nn.Module], n_gates: int) -> None:
    quantized = quantization.quantize_dynamic(nn.Sequential(kind(8, 16)), {kind}, dtype=torch.qint8)
    count = count_flops(quantized, torch.rand(2, 8))
    assert count.total == sum(count.integer_ops.values()) == 2 * 2 * n_gates * 16 * 24


class Static(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.quant, self.dequant = quantization.QuantStub(), quantization.DeQuantStub()
        self.conv, self.transposed = nn.Conv1d(4, 8, 3), nn.ConvTranspose1d(8, 4, 3)
        self.fc = nn.Linear(4 * 10, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.dequant(self.fc(self.transposed(self.conv(self.quant(x))).flatten(1)))


def test_static_quantization_and_training_for_it() -> None:
    x, flops = torch.rand(2, 4, 10), 2 * 2 * 8 * 8 * 12 + 2 * 2 * 8 * 8 * 12 + 2 * 2 * 40 * 5
    torch.backends.quantized.engine = "fbgemm" if "fbgemm" in torch.backends.quantized.supported_engines else "qnnpack"
    model = Static().eval()
    model.qconfig = quantization.default_qconfig
    prepared = quantization.prepare(model)
    prepared(x)
    count = count_flops(quantization.convert(prepared), x)
    assert (count.total, sum(count.integer_ops.values()), count.complete) == (flops, flops, True)
    training = Static().train()
    training.qconfig = quantization.get_default_qat_qconfig()
    count = count_flops(quantization.prepare_qat(training), x)
    assert (count.total, count.integer_ops, count.complete) == (flops, {}, True)


def test_frozen_torchscript_is_counted_and_its_unseen_kernels_are_flagged() -> None:
    model, x = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU()).eval(), torch.rand(2, 4, 10, 10)
    frozen = torch.jit.freeze(torch.jit.script(model))
    flops = 2 * 2 * 8 * 64 * 36
    with torch.no_grad():
        assert count_flops(nn.Sequential(frozen), x).total == flops
        optimised = torch.jit.optimize_for_inference(torch.jit.script(model))
        count = count_flops(optimised, x)
    assert count.uncounted == {"prim::mkldnn_convolution": 1} or count.total == flops


def test_dot_products_of_rows() -> None:
    x, y = torch.rand(3, 4, 8), torch.rand(4, 8)
    for run, flops in (
        (lambda: torch.linalg.vecdot(x, y), 3 * 4 * 2 * 8),
        (lambda: torch.linalg.vecdot(x=x, y=x, dim=1), 3 * 8 * 2 * 4),
        (lambda: torch.linalg.vecdot(y[0], y[0]), 2 * 8),
        (lambda: torch.linalg.vecdot(x.cfloat(), y.cfloat()), 3 * 4 * 2 * 8),
    ):
        assert count_flops(run).total == flops


def test_outer_products_of_all_examples() -> None:
    a, b = torch.rand(3, 4), torch.rand(3, 5)
    assert count_flops(lambda: torch.vmap(torch.outer)(a, b)).total == 3 * 2 * 4 * 5
    for outer in (torch.outer, torch.ger, Tensor.outer, Tensor.ger):
        assert count_flops(outer, a[0], b[0]).total == 2 * 4 * 5
    assert count_flops(torch.mul, a, a).total == 0


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_backward_of_nested_attention() -> None:
    lengths = (3, 5)
    parts = [torch.nested.nested_tensor([torch.rand(n, 32) for n in lengths], layout=torch.jagged) for _ in range(3)]

    def run() -> None:
        q, k, v = (p.detach().requires_grad_().unflatten(-1, (4, 8)).transpose(1, 2) for p in parts)
        torch.nn.functional.scaled_dot_product_attention(q, k, v).values().sum().backward()

    count = count_flops(run)
    assert (count.total, count.complete) == (3 * 4 * 32 * sum(n * n for n in lengths), True)
