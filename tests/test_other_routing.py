"""Decisions drawn at the rates seen, and the most common ones, against what was seen."""

from __future__ import annotations

import torch
from torch import Tensor

from effaudit.other_routing import Decisions
from effaudit.workload import Batch, Routing
from tests import makers

L, T, B = 3, 8, 400
BATCH = makers.batch(lengths=(T,) * B)


def seen(routing: Routing, batch: Batch = BATCH) -> Decisions:
    decisions = Decisions(L)
    decisions.add(batch, routing)
    return decisions


def _tokens() -> tuple[Tensor, Tensor]:
    """Every second example keeps all tokens in layer 2, every fourth in layer 3."""
    kept = torch.zeros(B, T, L, dtype=torch.bool)
    kept[..., 0] = True
    kept[::2, :, 1] = True
    kept[::4, :, 2] = True
    return kept, torch.where(kept, 0.8, 0.1)


def test_random_tokens_keep_the_rate_of_each_layer_and_forget_the_rest() -> None:
    kept, gate = _tokens()
    decisions = seen(Routing(tokens=kept, gate=gate))
    assert decisions.rate == (0.5 + 0.25) / 2
    drawn = decisions.at_random(0)(BATCH)
    assert drawn.tokens is not None
    assert drawn.gate is not None
    rates = drawn.tokens.float().mean(dim=(0, 1))
    assert rates[0] == 1
    assert torch.allclose(rates[1:], torch.tensor([0.5, 0.25]), atol=0.03)  # 3 deviations of 3200 draws
    within = drawn.tokens[..., 1].float().mean(dim=1)
    assert abs(within.var() - 0.25 / T) < 0.01  # independent within an example, where all or none were kept
    assert torch.allclose(drawn.gate[drawn.tokens], torch.tensor(0.8))
    assert (drawn.gate[~drawn.tokens] == 0).all()


def test_a_seed_draws_the_same_again() -> None:
    decisions = seen(Routing(tokens=_tokens()[0]))
    one, same, other = (decisions.at_random(seed)(BATCH).tokens for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert decisions.at_random(1)(BATCH).gate is None  # none was seen


def test_padding_does_not_count_towards_the_rates() -> None:
    batch = makers.batch(lengths=(2, 4))
    kept = torch.ones(2, 4, L, dtype=torch.bool)
    kept[0, :2, 1:] = False
    assert seen(Routing(tokens=kept), batch).rate == 4 / 6


def test_most_common_token_pattern() -> None:
    drawn = seen(Routing(tokens=_tokens()[0])).most_common()(BATCH)
    assert drawn.tokens is not None
    assert drawn.tokens.unique(dim=0).flatten(0, 1).unique(dim=0).tolist() == [[True, False, False]]


def test_random_exits_keep_their_distribution() -> None:
    exits = torch.tensor([1, 1, 1, 3] * (B // 4))
    decisions = seen(Routing(exits=exits))
    assert decisions.rate == 0.25
    drawn = decisions.at_random(3)(BATCH).exits
    assert drawn is not None
    assert drawn.shape == (B,)
    assert (drawn == 2).sum() == 0
    assert abs((drawn == 3).float().mean() - 0.25) < 0.07
    most_common = decisions.most_common()(BATCH).exits
    assert most_common is not None
    assert most_common.unique().tolist() == [1]


def test_exits_of_tokens_are_drawn_by_token() -> None:
    drawn = seen(Routing(exits=torch.full((B, T), 2))).at_random(0)(BATCH).exits
    assert drawn is not None
    assert drawn.shape == (B, T)


def test_random_heads_keep_their_numbers_and_lose_their_names() -> None:
    heads = torch.zeros(B, L, 4, dtype=torch.bool)
    heads[:, :, 0] = True
    heads[: B // 4, 1, 1:3] = True  # a quarter runs three heads in the second layer
    gates = torch.where(heads, 0.5, 0.25)
    decisions = seen(Routing(heads=heads, head_gate=gates))
    assert decisions.rate == (1 + 1.5 + 1) / 12
    drawn = decisions.at_random(0)(BATCH)
    assert drawn.heads is not None
    assert drawn.head_gate is not None
    numbers = drawn.heads.sum(dim=2)
    assert set(numbers[:, 0].tolist()) == {1}
    assert set(numbers[:, 1].tolist()) == {1, 3}
    assert abs((numbers[:, 1] == 3).float().mean() - 0.25) < 0.07
    assert (drawn.heads[:, 0].float().mean(dim=0) - 0.25).abs().max() < 0.08
    assert torch.allclose(drawn.head_gate[drawn.heads], torch.tensor(0.5))
    common = decisions.most_common()(BATCH).heads
    assert common is not None
    assert common[0].tolist() == [[True, False, False, False]] * 3
