"""The dense model against attention written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from effaudit.errors import EffauditError
from effaudit.variants import dense
from effaudit.variants._attention import Attention
from effaudit.variants._blocks import Backbone
from effaudit.variants._layers import Block
from effaudit.workload import Batch, Routing, Task
from tests import makers
from tests.makers import FLOAT64

TASKS: list[Task] = ["classification", "causal_lm"]


def attention_by_hand(attn: Attention, x: Tensor, of: Batch, is_causal: bool) -> Tensor:
    """The outputs of the heads (B, H, T, dh), before the output projection."""
    q, k, v = (part.unflatten(-1, (attn.n_heads, -1)).transpose(1, 2) for part in attn.qkv(x).chunk(3, dim=-1))
    scores = q @ k.transpose(-1, -2) / math.sqrt(attn.head_dim)
    allowed = of.mask[:, None, None, :].expand_as(scores)
    if is_causal:
        allowed = allowed & torch.ones_like(scores, dtype=torch.bool).tril()
    return scores.masked_fill(~allowed, -torch.inf).softmax(dim=-1) @ v


def block_by_hand(block: Block, h: Tensor, of: Batch, is_causal: bool, head_gate: Tensor | None = None) -> Tensor:
    mixed = attention_by_hand(block.attn, block.norm1(h), of, is_causal)
    if head_gate is not None:
        mixed = mixed * head_gate[:, :, None, None]
    h = h + mixed.transpose(1, 2).flatten(2) @ block.attn.proj.weight.T
    return h + block.ffn.down(block.ffn.up(block.norm2(h)))


def model_by_hand(model: Backbone, of: Batch, head_gate: Tensor | None = None) -> Tensor:
    h = model.embed.weight[of.tokens] + model.position.weight[: of.tokens.shape[1]]
    for layer, block in enumerate(model.blocks):
        h = block_by_hand(block, h, of, model.is_causal, None if head_gate is None else head_gate[:, layer])
    if model.is_causal:
        return model.norm(h) @ model.embed.weight.T
    pooled = [model.norm(row)[real].mean(dim=0) for row, real in zip(h, of.mask, strict=True)]
    return model.classifier(torch.stack(pooled))


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("lengths", [(5, 5), (5, 3, 1), (1,)])
def test_equals_the_model_by_hand(task: Task, lengths: tuple[int, ...]) -> None:
    model, of = makers.build(makers.config("dense", task)), makers.batch(task, lengths)
    output = makers.run(model, of)
    assert makers.distance(output.logits, model_by_hand(model, of)) < FLOAT64
    assert output.routing == Routing(path=("full",) * makers.LAYERS)


@pytest.mark.parametrize("task", TASKS)
def test_head_gate_multiplies_the_heads_outputs(task: Task) -> None:
    model, of = makers.build(makers.config("dense", task)), makers.batch(task, (5, 2))
    gate = torch.rand(2, makers.LAYERS, makers.HEADS, dtype=torch.float64)
    gated = makers.run(model, of, Routing(head_gate=gate)).logits
    assert makers.distance(gated, model_by_hand(model, of, gate)) < FLOAT64
    assert makers.distance(gated, makers.run(model, of).logits) > 1e-3


def test_initialisation_follows_the_paper() -> None:
    torch.manual_seed(0)
    model = dense.build(makers.config("dense", "causal_lm", d_model=64, d_ff=256, n_layers=2))
    assert model.embed.weight.std().item() == pytest.approx(0.02, rel=0.1)
    for block in model.blocks:
        for weight in (block.attn.proj.weight, block.ffn.down.weight):
            assert weight.std().item() == pytest.approx(0.02 / math.sqrt(4), rel=0.05)
        assert block.attn.qkv.bias is None
        assert block.attn.proj.bias is None


def test_dropout_acts_in_training_only() -> None:
    model, of = makers.build(makers.config("dense", dropout=0.5)), makers.batch()
    assert torch.equal(makers.run(model, of).logits, makers.run(model, of).logits)
    model.train()
    assert not torch.equal(makers.run(model, of).logits, makers.run(model, of).logits)


def test_unknown_option_is_refused() -> None:
    made_from = makers.config("dense").model_copy(update={"options": {"executoin": "skip"}})
    with pytest.raises(EffauditError, match="executoin") as caught:
        dense.build(made_from)
    assert "execution" in caught.value.hint
