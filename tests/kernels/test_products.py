"""Our products of chosen rows and heads against torch's ops in float64, and their use by models."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from effaudit.device import threads
from effaudit.flop_counting import count_flops, counted_pass
from effaudit.kernels import library as libraries
from effaudit.kernels import products
from effaudit.kernels.library import library
from effaudit.kernels.products import add_chain, chain, from_heads, is_usable, is_usable_for_heads, onto_heads
from tests import makers
from tests.makers import FLOAT32

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler that makes the kernels")
M = 300  # rows: more than the kernel holds at once, and no multiple of what it takes together
CHOSEN = [None, [], [4], [0, 2, 3, 6], sorted({i * i % M for i in range(M)}), list(range(M))]
FUNCTIONS = {"none": lambda x: x, "gelu": F.gelu, "relu": F.relu}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with threads(1):
        yield


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def index_of(chosen: list[int] | None) -> Tensor | None:
    return None if chosen is None else torch.tensor(chosen, dtype=torch.int64)


def layers_of(*widths: int, has_bias: bool = True) -> list[Tensor | None]:
    made: list[Tensor | None] = []
    for n, (inputs, outputs) in enumerate(pairwise(widths)):
        made += [drawn(outputs, inputs, seed=n) / inputs**0.5, drawn(outputs, seed=9 + n) if has_bias else None]
    return made


def expected_of(x: Tensor, layers: list[Tensor | None], activation: str) -> Tensor:
    x = x.double()
    for n in range(0, len(layers), 2):
        weight, bias = layers[n : n + 2]
        assert weight is not None
        x = F.linear(x, weight.double(), None if bias is None else bias.double())
        x = FUNCTIONS[activation](x) if n == 0 else x
    return x


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("chosen", CHOSEN)
@pytest.mark.parametrize("activation", FUNCTIONS)
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("widths", [(16, 1), (16, 7), (48, 65), (272, 16, 1), (32, 520, 24), (528, 300, 528)])
def test_rows_go_through_the_layers(
    widths: tuple[int, ...], has_bias: bool, activation: Any, chosen: list[int] | None
) -> None:
    x, layers, index = drawn(M, widths[0]), layers_of(*widths, has_bias=has_bias), index_of(chosen)
    found = chain(x, layers, activation, index)
    close(found, expected_of(x if index is None else x[index], layers, activation))


@pytest.mark.parametrize("chosen", CHOSEN)
@pytest.mark.parametrize("is_gated", [True, False])
@pytest.mark.parametrize("is_given", [True, False])
@pytest.mark.parametrize("widths", [(48, 48), (48, 104, 48), (528, 64, 528)])
def test_outputs_are_added_onto_their_rows(
    widths: tuple[int, ...], is_given: bool, is_gated: bool, chosen: list[int] | None
) -> None:
    onto, layers, index = 3 + drawn(M, widths[-1]), layers_of(*widths), index_of(chosen)
    n = M if index is None else len(index)
    places = torch.arange(M) if index is None else index
    gate, x = drawn(n, seed=3) if is_gated else None, drawn(n, widths[0], seed=4) if is_given else None
    norm, eps = ((), 0.0) if is_given else ((drawn(widths[0], seed=5), drawn(widths[0], seed=6)), 1e-5)
    rows = onto[places] if x is None else x
    if norm:
        rows = F.layer_norm(rows.double(), widths[:1], norm[0].double(), norm[1].double(), eps)
    changes = expected_of(rows, layers, "gelu") * (1 if gate is None else gate[:, None].double())
    expected = onto.double().index_add(0, places, changes)
    add_chain(onto, layers, "gelu", index, gate, x, norm, eps)
    close(onto, expected)


def test_what_is_normed_may_be_returned_too() -> None:
    x, layers, norm = 5 + drawn(M, 32), layers_of(32, 8), (drawn(32, seed=5), drawn(32, seed=6))
    normed = F.layer_norm(x.double(), (32,), norm[0].double(), norm[1].double(), 1e-5)
    close(chain(x, layers, norm=norm, eps=1e-5), expected_of(normed, layers, "none"))


def test_the_activation_is_right_everywhere() -> None:
    x = torch.linspace(-12, 12, 4096)[:, None] * torch.eye(16)[0]
    weight = torch.eye(16)[:1]
    found = chain(x, (weight, None), "gelu")[:, 0].double()
    assert (found - F.gelu(x[:, 0].double())).abs().max() < 1.5e-6
    assert found[0] == 0
    assert found[-1] == 12


def test_rows_may_go_onto_themselves() -> None:
    onto, layers = drawn(M, 64), layers_of(64, 64)
    expected = onto.double() + expected_of(onto, layers, "none")
    add_chain(onto, layers)
    close(onto, expected)


def test_gate_0_leaves_a_row_as_it_is() -> None:
    onto, x, gate = drawn(3, 16), torch.full((3, 16), torch.inf), torch.tensor([0.0, 1.0, 0.0])
    before = onto.clone()
    add_chain(onto, layers_of(16, 16), gate=gate, x=x)
    assert torch.equal(onto[[0, 2]], before[[0, 2]])


@pytest.mark.parametrize("widths", [(64, 256, 64), (272, 37), (64, 32, 8)])
def test_a_row_is_the_same_in_any_company(widths: tuple[int, ...]) -> None:
    """So that skipping, micro-batches and batch sizes change no answer; few outputs of many rows go another way."""
    x, layers = drawn(M, widths[0]), layers_of(*widths)
    whole = chain(x, layers, "gelu")
    index = torch.tensor([1, 17, 250, 299])
    assert torch.equal(chain(x, layers, "gelu", index), whole[index])


@pytest.mark.parametrize("k", [2, 4, 6])
def test_heads_are_projected_alone(k: int) -> None:
    n_heads, dim, width, n_tokens = 6, 8, 48, 37
    examples = torch.tensor([2, 0, 3])
    heads = torch.stack([torch.randperm(n_heads, generator=torch.Generator().manual_seed(i))[:k] for i in range(3)])
    x, fused, proj = drawn(4, n_tokens, width), drawn(3 * width, width, seed=1), drawn(width, width, seed=2)
    onto = drawn(4, n_tokens, width, seed=3)
    found = from_heads(x, examples, heads, fused, dim)
    parts, columns = fused.double().view(3, n_heads, dim, width), proj.double().view(width, n_heads, dim)
    expected = onto.double()
    for i, example in enumerate(examples.tolist()):
        own = x[example].double() @ parts[:, heads[i]].reshape(-1, width).T
        close(found[i], own)
        expected[example] += own[:, : k * dim] @ columns[:, heads[i]].reshape(width, -1).T
    mixed = found[..., : k * dim]
    assert onto_heads(onto, examples, heads, proj, dim, mixed) is None
    torch.testing.assert_close(onto.double(), expected, rtol=1e-4, atol=1e-3)
    assert count_flops(from_heads, x, examples, heads, fused, dim).total == 2 * 3 * n_tokens * width * 3 * k * dim
    assert count_flops(onto_heads, onto, examples, heads, proj, dim, mixed).total == 2 * 3 * n_tokens * k * dim * width


def test_flops_are_those_of_the_rows() -> None:
    x, layers, index = drawn(M, 32), layers_of(32, 40, 32), torch.tensor([1, 5])
    assert count_flops(chain, x, layers, "relu", index).total == 2 * 2 * 2 * 32 * 40
    assert count_flops(add_chain, x, layers, "relu").total == 2 * M * 2 * 32 * 40


def test_where_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "is_quicker", lambda: True)
    x = torch.zeros(2, 4, 32)
    assert is_usable(x)
    assert is_usable_for_heads(x, 8, 2)
    assert not is_usable_for_heads(x, 8, 1)
    assert not is_usable_for_heads(x, 4, 4)
    assert not is_usable(x[..., :24].contiguous())
    assert not is_usable(x[..., :16])
    assert not is_usable(x.double())
    with threads(2):
        assert not is_usable(x)
    monkeypatch.setattr(products, "is_quicker", lambda: False)
    assert not is_usable(x)


@pytest.mark.parametrize("is_quicker", [True, False])
def test_the_quicker_library_is_found_once(is_quicker: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By a clock on which these kernels take 1 s and torch's libraries half as long or twice."""
    now, readings = [0.0], [0]

    def clock() -> float:
        own, other = 1.0, 2.0 if is_quicker else 0.5
        now[0] += (0.0, own, 0.0, other)[readings[0] % 4]
        readings[0] += 1
        return now[0]

    monkeypatch.setattr(libraries, "_compiled", lambda: tmp_path / "kernels.so")
    assert libraries.remembered("a", lambda: products._measured(clock)) is is_quicker
    assert libraries.remembered("a", lambda: pytest.fail("measured again")) is is_quicker
    assert readings[0] == 4 * products.TRIALS


