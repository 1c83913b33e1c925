"""Knobs turned until a figure is met: the search alone, and on tiny models against a plain sweep."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from effaudit.assembly import Assembled, load_all, made_anew
from effaudit.errors import EffauditError
from effaudit.matching import MAX_TURNS, match_models, search
from effaudit.profile_spec import AuditProfile, MatchSpec
from effaudit.variants._knobs import Knob
from effaudit.workloads import Bench
from tests import makers


@pytest.mark.parametrize("sign", [1, -1])
def test_search_meets_a_goal_from_either_side(sign: int) -> None:
    calls: list[float] = []

    def figure(x: float) -> float:
        calls.append(x)
        return sign * x**3

    found = search(figure, Knob(0.0, 2.0), sign * 0.3, slack=0.01)
    assert found.reached == pytest.approx(sign * 0.3, abs=0.002)
    assert found.setting == pytest.approx(0.3 ** (1 / 3), rel=0.01)
    assert found.ends == ((0, 8) if sign > 0 else (-8, 0))
    assert len(calls) <= MAX_TURNS + 2


def test_search_between_steps_takes_the_nearer() -> None:
    found = search(lambda x: float(x > 0.4), Knob(0.0, 1.0), 0.7, slack=0.01)
    assert found.reached == 1.0
    found = search(lambda x: x // 1, Knob(0, 5, is_integer=True), 3.2, slack=0.1)
    assert (found.setting, found.reached) == (3, 3)


def test_search_out_of_reach_takes_the_nearer_end_at_once() -> None:
    calls: list[float] = []

    def figure(x: float) -> float:
        calls.append(x)
        return 1 + x

    found = search(figure, Knob(0.0, 1.0), 5.0, slack=0.1)
    assert (found.setting, found.reached, found.ends) == (1.0, 2.0, (1.0, 2.0))
    assert len(calls) == 2


MODELS: tuple[Any, ...] = (
    "dense",
    {"name": "tsa", "options": {"gate": "scaled"}},
    "early_exit",
    {"name": "budgetformer", "options": {"k_rule": "round"}},
    {"name": "static_heads", "init_from": "dense"},
    {"name": "leaver", "variant": "early_exit", "options": {"threshold": 0.0}},
)
DATA = {
    "dataset": "graded",
    "options": {"n_train": 64, "n_calibration": 32, "n_test": 16},
    "max_tokens": 48,
    "batch_size": 16,
}


@pytest.fixture
def assembled(tmp_path: Path) -> tuple[AuditProfile, dict[str, Assembled], Bench]:
    profile = makers.profile(*MODELS, data=DATA, size={"d_model": 16, "n_layers": 3, "n_heads": 4, "d_ff": 16})
    _, models = load_all(profile, None)
    for seed, model in enumerate(models):
        makers.randomise(model.model, seed)  # type: ignore[arg-type]
    return profile, {m.spec.name: m for m in models}, Bench(profile, torch.device("cpu"), tmp_path)


def matched(assembled: tuple[AuditProfile, dict[str, Assembled], Bench], **spec: Any) -> Assembled:
    profile, models, bench = assembled
    asked = MatchSpec(examples=32, **spec)
    remake = partial(made_anew, profile, models)
    found = match_models(
        [asked],
        list(models.values()),
        lambda s: partial(bench.work, split="calibration", limit=s.examples),
        remake,
        profile.audit.model_copy(update={"max_seconds": 0.01, "rounds": 2}),
    )
    assert [m.spec.name for m in found] == list(models)
    return next(m for m in found if m.spec.name == asked.model)


@pytest.mark.parametrize(
    ("spec", "option"),
    [
        ({"model": "early_exit", "to": "tsa", "by": "tlops"}, "threshold"),
        ({"model": "early_exit", "to": "tsa", "by": "alpha"}, "threshold"),
        ({"model": "tsa", "to": "early_exit", "by": "flops"}, "threshold"),
        ({"model": "budgetformer", "to": "static_heads", "by": "heads"}, "budget_offset"),
    ],
)
def test_models_meet(
    spec: dict[str, str], option: str, assembled: tuple[AuditProfile, dict[str, Assembled], Bench]
) -> None:
    profile, models, bench = assembled
    before = models[spec["model"]]
    model = matched(assembled, **spec)
    match = model.match
    assert match is not None
    assert (match.model, match.knob, match.n_examples) == (spec["to"], option, 32)
    assert match.setting is not None, match.reason
    assert match.reached == pytest.approx(match.goal, abs=0.02, rel=0.01)
    # What was reached is what the model does, not what the search says.
    again = bench.work(model, "calibration", 32)
    from effaudit.meters import flops, routing

    meter = flops if match.measurement.startswith("flops") else routing
    values = {m.name: m.value for m in meter.measure([again], profile.audit)[0].measurements}
    assert values[match.measurement] == match.reached
    assert model.config.options[option] == match.setting
    assert vars(before.model)["options"].model_dump(by_alias=True)[option] == before.config.options[option]
    assert vars(model.model)["options"].model_dump(by_alias=True)[option] == match.setting
    assert next(before.model.parameters()) is next(model.model.parameters())  # the same weights


def test_heads_are_pruned_anew_and_said(assembled: tuple[AuditProfile, dict[str, Assembled], Bench]) -> None:
    model = matched(assembled, model="static_heads", to="budgetformer", by="heads")
    assert model.match is not None
    assert model.match.setting is not None, model.match.reason
    kept = model.config.options["kept_heads"]
    assert sum(map(len, kept)) / 12 == pytest.approx(model.match.reached)
    assert [c.code for c in model.cautions] == ["untrained", "made_anew"]
    assert "made anew from `dense`" in model.cautions[1].text


def test_dense_stands_in_for_the_model_that_both_started_from(
    assembled: tuple[AuditProfile, dict[str, Assembled], Bench],
) -> None:
    profile, models, _ = assembled
    specs = {
        name: replace(models[name], spec=models[name].spec.model_copy(update={"init_from": "start"}))
        for name in ("dense", "static_heads")
    }
    made = made_anew(profile, specs, specs["static_heads"], {"head_fraction": 0.25})
    assert "made anew from `dense`" in made.cautions[-1].text
    with pytest.raises(EffauditError, match="is not here"):
        made_anew(profile, {"static_heads": specs["static_heads"]}, specs["static_heads"], {"head_fraction": 0.25})


def test_what_cannot_be_met_says_the_range(assembled: tuple[AuditProfile, dict[str, Assembled], Bench]) -> None:
    model = matched(assembled, model="budgetformer", to="leaver", by="flops")
    match = model.match
    assert match is not None
    assert (match.setting, match.reached) == (None, None)
    assert match.reachable is not None
    assert match.goal < match.reachable[0]
    assert match.reason == "out of reach"
    assert [c.code for c in model.cautions] == ["untrained", "unmatched"]
    assert re.match(r"cannot meet flops.executed [\d.]+ [kM]FLOP of leaver: out of reach", model.cautions[-1].text)
    assert model.config.options["budget_offset"] == 0.0  # as configured


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"model": "dense", "to": "tsa"}, "has no knob to turn"),
        ({"model": "tsa", "to": "dense", "knob": "treshold"}, "no `treshold` among the knobs of `tsa`"),
        ({"model": "budgetformer", "to": "tsa", "by": "alpha"}, "`budgetformer` has no routing.alpha_hard"),
    ],
)
def test_what_makes_no_sense_is_said(
    spec: dict[str, str], message: str, assembled: tuple[AuditProfile, dict[str, Assembled], Bench]
) -> None:
    with pytest.raises(EffauditError, match=message):
        matched(assembled, **spec)
