"""FLOP counts against closed formulas, in every mode; what is not counted is said; nothing is left behind."""

from __future__ import annotations

import random
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.modules import module as module_globals
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import flop_registry

from effaudit.bench._flop_rows import ROWS, B, Calls, D, T
from effaudit.flop_counting import count_flops, counted_pass

GRAD_MODES = [torch.enable_grad, torch.no_grad, torch.inference_mode]
GradMode = Callable[[], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def _nothing_leaks():
    yield
    assert not _get_current_dispatch_mode_stack()
    assert not module_globals._global_forward_hooks
    assert not module_globals._global_forward_pre_hooks
    assert not module_globals._global_forward_hooks_always_called
    assert threading.Thread.start.__module__ == "threading"
    assert "outer" not in vars(Tensor)


def linear(n_in: int = D, n_out: int = D) -> nn.Linear:
    return nn.Linear(n_in, n_out)


@pytest.mark.parametrize("is_hooked", [False, True])
@pytest.mark.parametrize("is_training", [False, True])
@pytest.mark.parametrize("grad_mode", GRAD_MODES)
@pytest.mark.parametrize("row", ROWS)
def test_rows_of_the_table(row: str, grad_mode: GradMode, is_training: bool, is_hooked: bool) -> None:
    flops = ROWS[row].flops
    model = ROWS[row].model().train(is_training)
    for module in model.modules():
        if is_hooked:
            module.register_forward_hook(lambda module, args, output: None)
    with grad_mode():
        count = count_flops(model, ROWS[row].input())
    assert (count.total, count.macs, count.complete) == (flops, flops // 2, True)
    assert sum(count.by_op.values()) == count.by_module[""].flops == flops


def ones(*shape: int, **kwargs: object) -> Tensor:
    return torch.ones(*shape, **kwargs)


def sdpa(*shape: int, backend: SDPBackend | None = None, **kwargs: object) -> Callable[[], Tensor]:
    def run() -> Tensor:
        q = torch.ones(*shape)
        if backend is None:
            return F.scaled_dot_product_attention(q, q, q, **kwargs)
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, q, q, **kwargs)

    return run


A, C = ones(4, 8), ones(8, 5)
OPS: dict[str, tuple[Callable[..., object], int]] = {
    "mm": (lambda: A @ C, 320),
    "mm into out": (lambda: torch.mm(A, C, out=torch.empty(4, 5)), 320),
    "in place": (lambda: torch.zeros(4, 5).addmm_(A, C), 320),
    "addmm": (lambda: torch.addmm(ones(5), A, C), 320),
    "bmm": (lambda: ones(2, 4, 8) @ ones(2, 8, 5), 640),
    "addbmm": (lambda: torch.addbmm(ones(4, 4), ones(2, 4, 8), ones(2, 8, 4)), 512),
    "baddbmm": (lambda: torch.baddbmm(ones(2, 4, 4), ones(2, 4, 8), ones(2, 8, 4)), 512),
    "mv": (lambda: A @ C[:, 0], 64),
    "addmv": (lambda: torch.addmv(ones(4), A, ones(8)), 64),
    "dot": (lambda: ones(8) @ ones(8), 16),
    "vdot": (lambda: torch.vdot(ones(8), ones(8)), 16),
    "outer": (lambda: torch.outer(ones(4), ones(5)), 40),
    "outer method": (lambda: ones(4).outer(ones(5)), 40),
    "addr": (lambda: torch.addr(ones(4, 5), ones(4), ones(5)), 40),
    "broadcast": (lambda: ones(3, 1, 4, 8) @ ones(2, 8, 5), 2 * 6 * 160),
    "einsum of three": (lambda: torch.einsum("ij,jk,lk->il", A, C, ones(4, 5)), 320 + 160),
    "tensordot": (lambda: torch.tensordot(A, C, 1), 320),
    "multi_dot": (lambda: torch.linalg.multi_dot([A, C, ones(5, 4)]), 320 + 160),
    "bilinear": (lambda: nn.Bilinear(4, 5, 6)(ones(2, 4), ones(2, 5)), 2 * 2 * 6 * 5 * (4 + 1)),
    "conv1d": (lambda: nn.Conv1d(4, 8, 3)(ones(2, 4, 10)), 3_072),
    "conv1d depthwise": (lambda: nn.Conv1d(4, 4, 3, groups=4)(ones(2, 4, 10)), 384),
    "conv2d same": (lambda: nn.Conv2d(4, 8, 3, padding="same")(ones(2, 4, 10, 10)), 2 * 2 * 8 * 100 * 36),
    "conv3d": (lambda: nn.Conv3d(4, 8, 3)(ones(2, 4, 4, 4, 4)), 2 * 2 * 8 * 8 * 108),
    "conv transposed": (lambda: nn.ConvTranspose1d(4, 8, 3)(ones(2, 4, 10)), 2 * 2 * 4 * 10 * 24),
    "conv transposed, grouped": (lambda: nn.ConvTranspose1d(4, 8, 3, groups=2)(ones(2, 4, 10)), 2 * 2 * 4 * 10 * 12),
    "sdpa": (sdpa(2, 4, 16, 8), 65_536),
    "sdpa of 12 heads": (sdpa(1, 12, 64, 64), 12_582_912),
    "sdpa odd": (sdpa(2, 5, 9, 4), 12_960),
    "sdpa causal is not halved": (sdpa(2, 4, 16, 8, is_causal=True), 65_536),
    "sdpa masked": (sdpa(2, 4, 16, 8, attn_mask=ones(16, 16, dtype=torch.bool)), 65_536),
    "sdpa math": (sdpa(2, 4, 16, 8, backend=SDPBackend.MATH), 65_536),
    "sdpa with dropout": (sdpa(2, 4, 16, 8, dropout_p=0.5), 65_536),
    "sdpa grouped": (
        lambda: F.scaled_dot_product_attention(ones(2, 4, 16, 8), *[ones(2, 2, 16, 8)] * 2, enable_gqa=True),
        65_536,
    ),
    "sdpa twice as long": (sdpa(2, 4, 32, 8), 262_144),
    "lstm": (lambda: nn.LSTM(8, 16)(ones(5, 2, 8)), 30_720),
    "lstm both ways": (
        lambda: nn.LSTM(8, 16, num_layers=2, bidirectional=True)(ones(5, 2, 8)),
        2 * 10 * 2 * 64 * (8 + 16 + 32 + 16),
    ),
    "lstm projected": (lambda: nn.LSTM(8, 16, proj_size=4)(ones(5, 2, 8)), 2 * 10 * (64 * 8 + 64 * 4 + 16 * 4)),
    "lstm packed": (lambda: nn.LSTM(8, 16)(nn.utils.rnn.pack_sequence([ones(5, 8), ones(3, 8)])), 2 * 8 * 64 * 24),
    "lstm cell": (lambda: nn.LSTMCell(8, 16)(ones(2, 8)), 2 * 2 * 64 * 24),
    "gru": (lambda: nn.GRU(8, 16)(ones(5, 2, 8)), 23_040),
    "rnn": (lambda: nn.RNN(8, 16)(ones(5, 2, 8)), 7_680),
    "embedding bag moves data": (lambda: nn.EmbeddingBag(10, 4)(torch.zeros(2, 3, dtype=torch.long)), 0),
    "embedding bag weighted": (
        lambda: F.embedding_bag(
            torch.zeros(2, 3, dtype=torch.long), ones(10, 4), per_sample_weights=ones(2, 3), mode="sum"
        ),
        2 * 6 * 4,
    ),
    "sparse": (lambda: torch.sparse.mm(torch.eye(4).to_sparse(), ones(4, 8)), 2 * 4 * 8),
    "vmap": (lambda: torch.vmap(lambda a: a @ C)(ones(3, 4, 8)), 3 * 320),
    "per element": (lambda: F.gelu(F.layer_norm(A, (8,))).softmax(-1).cumsum(0).topk(2), 0),
    "bfloat16": (lambda: A.bfloat16() @ C.bfloat16(), 320),
}


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:LSTM with projections")
@pytest.mark.parametrize("grad_mode", GRAD_MODES)
@pytest.mark.parametrize("op", OPS)
def test_ops(op: str, grad_mode: GradMode) -> None:
    run, flops = OPS[op]
    with grad_mode():
        count = count_flops(run)
    assert (count.total, count.uncounted) == (flops, {})


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("grad_mode", GRAD_MODES)
def test_flex_attention_is_counted_dense(grad_mode: GradMode) -> None:
    q = ones(2, 4, 16, 8)
    with grad_mode():
        count = count_flops(flex_attention, q, q, q)
    assert (count.total, count.complete) == (65_536, True)


@pytest.mark.parametrize("grad_mode", GRAD_MODES)
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_have_no_padding(layout: torch.layout, grad_mode: GradMode) -> None:
    x = torch.nested.nested_tensor([ones(3, D), ones(5, D)], layout=layout)
    with grad_mode():
        count = count_flops(nn.Linear(D, D, bias=False), x)
    assert (count.total, count.complete) == (2 * 8 * D * D, True)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_attention_of_nested_tensors() -> None:
    x = torch.nested.nested_tensor([ones(3, D), ones(5, D)], layout=torch.jagged)
    q = x.unflatten(-1, (4, 8)).transpose(1, 2)
    count = count_flops(F.scaled_dot_product_attention, q, q, q)
    assert (count.total, count.complete) == (4 * D * (9 + 25), True)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_encoder_that_drops_padding_is_counted_without_it() -> None:
    layer = nn.TransformerEncoderLayer(D, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    padding = torch.zeros(B, T, dtype=torch.bool)
    padding[0, 10:] = True
    with torch.no_grad():
        count = count_flops(model, torch.rand(B, T, D), src_key_padding_mask=padding)
    assert count.total == 2 * sum(8 * D * D * n + 4 * D * n * n + 8 * D * 32 * 2 * n // 2 for n in (10, 16))


def test_fused_layer_has_the_tree_of_the_plain_one() -> None:
    layer = nn.TransformerEncoderLayer(D, 4, 64, batch_first=True).eval()
    x = torch.rand(B, T, D)
    plain = count_flops(layer, x).by_module
    with torch.no_grad():
        fused = count_flops(layer, x).by_module
    assert {path: row.flops for path, row in fused.items()} == {path: row.flops for path, row in plain.items()}
    assert fused["linear1"].calls == 1


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_integer_products_are_labelled() -> None:
    linear_int8 = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(8, 4)), {nn.Linear})
    count = count_flops(linear_int8, ones(3, 8))
    assert (count.total, count.integer_ops) == (192, {"quantized.linear_dynamic": 192})
    lstm_int8 = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(8, 16)), {nn.LSTM})
    assert count_flops(lstm_int8, ones(5, 2, 8)).total == 30_720
    a, b = ones(32, 8, dtype=torch.int8), ones(8, 16, dtype=torch.int8)
    assert count_flops(torch._int_mm, a, b).integer_ops == {"aten._int_mm": 8_192}
    assert count_flops(torch.mm, a.long(), b.long()).integer_ops == {"aten.mm": 8_192}
    assert count_flops(torch.mm, a.float(), b.float()).integer_ops == {}