def test_what_cannot_be_kept_is_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libraries, "_compiled", lambda: tmp_path / "no folder" / "kernels.so")
    assert [libraries.remembered("a", lambda found=found: found) for found in (True, False)] == [True, False]


def test_trials_are_nobodys_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither counted as the model's nor of its type."""
    monkeypatch.setattr(libraries, "remembered", lambda _, measure: measure())
    monkeypatch.setattr(products, "TRIALS", 1)
    products.is_quicker.cache_clear()
    x = drawn(4, 32)
    torch.set_default_dtype(torch.float64)
    try:
        assert count_flops(lambda: (is_usable(x), x @ x.T)).total == 2 * 4 * 4 * 32
    finally:
        torch.set_default_dtype(torch.float32)
        products.is_quicker.cache_clear()


def test_parameters_of_another_layout_or_type() -> None:
    x, turned = drawn(5, 16), drawn(16, 48).t()
    close(chain(x, (turned, None)), x.double() @ turned.t().double())
    with pytest.raises(TypeError, match="float32"):
        chain(x, (turned.half(), None))
    onto = drawn(5, 16)
    expected = onto + 0.5 * (x @ turned[:16].t())
    add_chain(onto, (turned[:16], None), gate=torch.tensor([0.5]), x=x)
    close(onto, expected.double())


