"""Controls on tiny models: what each runs, at what cost, and what is compared."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from effaudit import controls
from effaudit.assembly import Assembled, load_all
from effaudit.controls import against_trained, observe, run_controls
from effaudit.profile_spec import ControlsSpec
from effaudit.record import AuditRecord, Control
from effaudit.workloads import Bench
from tests import makers
from tests.fakes_records import figure, record, table
from tests.test_seeds import answers, with_seeds

MODELS: tuple[Any, ...] = (
    "dense",
    "tsa",
    "budgetformer",
    {"name": "early_exit", "options": {"threshold": 0.5}},
    {"name": "drawn", "variant": "tsa", "options": {"routing": "random_fixed"}},
)
N = 48


@pytest.fixture
def setting(tmp_path: Path) -> tuple[dict[str, Assembled], Bench]:
    data = {"dataset": "graded", "options": {"n_train": 16, "n_calibration": 16, "n_test": 64}, "batch_size": 16}
    size = {"d_model": 16, "n_layers": 3, "n_heads": 4, "d_ff": 16}
    profile = makers.profile(*MODELS, data={**data, "max_tokens": 48}, size=size)
    _, models = load_all(profile, None)
    for seed, model in enumerate(models):
        makers.randomise(model.model, seed + 3)  # type: ignore[arg-type]
    return {m.spec.name: m for m in models}, Bench(profile, torch.device("cpu"), tmp_path)


def found(name: str, setting: tuple[dict[str, Assembled], Bench], **spec: Any) -> dict[str, Control]:
    models, bench = setting
    asked = ControlsSpec(examples=N, **spec)
    rows = run_controls(models[name], partial(bench.work, limit=asked.examples), asked, seed=0)
    return {row.kind: row for row in rows}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("tsa", ["random", "constant", "untrained", "soft"]),
        ("budgetformer", ["random", "constant", "untrained", "soft"]),
        ("early_exit", ["random", "constant", "untrained"]),  # it has no continuous gate
        ("dense", []),
        ("drawn", []),  # is a control itself
    ],
)
def test_which_controls_a_model_has(name: str, kinds: list[str], setting: tuple[dict[str, Assembled], Bench]) -> None:
    rows = found(name, setting, draws=2)
    assert list(rows) == kinds
    for row in rows.values():
        assert (row.measurement, row.n_examples) == ("quality.accuracy", N)
        assert row.n_draws == (2 if row.kind == "random" else 1)
        assert row.interval is not None
        assert row.difference is not None
        assert row.interval[0] <= row.difference <= row.interval[1]


@pytest.mark.parametrize("name", ["tsa", "budgetformer", "early_exit"])
def test_random_costs_what_the_model_costs(name: str, setting: tuple[dict[str, Assembled], Bench]) -> None:
    models, bench = setting
    own = observe(bench.work(models[name], limit=N))
    assert own.decisions.rate is not None
    assert 0.1 < own.decisions.rate < 0.95  # something is decided
    random = found(name, setting, kinds=("random",), draws=4)["random"]
    assert random.rate == pytest.approx(own.decisions.rate, abs=0.08)  # of 192 draws
    assert random.flops_ratio == pytest.approx(1, abs=0.1)


def test_soft_gates_run_all_and_say_what_leaks(setting: tuple[dict[str, Assembled], Bench]) -> None:
    models, bench = setting
    soft = found("tsa", setting)["soft"]
    own = observe(bench.work(models["tsa"], limit=N))
    dense = observe(bench.work(models["tsa"].with_options({"execution": "masked"}), limit=N))
    assert own.flops is not None
    assert dense.flops is not None
    assert soft.flops_ratio == dense.flops / own.flops
    passed, kept = own.decisions.soft_rate, own.decisions.rate
    assert passed is not None
    assert kept is not None
    assert f"the gates let {100 * passed:.1f} % pass, the hard rule runs {100 * kept:.1f} %" in soft.note
    assert "is the leak" in soft.note


def test_difference_is_that_of_the_same_examples(setting: tuple[dict[str, Assembled], Bench]) -> None:
    models, bench = setting
    own = observe(bench.work(models["early_exit"], limit=N))
    constant = observe(bench.work(models["early_exit"], limit=N), own.decisions.most_common())
    row = found("early_exit", setting)["constant"]
    assert row.value == constant.n_right.sum() / N
    assert row.difference == pytest.approx((constant.n_right.sum() - own.n_right.sum()) / N)
    assert row.rate == (own.decisions.exits.argmax().item()) / 2


def test_untrained_gates_leave_all_else_as_trained(setting: tuple[dict[str, Assembled], Bench]) -> None:
    trained = setting[0]["tsa"]
    fresh = trained.with_untrained_gates(seed=5)
    same = {
        name: torch.equal(tensor, trained.model.state_dict()[name]) for name, tensor in fresh.model.state_dict().items()
    }
    assert {name for name, is_same in same.items() if not is_same} == {n for n in same if n.startswith("routers.")}


def test_notes_name_the_mismatch(setting: tuple[dict[str, Assembled], Bench]) -> None:
    assert found("tsa", setting)["random"].note == controls.MISMATCH
    exits = found("early_exit", setting)
    assert (exits["random"].note, exits["untrained"].note) == (controls.ALL_TRAINED, controls.MISMATCH)


def test_against_the_model_that_was_trained_under_fixed_routing() -> None:
    def audited(name: str, right: list[float], flops: int) -> AuditRecord:
        measurements = [
            figure("quality.accuracy", sum(right) / len(right), better="higher"),
            figure("flops.executed", flops, "FLOP"),
            figure("routing.alpha_hard", 0.25),
        ]
        return record(name, "tsa", measurements).with_table(table(correct=right))

    own = audited("tsa", [1.0] * 900 + [0.0] * 100, 1000)
    other = audited("tsa_random", [1.0] * 850 + [0.0] * 150, 990)
    row = against_trained(own, other)
    assert (row.kind, row.value, row.flops_ratio, row.rate) == ("random_fixed", 0.85, 0.99, 0.25)
    assert row.difference == pytest.approx(-0.05)
    assert row.interval is not None
    assert row.interval[1] < 0
    assert "tsa_random" in row.note


def test_over_several_seeds_the_control_is_their_mean_and_its_interval_holds_them_all(tmp_path: Path) -> None:
    n_right = {"tsa": (300, 300, 300), "tsa_random": (310, 280, 290)}
    own, other = (
        with_seeds(tmp_path, name, {seed: answers(n) for seed, n in enumerate(counts)})
        for name, counts in n_right.items()
    )
    row = against_trained(own, other)
    assert (row.n_draws, row.value) == (3, pytest.approx(880 / 3 / 400))
    assert row.difference == pytest.approx(-20 / 3 / 400)
    assert row.interval is not None
    assert row.interval[0] <= -20 / 400
    assert row.interval[1] >= 10 / 400  # the seeds do not agree
    assert row.note == "by `tsa_random`, mean of 3 seeds"
