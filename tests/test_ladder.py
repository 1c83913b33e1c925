from itertools import pairwise

import pytest

from effaudit.ladder import STEPS, ladder, n_layers, reference_of
from effaudit.record import LayerRow
from tests.fakes_records import (
    WORKLOAD,
    budgetformer,
    dense,
    early_exit,
    everyone,
    figure,
    record,
    tsa,
)


def changes(name: str) -> list[float | None]:
    records = everyone()
    chosen = next(r for r in records if r.model.name == name)
    return [rung.change for rung in ladder(chosen, records).rungs]


def test_token_routing_claims_soft_token_blocks_with_the_stem() -> None:
    assert changes("tsa") == pytest.approx([-0.75 * 0.6, -0.42, -0.301, 0.04, 0.1 / 3.2])


def test_head_budgets_claim_the_continuous_budget() -> None:
    assert changes("budgetformer") == pytest.approx([-0.69, -0.625, -0.08, -0.25, -0.25])


def test_early_exit_claims_its_hard_rate() -> None:
    claimed, skipped, flops, latency, energy = changes("early_exit")
    assert (claimed, skipped, flops) == pytest.approx((-0.75 * 0.4, -0.3, -0.2))
    assert latency == 0.0
    assert energy is None


def test_papers_pairs_of_alpha_and_tlops() -> None:
    """Papers §4.3: alpha over five gated blocks of six layers."""
    for alpha, saved in ((0.341, 0.549), (0.726, 0.228), (0.833, 0.139), (0.395, 0.504)):
        model = record(
            "tsa",
            measurements=[figure("routing.alpha_soft", alpha, better="neither")],
            profile={"size": {"n_layers": 6}},
        )
        assert ladder(model, [model])["claimed"].change == pytest.approx(-saved, abs=6e-4)


def test_dense_has_no_rungs_and_says_why() -> None:
    records = everyone()
    steps = ladder(records[0], records)
    assert steps.is_reference
    assert all(rung.change is None and rung.reason for rung in steps.rungs)


def test_leaks_are_the_differences_between_neighbours() -> None:
    records = everyone()
    leaks = ladder(records[1], records).leaks
    assert [(leak.start, leak.end) for leak in leaks] == list(pairwise(STEPS))
    assert [leak.lost for leak in leaks] == pytest.approx([0.03, 0.119, 0.341, 0.1 / 3.2 - 0.04])


def test_what_routing_could_save_at_best() -> None:
    model = tsa()
    assert ladder(model, [model]).routable.change == pytest.approx(-0.36)


def test_provenance_is_that_of_the_weaker_part() -> None:
    records = everyone()
    assert ladder(records[2], records)["energy"].source == "modelled"  # measured against modelled
    assert ladder(records[2], records)["latency"].source == "measured"


def test_latency_has_its_paired_interval() -> None:
    records = everyone()
    assert ladder(records[1], records)["latency"].interval == pytest.approx((0.04, 0.04))


def test_no_dense_and_other_workloads_give_reasons() -> None:
    alone = tsa()
    assert ladder(alone, [alone])["FLOPs"].reason == "no dense model among the records"
    elsewhere = dense().model_copy(update={"workload": WORKLOAD.model_copy(update={"sha256": "other"})})
    rung = ladder(alone, [elsewhere, alone])["FLOPs"]
    assert rung.change is None
    assert "another workload" in rung.reason
    assert ladder(early_exit(), everyone())["energy"].reason == "no energy counter can be read"


def test_reference_is_the_first_dense_of_the_same_workload() -> None:
    elsewhere = dense().model_copy(update={"workload": WORKLOAD.model_copy(update={"sha256": "other"})})
    first, second = dense(), dense()
    records = [elsewhere, first, second, budgetformer()]
    assert reference_of(records[3], records) is first
    assert reference_of(second, records) is first
    assert reference_of(elsewhere, records) is elsewhere


def test_layers_come_from_the_profile_or_the_table() -> None:
    assert n_layers(record(profile={"size": {"n_layers": 7}})) == 7
    assert n_layers(record(profile={}, layers=[LayerRow(layer=1), LayerRow(layer=2)])) == 2
    unknown = record("tsa", measurements=[figure("routing.alpha_soft", 0.5)], profile={})
    assert ladder(unknown, [unknown])["claimed"].reason == "number of layers unknown"