MODELS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "dense": ("dense", "causal_lm", {}),
    "tsa": ("tsa", "causal_lm", {}),
    "tsa, ffn": ("tsa", "causal_lm", {"mode": "ffn", "gate": "binary"}),
    "tsa, soft": ("tsa", "causal_lm", {"mode": "soft"}),
    "early exit": ("early_exit", "causal_lm", {"state": "copy"}),
    "early exit, blind": ("early_exit", "causal_lm", {"state": "copy", "criterion": "saturation"}),
    "early exit of examples": ("early_exit", "classification", {"state": "copy"}),
    "budgetformer": ("budgetformer", "classification", {}),
    "tsa, masked": ("tsa", "causal_lm", {"execution": "masked"}),
    "tsa, room": ("tsa", "causal_lm", {"capacity": 0.6}),
    "early exit, masked": ("early_exit", "causal_lm", {"state": "copy", "execution": "masked"}),
    "early exit, auto": ("early_exit", "causal_lm", {"state": "copy", "execution": "auto"}),
    "early exit, oracle": ("early_exit", "causal_lm", {"state": "oracle"}),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_answer_and_cost_as_without_them(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variant, task, options = MODELS[name]
    config = makers.config(variant, task, d_model=64, n_heads=8, options=options)
    model, of = makers.build(config, dtype=torch.float32), makers.batch(task, (5, 2, 1), 0)
    routing = makers.random_routing(config, of, 0.5, 0)

    def run() -> Any:
        with torch.inference_mode():
            return model(of, routing)

    def cost() -> tuple[int, bool, int, int, bool]:
        with counted_pass(run, has_elements=True) as counter, counter:
            run()
        count = counter.count()
        assert count.elements is not None
        is_own = any("chain" in op or "heads" in op for op in count.by_op)
        moved = 0 if variant == "budgetformer" else count.elements[""].moved  # whose heads others move together
        return count.total, count.complete, count.elements[""].flops, moved, is_own

    monkeypatch.setattr(products, "is_quicker", lambda: True)
    found, own = run(), cost()
    monkeypatch.setattr(products, "is_usable", lambda *_: False)
    monkeypatch.setattr(products, "is_usable_for_heads", lambda *_: False)
    plain, of_plain = run(), cost()
    is_real = of.mask if task == "causal_lm" else slice(None)
    assert makers.distance(found.logits[is_real], plain.logits[is_real]) <= FLOAT32
    assert own[:4] == of_plain[:4]
    assert own[1]
    assert (own[4], of_plain[4]) == (True, False)