def test_compiled_modules_count_as_the_plain_ones() -> None:
    plain = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    n_compilations = 0

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., object]:
        nonlocal n_compilations
        n_compilations += 1
        return graph.forward

    compiled = torch.compile(plain, backend=backend)
    x = ones(2, 8)
    compiled(x)
    before = n_compilations
    assert count_flops(compiled, x) == count_flops(plain, x)
    assert count_flops(nn.Sequential(compiled), x).by_module["0.1"].flops == 256
    compiled(x)
    assert n_compilations == before


def test_ops_that_importing_the_compiler_runs_are_not_the_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    compiler = ModuleType("torch._dynamo")
    compiler.__spec__ = SimpleNamespace(_initializing=True)

    def forward() -> None:
        A @ C
        monkeypatch.setitem(sys.modules, "torch._dynamo", compiler)
        A @ C  # as part of the import
        compiler.__spec__._initializing = False
        A @ C

    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "set_stance", lambda stance: nullcontext())
        assert count_flops(forward).total == 2 * 320


@pytest.mark.parametrize(("sign", "flops"), [(1, 2_048), (-1, 2_304)])
@pytest.mark.parametrize("grad_mode", GRAD_MODES)
def test_cond_counts_the_branch_that_ran(sign: int, flops: int, grad_mode: GradMode) -> None:
    def forward(m: Calls, x: Tensor) -> object:
        return torch.cond(x.sum() > 0, lambda x: F.pad(m.a(x), (0, 8)), lambda x: m.b(x), (x,))

    model = Calls(forward, a=linear(8, 64), b=linear(8, 72))
    with grad_mode():
        count = count_flops(model, sign * ones(2, 8))
    assert (count.total, count.complete) == (flops, True)


