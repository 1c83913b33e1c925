"""The routing meter on constructed decisions, and the TSA paper's α and TLOps (token-layer operations)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from effaudit.meters import routing
from effaudit.profile_spec import AuditSpec
from effaudit.record import Findings, Measurement
from effaudit.workload import Batch, Output, Routing, Workload
from tests import makers

L = 6


class Decided(nn.Module):
    """Answers nothing and decides what it is told to."""

    def __init__(self, decide: Callable[[Batch], Routing]) -> None:
        super().__init__()
        self.decide = decide

    def forward(self, batch: Batch, routing: Routing | None = None) -> Output:
        return Output(torch.zeros(batch.n_examples, 2), self.decide(batch))


def _work(decide: Callable[[Batch], Routing], *batches: Batch, n_layers: int = L, is_skipping: bool = True) -> Workload:
    return Workload(
        name="decided",
        model=Decided(decide),
        task="classification",
        n_layers=n_layers,
        device=torch.device("cpu"),
        execution="skip",
        is_skipping_tokens=is_skipping,
        is_characters=False,
        batches=lambda: iter(batches),
        flops=lambda batch, routing, execution: torch.zeros(batch.n_examples, dtype=torch.int64),
    )


def _found(work: Workload) -> Findings:
    (found,) = routing.measure([work], AuditSpec())
    return found


def _measured(work: Workload) -> dict[str, Measurement]:
    return {m.name.removeprefix("routing."): m for m in _found(work).measurements}


def _kept_share(alpha: float, n_layers: int = L, n_tokens: int = 1000) -> Callable[[Batch], Routing]:
    """In each gated block the first alpha * T tokens stay; the stem keeps all."""

    def decide(batch: Batch) -> Routing:
        kept = torch.arange(n_tokens)[None, :, None] < round(alpha * n_tokens)
        tokens = kept.repeat(batch.n_examples, 1, n_layers)
        tokens[..., 0] = True
        return Routing(tokens=tokens, gate=torch.where(tokens, 0.9, 0.4))

    return decide


@pytest.mark.parametrize(("alpha", "saved"), [(0.341, 0.549), (0.726, 0.228), (0.833, 0.139), (0.395, 0.504)])
def test_tlops_of_the_paper(alpha: float, saved: float) -> None:
    work = _work(_kept_share(alpha), makers.batch(lengths=(1000,)))
    found = _measured(work)
    assert found["alpha_hard"].value == pytest.approx(alpha)
    assert found["tlops_saved"].value == pytest.approx(saved, abs=5e-4)
    assert found["tlops_saved"].value == pytest.approx(5 / 6 * (1 - alpha))
    assert found["alpha_soft"].value == pytest.approx(0.9 * alpha + 0.4 * (1 - alpha))
    assert found["tlops_saved"].better == "higher"


def test_nothing_is_saved_where_all_is_computed() -> None:
    found = _measured(_work(_kept_share(0.5), makers.batch(lengths=(1000,)), is_skipping=False))
    assert found["alpha_hard"].value == pytest.approx(0.5)
    assert found["tlops_saved"].value == 0


def test_corrected_early_exit_alpha() -> None:
    """The paper's 0.728 with the stem in it is (6 * 0.728 - 1) / 5 = 0.674 of the gated blocks, 27.2 % saved."""
    layers_run = torch.tensor([4] * 632 + [5] * 368)  # mean 4.368 = 6 * 0.728

    def decide(batch: Batch) -> Routing:
        return Routing(exits=layers_run[None])

    found = _measured(_work(decide, makers.batch(lengths=(1000,))))
    assert found["exit_layer"].value == pytest.approx(6 * 0.728)
    assert found["alpha_hard"].value == pytest.approx((6 * 0.728 - 1) / 5)
    assert found["alpha_hard"].value == pytest.approx(0.674, abs=5e-4)
    assert found["tlops_saved"].value == pytest.approx(0.272)


def test_exits_of_examples_weigh_by_their_tokens() -> None:
    def decide(batch: Batch) -> Routing:
        return Routing(exits=torch.tensor([1, 3]))

    found = _found(_work(decide, makers.batch(lengths=(1, 3)), n_layers=3))
    values = {m.name: m.value for m in found.measurements}
    assert values["routing.exit_layer"] == 2
    assert values["routing.alpha_hard"] == pytest.approx(3 / 4)
    assert values["routing.tlops_saved"] == pytest.approx(2 / 3 * 1 / 4)
    assert [row.exit_share for row in found.layers] == [0.5, 0, 0.5]
    assert [row.alpha_hard for row in found.layers] == [1, 0.75, 0.75]
    assert makers.columns(found) == {"index": [0, 1], "alpha_hard": [0, 1], "exit_layer": [1, 3]}


def test_padding_counts_for_nothing() -> None:
    def decide(batch: Batch) -> Routing:
        tokens = torch.ones(2, 4, 2, dtype=torch.bool)
        tokens[0, 0, 1] = False  # a real one
        tokens[0, 2, 1] = False  # padding
        return Routing(tokens=tokens, gate=tokens.float().masked_fill(~batch.mask[..., None], 0.123))

    found = _found(_work(decide, makers.batch(lengths=(2, 4)), n_layers=2))
    values = {m.name: m.value for m in found.measurements}
    assert values["routing.alpha_hard"] == pytest.approx(5 / 6)
    assert values["routing.alpha_soft"] == pytest.approx(5 / 6)
    assert makers.columns(found)["alpha_hard"] == [0.5, 1]


