"""Token-Selective Attention against the paper's equations."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException, FakeTensorMode

from effaudit.variants import _visibility, dense, tsa
from effaudit.variants._blocks import task_loss
from effaudit.workload import Routing, Task
from tests import makers
from tests.makers import FLOAT64
from tests.variants.test_dense import attention_by_hand

TASKS: list[Task] = ["classification", "causal_lm"]
MODES = ["soft", "ffn", "ffn+query"]


def _dense_twin(model: Any) -> Any:
    twin = dense.build(makers.config("dense", model.config.task, n_layers=model.config.n_layers)).double().eval()
    twin.load_state_dict({name: model.state_dict()[name] for name in twin.state_dict()})
    return twin


def test_alpha_at_initialisation() -> None:
    """Soft gates claim 27 % at birth, while nothing would be skipped."""
    size = {"vocab_size": 65, "d_model": 256, "n_layers": 6, "n_heads": 8, "d_ff": 1024, "max_tokens": 128}
    torch.manual_seed(0)
    model = tsa.build(makers.config("tsa", "causal_lm", **size)).eval()
    routing = makers.run(model, makers.batch("causal_lm", (16, 16))).routing
    assert routing.gate is not None
    assert routing.tokens is not None
    assert routing.gate[..., 1:].mean().item() == pytest.approx(0.73, abs=0.01)
    assert routing.tokens.all()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("mode", MODES)
def test_open_gates_equal_dense(task: Task, mode: str) -> None:
    model, of = makers.build(makers.config("tsa", task, {"mode": mode})), makers.batch(task, (5, 3))
    _force_halting(model, -1e4)
    output = makers.run(model, of)
    assert output.routing.gate is not None
    assert (output.routing.gate == 1).all()
    assert makers.distance(output.logits, makers.run(_dense_twin(model), of).logits) < FLOAT64


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("mode", MODES)
def test_closed_gates_leave_the_stems_state(task: Task, mode: str) -> None:
    model, of = makers.build(makers.config("tsa", task, {"mode": mode})), makers.batch(task, (5, 5))
    _force_halting(model, 1e4)
    output = makers.run(model, of)
    assert output.routing.tokens is not None
    assert not output.routing.tokens[..., 1:].any()
    assert output.routing.tokens[..., 0].all()
    with torch.inference_mode():
        stem = model.blocks[0](model.embedded(of), model.visibility(of))
        assert makers.distance(output.logits, model.head(stem, of.mask)) < FLOAT64


def _force_halting(model: Any, logit: float) -> None:
    for router in model.routers:
        torch.nn.init.zeros_(router.halt.weight)
        torch.nn.init.constant_(router.halt.bias, logit)


@pytest.mark.parametrize("gate", ["scaled", "binary"])
@pytest.mark.parametrize("mode", MODES)
def test_equals_the_equations(mode: str, gate: str) -> None:
    """h += g * Attn(LN1(h)); h += g * FFN(LN2(h)), with g from the router's MLP on the raw stream."""
    options = {"mode": mode, "gate": gate, "threshold": 0.6}
    model, of = makers.build(makers.config("tsa", "causal_lm", options)), makers.batch("causal_lm", (6, 4))
    output = makers.run(model, of)
    with torch.inference_mode():
        h = model.embedded(of)
        for layer, block in enumerate(model.blocks):
            factor = torch.ones_like(h[..., 0])
            if layer > 0:
                router = model.routers[layer - 1]
                p = torch.sigmoid(router.halt(torch.relu(router.hidden(h))))[..., 0]
                active = (p < 0.6) | ~of.mask
                assert torch.equal(output.routing.tokens[..., layer], active)
                torch.testing.assert_close(output.routing.gate[..., layer], 1 - p)
                soft = 1 - p if mode == "soft" or gate == "scaled" else 1
                factor = factor * soft * (1 if mode == "soft" else active)
            mixed = attention_by_hand(block.attn, block.norm1(h), of, is_causal=True)
            h = h + factor[..., None] * block.attn.proj(mixed.transpose(1, 2).flatten(2))
            h = h + factor[..., None] * block.ffn(h, block.norm2)
        logits = model.head(h, of.mask)
    assert makers.distance(output.logits[of.mask], logits[of.mask]) < FLOAT64


