"""The benchmark of skipping: drawn decisions keep their rates, counts are those of what runs, the table says both."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest
import torch

from effaudit.bench import _skipping_cells as cells
from effaudit.bench import _turns, skipping
from effaudit.bench._skipping_cells import Match, Shape
from effaudit.bench._turns import Timing, in_turns

SHAPE = Shape(8, 16, 64)


def test_runs_take_turns_and_the_order_turns_too() -> None:
    order: list[str] = []
    in_turns([lambda: order.append("a"), lambda: order.append("b")], Timing(3, 100.0))
    # A first run of each is not timed, nor the run before each timed one.
    assert "".join(order) == "ab" + "aabb" + "bbaa" + "aabb"


def test_rounds_end_when_the_ratios_are_sure() -> None:
    steps = count()
    times = in_turns([lambda: None, lambda: None], Timing(50, 1000.0, clock=lambda: float(next(steps))))
    assert [len(each) for each in times] == [_turns.MIN_ROUNDS] * 2


def test_drawn_decisions_keep_their_rates() -> None:
    tokens = cells.drawn_tokens(Shape(32, 128, 64), 0.34).tokens
    assert tokens is not None
    assert tokens[..., 0].all()
    assert tokens[..., 1:].double().mean().item() == pytest.approx(0.34, abs=0.01)
    for mean in (2, 3, 4):
        for is_per_token in (True, False):
            exits = cells.drawn_exits(SHAPE, mean, is_per_token).exits
            assert exits is not None
            assert exits.double().mean().item() == mean


@pytest.mark.parametrize(("is_shared", "n_sets"), [(True, 4), (False, 8)])
def test_drawn_heads(is_shared: bool, n_sets: int) -> None:
    heads = cells.drawn_heads(Shape(8, 16, 32 * 24), 0.25, is_shared)
    assert heads.sum(dim=2).unique().tolist() == [6]
    assert len(heads[:, 0].unique(dim=0)) == n_sets


def _matches() -> list[Match]:
    return [
        *cells.tsa([SHAPE], (0.5,)),
        *cells.budgetformer([SHAPE], (0.5,)),
        *cells.early_exit([SHAPE], (3,)),
        *cells.soft([SHAPE]),
    ]


def test_contenders_cost_what_their_decisions_leave() -> None:
    ratios = {
        (match.part, each.setting): each.flops / match.contenders[0].flops
        for match in _matches()
        for each in match.contenders[1:]
    }
    assert len(ratios) == 2 + 2 + 2 + 1
    assert ratios["early_exit", "per example, mean 3 of 6"] == pytest.approx(0.5, abs=0.01)
    assert ratios["budgetformer", "k/H=0.5 own sets"] == pytest.approx(0.5, abs=0.01)
    assert ratios["tsa", "ffn+query α=0.5"] < ratios["tsa", "ffn α=0.5"] < 1 < ratios["soft", "soft"] < 1.05


def test_contenders_answer_as_the_masked_path() -> None:
    """What is timed is no other model than the one whose answers are tested."""
    batch, routing = cells.drawn_batch(SHAPE, "causal_lm"), cells.drawn_tokens(SHAPE, 0.5)
    skip, masked = (
        cells.model("tsa", SHAPE, "causal_lm", gate="binary", execution=execution) for execution in ("skip", "masked")
    )
    with torch.inference_mode():
        torch.testing.assert_close(skip(batch, routing).logits, masked(batch, routing).logits, atol=1e-5, rtol=0)


def test_table_and_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skipping, "QUICK", [SHAPE])
    monkeypatch.setattr(torch, "set_num_threads", lambda n: None)
    table = skipping.run(["--quick", "--only", "soft", "--rounds", "5", "--out", str(tmp_path / "rows.json")])
    assert table.splitlines()[2].startswith("| soft | B=8 T=16 d=64 | soft |")
    assert '"n_rounds": 5' in (tmp_path / "rows.json").read_text(encoding="utf-8")


def test_realised_fraction() -> None:
    row = skipping.Row("tsa", "", "", 0.8, 0.79, 0.81, 0.75, "skip", 1.0, None, 512, 20)
    assert row.realised == pytest.approx(0.8)
    assert "| 0.80 |" in skipping.table([row])
    assert skipping.Row("soft", "", "", 1.02, 1.0, 1.04, 1.016, "soft", 1.0, None, None, 20).realised is None