def test_token_exits_leave_padding_out() -> None:
    def decide(batch: Batch) -> Routing:
        return Routing(exits=torch.tensor([[1, 2, 3], [3, 3, 3]]))

    found = _found(_work(decide, makers.batch(lengths=(2, 1), n_tokens=3), n_layers=3))
    (exit_layer,) = [m.value for m in found.measurements if m.name == "routing.exit_layer"]
    assert exit_layer == pytest.approx((1 + 2 + 3) / 3)
    assert makers.columns(found)["exit_layer"] == [1.5, 3]


def test_heads_and_budget() -> None:
    """s = 0.085 of 8 heads runs one head: the realised share is reported beside the claimed one."""

    def decide(batch: Batch) -> Routing:
        heads = torch.zeros(batch.n_examples, 2, 8, dtype=torch.bool)
        heads[:, 0, 3] = True
        heads[:, 1, :4] = True
        return Routing(heads=heads, budget=torch.tensor([[0.085, 0.5]]).repeat(batch.n_examples, 1))

    found = _found(_work(decide, makers.batch(), makers.batch(lengths=(2,)), n_layers=2))
    values = {m.name: m.value for m in found.measurements}
    assert values["routing.head_fraction"] == pytest.approx((0.125 + 0.5) / 2)
    assert values["routing.budget"] == pytest.approx((0.085 + 0.5) / 2)
    assert [row.head_fraction for row in found.layers] == [0.125, 0.5]
    assert [row.budget for row in found.layers] == pytest.approx([0.085, 0.5])
    assert makers.columns(found)["heads"] == [0.3125] * 4


@pytest.mark.parametrize(
    ("decisions", "reasons"),
    [
        (
            Routing(),
            {
                "alpha_soft": routing.NO_TOKENS,
                "alpha_hard": routing.NO_TOKENS,
                "tlops_saved": routing.NO_TOKENS,
                "budget": routing.NO_BUDGET,
                "head_fraction": routing.NO_HEADS,
                "exit_layer": routing.NO_EXITS,
            },
        ),
        (Routing(exits=torch.tensor([1, 2, 2])), {"alpha_soft": routing.NO_GATE}),
        (Routing(heads=torch.ones(3, L, 2, dtype=torch.bool)), {"budget": routing.NO_BUDGET}),
    ],
)
def test_missing_decisions_have_a_reason(decisions: Routing, reasons: dict[str, str]) -> None:
    found = _measured(_work(lambda batch: decisions, makers.batch()))
    for name, reason in reasons.items():
        assert (found[name].value, found[name].source, found[name].method) == (None, "unavailable", reason)
    assert len(found) == 6


def test_one_layer_has_no_gated_block() -> None:
    work = _work(lambda batch: Routing(exits=torch.ones(3, dtype=torch.int64)), makers.batch(), n_layers=1)
    found = _measured(work)
    assert found["alpha_hard"].value is None
    assert found["alpha_hard"].method == "one layer has no gated block"
    assert found["exit_layer"].value == 1


def test_means_do_not_depend_on_batching() -> None:
    """Batches of unequal size and length give what one pass over all of their tokens gives."""
    together = makers.batch(lengths=(5, 2, 4))
    parts = [_part(together, [0]), _part(together, [1, 2])]

    def decide(batch: Batch) -> Routing:
        source = batch.tokens.double()[..., None] * torch.arange(1, 3)
        return Routing(tokens=source % 3 > 0, gate=source / 40)

    one, two = (_measured(_work(decide, *batches, n_layers=2)) for batches in ([together], parts))
    for name in ("alpha_soft", "alpha_hard", "tlops_saved"):
        assert one[name].value == pytest.approx(two[name].value, rel=1e-12)
        assert one[name].value is not None


def _part(whole: Batch, rows: list[int]) -> Batch:
    tensors: dict[str, Tensor] = {n: v[rows] for n, v in vars(whole).items() if isinstance(v, Tensor)}
    return replace(whole, **tensors)


def test_blocks_that_auto_ran_in_full_spare_nothing() -> None:
    def decide(batch: Batch) -> Routing:
        decided = _kept_share(0.5)(batch)
        masked = torch.zeros(batch.n_examples, L, dtype=torch.bool)
        masked[:, 1] = True
        masked[2:, 2] = True
        return Routing(tokens=decided.tokens, masked=masked)

    work = _work(decide, makers.batch(lengths=(1000,) * 3), makers.batch(lengths=(1000,)))
    found = _found(work)
    values = {m.name: m.value for m in found.measurements}
    assert values["routing.alpha_hard"] == pytest.approx(0.5)
    n_spared = 4 * (L - 2) - 1  # of 4 * L blocks of examples: not the stem's, not layer 2's, not example 3's in layer 3
    assert values["routing.tlops_saved"] == pytest.approx(0.5 * n_spared / (4 * L))
    rest = "s" * (L - 3)
    assert found.choices == (f"sms{rest}/smm{rest}", f"sms{rest}")