def test_backward_and_recomputation_count_when_they_run() -> None:
    layer = nn.Linear(8, 8, bias=False)
    x = ones(2, 8, requires_grad=True)
    assert count_flops(lambda: layer(x).sum().backward()).total == 3 * 256
    assert count_flops(lambda: checkpoint(layer, x, use_reentrant=True).sum().backward()).total == 4 * 256
    conv = nn.Conv1d(4, 8, 3, groups=2)
    data = ones(2, 4, 10, requires_grad=True)
    assert count_flops(lambda: conv(data).sum().backward()).total == 3 * 3_072 // 2
    q = ones(2, 4, 16, 8, requires_grad=True)
    attended = count_flops(lambda: F.scaled_dot_product_attention(q, q, q).sum().backward())
    assert (attended.total, attended.complete) == (65_536 * 7 // 2, True)
    lstm = nn.LSTM(8, 16)
    steps = ones(5, 2, 8, requires_grad=True)
    assert count_flops(lambda: lstm(steps)[0].sum().backward()).total == 3 * 30_720


def test_meta_and_fake_tensors() -> None:
    meta = nn.TransformerEncoderLayer(D, 4, 64, batch_first=True, device="meta").eval()
    with torch.no_grad():
        assert count_flops(meta, torch.ones(B, T, D, device="meta")).total == 589_824
    with FakeTensorMode():
        fake = nn.TransformerEncoderLayer(D, 4, 64, batch_first=True)
        x = torch.ones(B, T, D)
        assert count_flops(fake, x).total == 589_824
    assert count_flops(fake, x).total == 589_824


def test_shared_modules_belong_to_each_caller() -> None:
    fc = nn.Linear(100, 100, bias=False)
    parents = [Calls(lambda m, x: m.fc(x), fc=fc) for _ in range(3)]
    count = count_flops(Calls(lambda m, x: [p(x) for p in m.parts], parts=nn.ModuleList(parents)), ones(1, 100))
    assert count.total == 60_000
    assert [count.by_module[f"parts.{i}.fc"].own for i in range(3)] == [20_000] * 3
    assert count.by_module["parts"].flops == 60_000


def test_module_that_is_held_but_not_registered_has_a_row_under_its_caller() -> None:
    fc = nn.Linear(8, 8, bias=False)
    inner = Calls(lambda m, x: m.held[0](x))
    inner.held = [fc]
    count = count_flops(nn.Sequential(inner, fc), ones(2, 8))
    assert {path: row.flops for path, row in count.by_module.items()} == {"": 512, "0": 256, "0.(1)": 256, "1": 256}


def test_work_outside_modules_is_the_parents_own() -> None:
    model = nn.Sequential(Calls(lambda m, x: m.fc.forward(x) @ C[:, :4], fc=linear(8, 8)), nn.ReLU(), linear(4, 4))
    count = count_flops(model, ones(2, 8))
    assert count.by_module["0"].own == 256 + 128
    assert count.by_module["0.fc"].calls == 0
    assert (count.by_module["1"].flops, count.by_module["1"].calls) == (0, 1)
    _assert_sums(count.by_module)


def _assert_sums(rows: dict) -> None:
    """Own plus children is the total, at every node."""
    for path, row in rows.items():
        children = [r.flops for p, r in rows.items() if p and p.rpartition(".")[0] == path]
        assert row.flops == row.own + sum(children), path


def test_module_that_failed_inside_does_not_stay_open() -> None:
    def failing(m: Calls, x: Tensor) -> None:
        m.fc(x)
        raise ValueError("inside")

    def forward(m: Calls, x: Tensor) -> Tensor:
        with pytest.raises(ValueError, match="inside"):
            m.bad(x)
        return x @ x.T

    bad = Calls(failing, fc=linear(8, 8))
    count = count_flops(Calls(forward, bad=bad), ones(2, 8))
    assert (count.by_module[""].own, count.by_module["bad.fc"].own) == (2 * 4 * 8, 256)


def test_bound_methods_and_callables_are_counted() -> None:
    model = nn.Sequential(linear(8, 8))
    assert count_flops(model.forward, ones(2, 8)).by_module["0"].flops == 256
    assert count_flops(lambda: model(ones(2, 8))).by_module["(Sequential).0"].flops == 256


@torch.library.custom_op("effaudit_test::cube", mutates_args=())
def cube(x: Tensor) -> Tensor:
    return x @ x @ x


def test_op_without_formula_is_listed_with_its_calls() -> None:
    count = count_flops(lambda: cube(cube(ones(4, 4))) @ ones(4, 4))
    assert (count.total, count.uncounted, count.complete) == (128, {"effaudit_test.cube": 2}, False)
    assert count_flops(torch.linalg.inv, torch.eye(3)).uncounted == {"aten.linalg_inv_ex": 1}


@pytest.mark.parametrize("how", ["thread", "pool", "new pool"])
def test_work_in_other_threads_is_counted_where_it_was_started(how: str) -> None:
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()  # the worker exists before the count

    def forward(m: Calls, x: Tensor) -> None:
        def work() -> None:
            m.fc(x) @ ones(8, 8)

        if how == "thread":
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        elif how == "pool":
            pool.submit(work).result()
        else:
            with ThreadPoolExecutor(1) as own_pool:
                own_pool.submit(work).result()

    with pool:
        count = count_flops(nn.Sequential(Calls(forward, fc=linear(8, 8))), ones(2, 8))
    assert (count.total, count.complete) == (512, True)
    assert (count.by_module["0"].own, count.by_module["0.fc"].own) == (256, 256)


def test_work_that_cannot_be_followed_is_flagged() -> None:
    fc, go, done, inputs = linear(8, 8), threading.Event(), threading.Event(), []

    def serve() -> None:
        go.wait()
        fc(inputs[0])
        done.set()

    def forward(m: Calls, x: Tensor) -> None:
        inputs.append(x)
        go.set()
        done.wait()

    server = threading.Thread(target=serve)
    server.start()
    count = count_flops(Calls(forward, fc=fc), ones(2, 8))
    server.join()
    assert count.uncounted == {"Linear in another thread": 1}

    release = threading.Event()
    late = threading.Thread(target=release.wait)
    count = count_flops(Calls(lambda m, x: late.start()), ones(1))
    release.set()
    late.join()
    assert count.uncounted == {"work in threads that outlived the call": 1}


def test_counting_in_a_thread_of_its_own() -> None:
    with ThreadPoolExecutor(2) as pool:
        counts = list(pool.map(lambda n: count_flops(linear(n, 8), ones(2, n)).total, [8, 16, 24, 32]))
    assert counts == [256, 512, 768, 1_024]


class Stateful(nn.Module):
    """Everything that a forward pass may disturb: buffers, random generators, train flags."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = linear(8, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("last", None)
        self.drop.eval()
        self.fc.register_forward_hook(lambda module, args, output: None)

    def forward(self, x: Tensor, fail: bool = False) -> Tensor:
        self.seen += 1
        self.last = x
        self.drop.train()
        random.random()
        np.random.rand()
        y = self.drop(self.norm(self.fc(x)))
        if fail:
            raise KeyError("as it was")
        return y


def _fingerprint(model: nn.Module) -> dict[str, object]:
    modules = list(model.modules())
    return {
        "state": {k: v.clone() for k, v in model.state_dict().items()},
        "tensors": [id(t) for m in modules for t in (*m._parameters.values(), *m._buffers.values())],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in modules],
        "flags": [m.training for m in modules],
        "attributes": [sorted(vars(m)) for m in modules],
        "parameters": [(p.requires_grad, p.device, p.dtype, p.grad) for p in model.parameters()],
        "global hooks": len(module_globals._global_forward_hooks) + len(module_globals._global_forward_pre_hooks),
        "grad": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "generators": (random.getstate(), torch.get_rng_state(), repr(np.random.get_state())),
        "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
        "functions": [threading.Thread.start, ThreadPoolExecutor.submit, torch.outer, torch.ger, torch.bmm, Tensor.ger],
        "modes": len(_get_current_dispatch_mode_stack()),
    }


def _is_same(a: object, b: object) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_is_same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_is_same, a, b))
    return a == b


def test_no_trace_is_left() -> None:
    model = Stateful()
    before = _fingerprint(model)
    counts = [count_flops(model, torch.rand(4, 8)) if i != 1 else None for i in range(3)]
    torch.set_rng_state(before["generators"][1])  # the inputs drew from it
    assert counts[0] == counts[2]
    assert _is_same(before, _fingerprint(model))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_no_trace_is_left_on_torchscript() -> None:
    model = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).train())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    assert count_flops(model, torch.rand(4, 8)).total == 2 * 4 * 8 * 8
    assert _is_same(before, dict(model.state_dict()))


def test_no_trace_is_left_when_forward_raises() -> None:
    model, x = Stateful(), torch.rand(4, 8)
    before = _fingerprint(model)
    with pytest.raises(KeyError, match="as it was"):
        count_flops(model, x, fail=True)
    assert _is_same(before, _fingerprint(model))


def test_no_trace_is_left_when_the_second_batch_raises() -> None:
    model, x = Stateful(), torch.rand(4, 8)
    before = _fingerprint(model)
    with counted_pass(model) as counter:
        with counter:
            model(x)
        with pytest.raises(KeyError), counter:
            model(x, fail=True)
    assert counter.count().total == 2 * 2 * 4 * 8 * 8
    assert _is_same(before, _fingerprint(model))


def test_no_trace_is_left_from_a_thread() -> None:
    model, x = Stateful(), torch.rand(4, 8)
    before = _fingerprint(model)
    thread = threading.Thread(target=count_flops, args=(model, x))
    thread.start()
    thread.join()
    assert _is_same(before, _fingerprint(model))
    with pytest.raises(RuntimeError):
        torch.bmm(ones(3, 4), ones(4, 5))


def test_model_is_never_copied() -> None:
    class Uncopyable(nn.Linear):
        def __deepcopy__(self, memo: object) -> None:
            raise AssertionError("copied")

    assert count_flops(Uncopyable(8, 8), ones(2, 8)).total == 256


def test_formulas_agree_with_torch_where_both_have_one() -> None:
    """One formula an op is used, so agreement is a check of ours, not a second count."""
    from effaudit.flop_counting.mode import _planned

    a, c = ones(2, 4, 8), ones(2, 8, 5)
    calls = {
        torch.ops.aten.mm.default: (a[0], c[0]),
        torch.ops.aten.addmm.default: (ones(5), a[0], c[0]),
        torch.ops.aten.bmm.default: (a, c),
        torch.ops.aten.baddbmm.default: (ones(2, 4, 5), a, c),
        torch.ops.aten.convolution.default: (*(ones(2, 4, 10), ones(8, 2, 3), None, [1], [0], [1], False, [0], 2),),
    }
    q, k, v, grad = (torch.ones(2, 4, *shape, device="meta") for shape in ((7, 8), (9, 8), (9, 6), (7, 6)))
    for backend in ("flash", "efficient", "cudnn"):
        packet = getattr(torch.ops.aten, f"_scaled_dot_product_{backend}_attention")
        backward = getattr(torch.ops.aten, f"_scaled_dot_product_{backend}_attention_backward")
        assert _planned(packet.default).formula(None, q, k, v) == flop_registry[packet](q, k, v)
        assert _planned(backward.default).formula(None, grad, q, k, v) == flop_registry[backward](grad, q, k, v)
    for op, args in calls.items():
        out, ours = op(*args), _planned(op).formula
        assert ours is not None
        assert ours(out, *args) == flop_registry[op.overloadpacket](*args, out_val=out)


sizes = st.integers(1, 6)


@settings(max_examples=40, deadline=None)
@given(
    batch=sizes, tokens=sizes, heads=sizes, width=sizes, hidden=sizes, classes=sizes, grad=st.sampled_from(GRAD_MODES)
)
def test_random_transformers_match_the_closed_formula(
    batch: int, tokens: int, heads: int, width: int, hidden: int, classes: int, grad: GradMode
) -> None:
    d = heads * width
    model = nn.Sequential(
        nn.Linear(3, d),
        Calls(lambda m, x: m.a(x, x, x)[0], a=nn.MultiheadAttention(d, heads, batch_first=True)),
        nn.Sequential(nn.LayerNorm(d), nn.Linear(d, hidden), nn.GELU(), nn.Linear(hidden, d)),
        nn.Linear(d, classes),
    ).eval()
    with grad():
        count = count_flops(model, torch.rand(batch, tokens, 3))
    rows = batch * tokens
    layers = [3 * d, 4 * d * d + 2 * tokens * d, 2 * d * hidden, d * classes]
    assert [count.by_module[str(i)].flops for i in range(4)] == [2 * rows * n for n in layers]
    assert (count.total, count.complete) == (2 * rows * sum(layers), True)
    _assert_sums(count.by_module)
