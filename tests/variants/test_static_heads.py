"""Static head pruning: importance against finite differences, pruned against masked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from effaudit.errors import EffauditError
from effaudit.variants import static_heads
from effaudit.variants._blocks import task_loss
from effaudit.variants.static_heads import choose_heads, head_importance, prune
from effaudit.workload import Batch, Routing, Task
from tests import makers
from tests.makers import FLOAT64, HEADS, LAYERS

TASKS: list[Task] = ["classification", "causal_lm"]


def _loss(dense: Any, of: Batch, example: int, mask: Tensor) -> float:
    n = int(of.mask[example].sum())
    one = Batch(
        tokens=of.tokens[example : example + 1, :n],
        mask=of.mask[example : example + 1, :n],
        labels=of.labels[example : example + 1] if of.labels.dim() == 1 else of.labels[example : example + 1, :n],
        index=of.index[example : example + 1],
        is_padded=False,
    )
    return task_loss(makers.run(dense, one, Routing(head_gate=mask)).logits, one).item()


@pytest.mark.parametrize("task", TASKS)
def test_importance_equals_finite_differences(task: Task) -> None:
    dense = makers.build(makers.config("dense", task, n_layers=2))
    batches = [makers.batch(task, (5, 2), seed) for seed in (1, 2)]
    step, total = 1e-5, torch.zeros(2, HEADS)
    for layer in range(2):
        for head in range(HEADS):
            change = torch.zeros(1, 2, HEADS, dtype=torch.float64)
            change[0, layer, head] = step
            for of in batches:
                for example in range(2):
                    up, down = (_loss(dense, of, example, 1 + sign * change) for sign in (1, -1))
                    total[layer, head] += abs(up - down) / (2 * step)
    expected = total / total.norm(dim=1, keepdim=True)
    torch.testing.assert_close(head_importance(dense, batches), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("task", TASKS)
def test_pruned_equals_dense_with_those_heads_masked(task: Task) -> None:
    dense = makers.build(makers.config("dense", task))
    pruned = prune(makers.config("static_heads", task), dense, [makers.batch(task, seed=3)]).double()
    assert len({tuple(heads) for heads in pruned.kept}) > 1  # not just the first heads of each layer
    assert sum(map(len, pruned.kept)) == LAYERS * HEADS // 2
    pruned.load_state_dict(_slices(dense, pruned))  # in float64, as prune makes float32
    of = makers.batch(task, (5, 3, 1))
    output = makers.run(pruned.eval(), of)
    heads = output.routing.heads
    assert heads is not None
    masked = makers.run(dense, of, Routing(head_gate=heads.double())).logits
    assert makers.distance(output.logits, masked) < FLOAT64


def _slices(dense: Any, pruned: Any) -> dict[str, Tensor]:
    """The dense state without the pruned heads, cut row by row."""
    width = makers.D_MODEL // HEADS
    state = dict(dense.state_dict())
    for layer, kept in enumerate(pruned.kept):
        rows = [head * width + i for head in kept for i in range(width)]
        qkv, proj = f"blocks.{layer}.attn.qkv.weight", f"blocks.{layer}.attn.proj.weight"
        state[qkv] = torch.cat([part[rows] for part in state[qkv].chunk(3)])
        state[proj] = state[proj][:, rows]
        for name in (qkv, proj):
            torch.testing.assert_close(pruned.state_dict()[name], state[name], atol=1e-6, rtol=1e-6)
    return state


def test_kept_heads_are_written_into_the_config() -> None:
    dense = makers.build(makers.config("dense"))
    pruned = prune(makers.config("static_heads", options={"head_fraction": 0.25}), dense, [makers.batch()])
    assert static_heads.build(pruned.config).kept == pruned.kept
    assert pruned.config.options["kept_heads"] == [list(heads) for heads in pruned.kept]


def test_every_layer_keeps_a_head() -> None:
    importance = torch.tensor([[0.9, 0.8, 0.7, 0.6], [0.01, 0.03, 0.02, 0.0], [0.5, 0.4, 0.3, 0.2]])
    assert choose_heads(importance, 0.5) == ((0, 1, 2, 3), (1,), (0,))
    assert choose_heads(importance, 0.01) == ((0,), (1,), (0,))
    assert choose_heads(importance, 1.0) == ((0, 1, 2, 3),) * 3
    assert all(choose_heads(torch.zeros(2, 4), 0.25))


@pytest.mark.parametrize("fraction", [0.1, 0.3, 0.5, 0.8])
def test_fraction_holds_over_all_layers(fraction: float) -> None:
    kept = choose_heads(torch.rand(3, 8), fraction)
    assert sum(map(len, kept)) == max(round(fraction * 24), 3)


def test_without_data_the_first_heads_stay() -> None:
    model = static_heads.build(makers.config("static_heads", options={"head_fraction": 0.5}))
    assert model.kept == ((0, 1),) * LAYERS
    assert static_heads.build(makers.config("static_heads", options={"head_fraction": 0.01})).kept == ((0,),) * LAYERS


@pytest.mark.parametrize("kept", [((0,),), ((0,), (), (1,)), ((0,), (4,), (1,)), ((0,), (1, 1), (2,))])
def test_heads_that_do_not_fit_are_refused(kept: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(EffauditError, match="does not fit 3 layers of 4 heads"):
        static_heads.build(makers.config("static_heads", options={"kept_heads": kept}))


def test_only_a_dense_model_is_pruned() -> None:
    with pytest.raises(EffauditError, match="prunes a dense model, not a model of variant `tsa`"):
        static_heads.initialise(makers.config("static_heads"), makers.build(makers.config("tsa")), [])