@pytest.mark.parametrize(("threshold", "kept"), [(0.0, 0), (1.0, 10)])
def test_threshold_limits(threshold: float, kept: int) -> None:
    model = makers.build(makers.config("tsa", options={"threshold": threshold}, n_layers=2))
    routing = makers.run(model, makers.batch(lengths=(5, 5))).routing
    assert routing.tokens is not None
    assert int(routing.tokens[..., 1].sum()) == kept


def test_given_tokens_without_gates_are_hard() -> None:
    model, of = makers.build(makers.config("tsa")), makers.batch()
    routing = Routing(tokens=torch.ones(3, 5, makers.LAYERS, dtype=torch.bool))
    given = makers.run(model, of, routing).logits
    assert makers.distance(given, makers.run(_dense_twin(model), of).logits) < FLOAT64


def test_training_uses_soft_gates() -> None:
    hard = makers.build(makers.config("tsa", options={"mode": "ffn+query"}))
    soft = makers.build(makers.config("tsa", options={"mode": "soft"}))
    of = makers.batch()
    expected = makers.run(soft, of).logits
    assert makers.distance(makers.run(hard, of).logits, expected) > 1e-3
    assert makers.distance(makers.run(hard.train(), of).logits, expected) < FLOAT64


@pytest.mark.parametrize("task", TASKS)
def test_loss_adds_lambda_times_alpha_of_real_tokens(task: Task) -> None:
    model = makers.build(makers.config("tsa", task, {"lambda": 0.25})).train()
    of = makers.batch(task, (5, 2))
    output = makers.run(model, of)
    gate = output.routing.gate
    assert gate is not None
    alphas = [gate[b, t, layer] for b, n in enumerate((5, 2)) for t in range(n) for layer in (1, 2)]
    expected = task_loss(output.logits, of) + 0.25 * sum(alphas) / len(alphas)
    assert model.loss(of, 0.0).item() == pytest.approx(expected.item(), rel=1e-12)


def test_no_annealing_unless_asked_for() -> None:
    model = makers.build(makers.config("tsa")).train()
    for progress in (0.0, 0.5, 1.0):
        model.loss(makers.batch(), progress)
        assert model.temperature.item() == 1


@pytest.mark.parametrize(
    ("progress", "temperature"),
    [
        (0, 1),
        (tsa.ANNEAL_START, 1),
        ((tsa.ANNEAL_START + tsa.ANNEAL_STOP) / 2, 0.01**0.5),
        (tsa.ANNEAL_STOP, 0.01),
        (1, 0.01),
    ],
)
def test_annealed_temperature(progress: float, temperature: float) -> None:
    model = makers.build(makers.config("tsa", options={"anneal_to": 0.01})).train()
    model.loss(makers.batch(), progress)
    assert model.temperature.item() == pytest.approx(temperature)


def test_annealed_gates_agree_with_the_hard_rule() -> None:
    model, of = makers.build(makers.config("tsa", options={"anneal_to": 1e-6})).train(), makers.batch()
    model.loss(of, 1.0)
    routing = makers.run(model, of).routing
    assert routing.gate is not None
    assert routing.tokens is not None
    torch.testing.assert_close(routing.gate[..., 1:], routing.tokens[..., 1:].double(), atol=1e-3, rtol=0)


@pytest.mark.parametrize("gate", ["scaled", "binary"])
def test_annealed_training_ends_on_the_path_of_inference(gate: str) -> None:
    of = makers.batch(lengths=(5, 3))
    for anneal_to, is_hardened in ((0.5, True), (1.0, False)):
        model = makers.build(makers.config("tsa", options={"anneal_to": anneal_to, "gate": gate})).train()
        model.loss(of, tsa.ANNEAL_STOP)
        trained, inferred = makers.run(model.train(), of), makers.run(model.eval(), of)
        assert inferred.routing.tokens is not None
        assert not inferred.routing.tokens.all()
        assert (makers.distance(trained.logits, inferred.logits) < FLOAT64) is is_hardened


def test_hardened_gates_pass_gradients_to_routers_of_halted_tokens() -> None:
    model = makers.build(makers.config("tsa", options={"anneal_to": 0.9, "lambda": 0})).train()
    _force_halting(model, 2.0)
    model.loss(makers.batch(), 1.0).backward()
    for router in model.routers:
        assert router.halt.bias.grad.abs().item() > 0


