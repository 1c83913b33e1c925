"""Models made ready to run otherwise than as written: quantised, compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from effaudit import execution, units
from effaudit.errors import EffauditError
from effaudit.flop_counting import count_flops
from effaudit.parameters import count_parameters, weight_bytes
from effaudit.profile_spec import AuditSpec, ModelSpec, validated
from effaudit.variants._own import OwnModel
from tests import makers

CPU = AuditSpec(device="cpu")


def spec(variant: str = "dense", **run: Any) -> ModelSpec:
    return validated(ModelSpec, {"name": variant, "variant": variant, "run": run}, "model")


def test_nothing_is_done_unasked() -> None:
    model = makers.build(makers.config("tsa"))
    assert execution.prepared(model, spec("tsa", dtype="bfloat16", threads=2), CPU) is model


def test_quantised_linear_layers_answer_nearly_alike_and_cost_the_same() -> None:
    torch.manual_seed(0)
    plain = OwnModel("m", nn.Sequential(nn.Embedding(13, 64), nn.Linear(64, 32), nn.Linear(32, 3)), None).eval()
    batch = makers.batch()
    before, flops = plain(batch).logits.detach().clone(), count_flops(plain, batch).total
    n, n_bytes = count_parameters(plain), weight_bytes(plain)
    quantised = execution.prepared(plain, spec("python", quantize="int8"), CPU)
    after = quantised(batch).logits
    assert not torch.equal(after, before)
    torch.testing.assert_close(after, before, atol=0.05, rtol=0.1)
    assert count_flops(quantised, batch).total == flops
    assert count_parameters(quantised) == n
    weights = 64 * 32 + 32 * 3
    assert weight_bytes(quantised) == n_bytes - 3 * weights  # a byte instead of four


@pytest.mark.parametrize("task", ["classification", "causal_lm"])
def test_all_linear_layers_of_dense_are_quantised(task: Any) -> None:
    config, batch = makers.config("dense", task, d_model=32, d_ff=64, n_heads=4), makers.batch(task)
    plain = makers.build(config, dtype=torch.float32)
    with torch.inference_mode():
        before, flops = plain(batch).logits, count_flops(plain, batch).total
        n, n_bytes = count_parameters(plain), weight_bytes(plain)
        quantised = execution.prepared(plain, spec(quantize="int8"), CPU)
        after, count = quantised(batch).logits, count_flops(quantised, batch)
    torch.testing.assert_close(after, before, atol=0.2, rtol=0.2)
    assert not torch.equal(after, before)
    assert (count.total, count.complete, count_parameters(quantised)) == (flops, True, n)
    classifier = 32 * config.n_classes if config.n_classes else 0  # the tied head stays the embedding's
    assert weight_bytes(quantised) == n_bytes - 3 * (config.n_layers * (4 * 32 * 32 + 2 * 32 * 64) + classifier)


def test_what_is_not_quantised_is_told() -> None:
    named = spec(quantize="int8")
    whole = execution.prepared(nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 8), nn.LayerNorm(8)), named, CPU)
    assert execution.left_out(whole, named) == ()
    attention = nn.MultiheadAttention(8, 2)  # keeps a matrix of its own, and takes what its linear layer looks like
    part = execution.prepared(nn.Sequential(nn.Linear(8, 8, bias=False), attention, nn.Conv1d(8, 4, 2)), named, CPU)
    (caution,) = execution.left_out(part, named)
    n_left, n_biases = 3 * 64 + 64 + 64, 24 + 8 + 4
    assert units.percent(n_left / (64 + n_left + n_biases)) in caution.text
    assert "MultiheadAttention, NonDynamicallyQuantizableLinear, Conv1d" in caution.text
    assert execution.left_out(part, spec()) == ()


@pytest.mark.parametrize(
    ("model", "named", "message"),
    [
        (nn.Identity(), spec("tsa", quantize="int8"), "quantize does not go with `tsa`"),
        (nn.Identity(), spec("early_exit", compile=True), "compile does not go with `early_exit`"),
        (nn.Identity(), spec("dense", quantize="int8"), "no linear layer"),
        (nn.Linear(2, 2), spec("dense", quantize="int8", dtype="bfloat16"), "in float32 alone"),
    ],
)
def test_what_cannot_be_done_is_refused(model: nn.Module, named: ModelSpec, message: str) -> None:
    with pytest.raises(EffauditError, match=message) as error:
        execution.prepared(model, named, CPU)
    assert error.value.hint


def test_compile_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setattr(execution, "cpp_compiler", lambda: None)
    with pytest.raises(EffauditError, match=r"no C\+\+ compiler"):
        execution.prepared(nn.Linear(2, 2), spec("dense", compile=True), CPU)


def test_what_is_compiled_is_the_users_model_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution, "cpp_compiler", lambda: "c++")
    compiled: list[nn.Module] = []
    monkeypatch.setattr(torch, "compile", lambda module: compiled.append(module) or module)
    inner = nn.Linear(2, 2)
    model = OwnModel("m", inner, None)
    assert execution.prepared(model, spec("python", compile=True), CPU) is model
    assert compiled == [inner]
