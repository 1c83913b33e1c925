"""Whether routing pays against chance, in words."""

from __future__ import annotations

from typing import Any

import pytest

from effaudit.record import AuditRecord, Control
from effaudit.routing_verdict import deciding_control, is_better, routing_cautions
from tests.fakes_records import tsa


def control(low: float, high: float, **changes: Any) -> Control:
    fields: dict[str, Any] = {
        "kind": "random",
        "measurement": "quality.accuracy",
        "n_draws": 3,
        "value": 0.9,
        "difference": (low + high) / 2,
        "interval": (low, high),
        "flops_ratio": 1.001,
        "n_examples": 500,
    }
    return Control(**{**fields, **changes})


def record(*controls: Control) -> AuditRecord:
    return tsa().model_copy(update={"controls": controls})


@pytest.mark.parametrize(
    ("found", "is_learned_better"),
    [
        (control(-0.05, -0.01), True),
        (control(-0.05, 0.01), False),
        (control(0.01, 0.05), False),
        (control(0.01, 0.05, measurement="quality.bpc"), True),
        (control(-0.05, -0.01, measurement="quality.loss"), False),
    ],
)
def test_better_means_beyond_the_interval_in_the_right_direction(found: Control, is_learned_better: bool) -> None:
    assert is_better(found) is is_learned_better
    assert [c.code for c in routing_cautions(record(found))] == ([] if is_learned_better else ["routing_not_better"])


def test_the_words_say_what_at_which_cost() -> None:
    (caution,) = routing_cautions(record(control(-0.0241, 0.0046)))
    assert caution.text == (
        "the learned routing is not better than chance: accuracy is not distinguishable from random routing "
        "at equal FLOPs (random less learned [-2.41, 0.46] points, 500 examples)"
    )
    assert "random_fixed" in caution.hint
    (caution,) = routing_cautions(record(control(0.01, 0.02, flops_ratio=1.1)))
    assert "accuracy is worse than random routing at 1.10 times the FLOPs" in caution.text


def test_the_verdict_rests_on_weights_trained_for_it() -> None:
    trained = control(-0.05, -0.02, kind="random_fixed")
    both = record(control(-0.01, 0.01), trained)
    assert deciding_control(both) is trained
    assert routing_cautions(both) == ()
    (caution,) = routing_cautions(record(trained.model_copy(update={"interval": (-0.01, 0.02)})))
    assert "accuracy is not distinguishable from training under fixed random routing at equal FLOPs" in caution.text
    unknown = control(0, 0, kind="random_fixed", value=None, difference=None, interval=None)
    assert deciding_control(record(control(-0.01, 0.01), unknown)) == control(-0.01, 0.01)
    assert routing_cautions(record()) == routing_cautions(record(control(-0.1, 0.1, kind="soft"))) == ()


def test_a_model_trained_at_another_rate_decides_nothing() -> None:
    dear = control(-0.01, 0.02, kind="random_fixed", flops_ratio=1.5, rate=0.9)
    inference = control(-0.05, -0.01)
    both = record(inference, dear)
    assert deciding_control(both) is inference
    (caution,) = routing_cautions(both)
    assert caution.code == "control_at_another_rate"
    assert "runs 1.50 times the FLOPs" in caution.text
    assert caution.hint == "train it with `keep_rate: 0.440`, what the model itself keeps; it keeps 0.900"
    near = dear.model_copy(update={"flops_ratio": 1.09})
    assert deciding_control(record(inference, near)) is near