def test_temperature_lies_among_the_weights() -> None:
    """So that inference goes on at the gate that training ended with."""
    assert "temperature" in makers.build(makers.config("tsa")).state_dict()


def test_one_layer_has_nothing_to_gate() -> None:
    model, of = makers.build(makers.config("tsa", n_layers=1)).train(), makers.batch()
    assert model.loss(of, 0.5).item() == task_loss(makers.run(model, of).logits, of).item()


@pytest.mark.parametrize(
    ("gate", "anneal_to", "agrees"), [("binary", 0.01, True), ("scaled", 0.01, False), ("binary", 1.0, False)]
)
def test_a_finished_binary_gate_claims_what_it_skips(gate: str, anneal_to: float, agrees: bool) -> None:
    model, of = makers.build(makers.config("tsa", options={"gate": gate, "anneal_to": anneal_to})), makers.batch()
    makers.randomise(model)
    before = makers.run(model, of)
    model.finish()
    after = makers.run(model, of)
    assert after.routing.gate is not None
    assert after.routing.tokens is not None
    assert torch.equal(after.routing.gate[of.mask], after.routing.tokens[of.mask].double()) is agrees
    assert torch.equal(after.logits, before.logits)


@pytest.mark.parametrize("mode", ["ffn", "ffn+query"])
def test_room_for_all_that_the_rule_keeps_changes_nothing(mode: str) -> None:
    of = makers.batch("causal_lm", (8, 5, 3))
    plain = makers.build(makers.config("tsa", "causal_lm", {"mode": mode}))
    roomy = makers.build(makers.config("tsa", "causal_lm", {"mode": mode, "capacity": 0.99}))
    one, other = makers.run(plain, of), makers.run(roomy, of)
    assert one.routing.tokens is not None
    assert not one.routing.tokens[of.mask].all()
    assert makers.n_differing_decisions(one.routing, other.routing, of.mask) == 0
    assert makers.distance(one.logits[of.mask], other.logits[of.mask]) < FLOAT64


def test_beyond_the_room_those_of_the_least_gates_are_halted() -> None:
    of = makers.batch("causal_lm", (8, 8))
    model = makers.build(makers.config("tsa", "causal_lm", {"threshold": 1.0, "capacity": 0.5, "mode": "ffn+query"}))
    routing = makers.run(model, of).routing
    assert routing.tokens is not None
    assert routing.gate is not None
    kept, gate = routing.tokens[:, :, 1:], routing.gate[:, :, 1:]
    assert (kept.sum(dim=1) == 4).all()
    least_kept = gate.masked_fill(~kept, 2.0).amin(dim=1)
    most_halted = gate.masked_fill(kept, -1.0).amax(dim=1)
    assert (least_kept > most_halted).all()


@pytest.mark.parametrize("mode", ["ffn", "ffn+query"])
@pytest.mark.parametrize("gate", ["scaled", "binary"])
def test_with_room_fixed_beforehand_the_host_waits_for_no_device(
    mode: str, gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fake tensors have no values: whatever needs one on the host raises. Places are found as on a GPU."""
    monkeypatch.setattr(_visibility, "true_places", _visibility.found_places)

    of = makers.batch("causal_lm", (8, 8))

    def run(options: dict[str, Any]) -> Any:
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = tsa.build(makers.config("tsa", "causal_lm", {"mode": mode, "gate": gate, **options})).eval()
            return makers.run(model, of)

    assert run({"capacity": 0.5}).logits.shape == (2, 8, makers.VOCAB)
    with pytest.raises((DataDependentOutputException, DynamicOutputShapeException)):
        run({})


@pytest.mark.parametrize(("capacity", "n_tokens"), [(0.6, 5), (0.7, 10), (0.1, 30), (0.55, 100), (0.29, 100)])
def test_as_many_run_as_there_are_places_whatever_the_rounding(capacity: float, n_tokens: int) -> None:
    of = makers.batch("causal_lm", (n_tokens, n_tokens))
    options = {"threshold": 1.0, "capacity": capacity}
    model = makers.build(makers.config("tsa", "causal_lm", options, max_tokens=n_tokens))
    routing = makers.run(model, of).routing
    assert routing.tokens is not None
    assert (routing.tokens[:, :, 1:].sum(dim=1) == round(capacity * n_tokens)).all()
