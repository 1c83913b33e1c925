from math import log, sqrt

import pytest

from effaudit.example_table import ExampleTable
from effaudit.record import AuditRecord
from effaudit.summary import summarise
from tests.fakes_records import figure, latency, record


def quality(*names: str) -> AuditRecord:
    return record(measurements=[figure(f"quality.{name}", 0.5, source="measured") for name in names])


def errors(of: AuditRecord) -> dict[str, float | None]:
    return {f.name: f.standard_error for f in summarise(of).figures}


def test_means_over_examples_have_the_error_of_their_table() -> None:
    """Two examples, 0 and 1, asked once each: the mean is off by 1/2 over the root of 2 each way."""
    table = ExampleTable(None, {"index": [0, 1], "correct": [0.0, 1.0], "loss": [0.25, 0.75]})
    base = quality("accuracy", "loss", "bpc")
    base = base.model_copy(update={"workload": base.workload.model_copy(update={"n_examples": 2})})
    found = errors(base.with_table(table))
    assert found["quality.accuracy"] == pytest.approx(sqrt(2 * 0.5**2) / 2, rel=1e-5)
    assert found["quality.loss"] == pytest.approx(sqrt(2 * 0.25**2) / 2, rel=1e-5)
    deviations = (0.25 / log(2) - 0.5, 0.75 / log(2) - 0.5)
    assert found["quality.bpc"] == pytest.approx(sqrt(sum(d * d for d in deviations)) / 2, rel=1e-5)


def test_examples_weigh_as_much_as_was_asked_of_them() -> None:
    columns = {"index": [0, 1, 2], "loss": [0.375, 0.875, float("nan")], "n_asked": [3, 1, 0]}
    base = quality("loss")
    base = base.model_copy(update={"workload": base.workload.model_copy(update={"n_examples": 3})})
    found = errors(base.with_table(ExampleTable(None, columns)))
    assert found["quality.loss"] == pytest.approx(sqrt((3 * 0.125) ** 2 + (1 * 0.375) ** 2) / 4, rel=1e-5)


def test_without_a_table_accuracy_alone_has_an_error() -> None:
    assert errors(quality("accuracy", "loss")) == {
        "quality.accuracy": pytest.approx(sqrt(0.25 / 1000), rel=1e-5),
        "quality.loss": None,
    }


@pytest.mark.parametrize(
    ("routing", "formula", "is_routed"),
    [
        ({"routing.alpha_hard": 0.5}, (9, 10), True),
        ({"routing.budget": 0.5}, (9, 10), True),
        ({"routing.exit_layer": 2.0}, (9, 10), True),
        ({"routing.alpha_hard": None, "routing.budget": None, "routing.exit_layer": None}, (9, 10), False),
        ({}, (10, 10), False),
        ({}, (9, 10), True),
        ({}, (None, None), True),  # nobody knows: it may route
    ],
)
def test_what_depends_on_the_input(
    routing: dict[str, float | None], formula: tuple[int | None, int | None], is_routed: bool
) -> None:
    flops = [figure(name, value, "FLOP") for name, value in zip(("flops.routed", "flops.dense"), formula, strict=True)]
    measured = [figure(name, value, better="neither") for name, value in routing.items()]
    assert summarise(record(measurements=[*measured, *flops])).is_routed is is_routed


def test_a_timed_figure_has_its_interval_or_the_reason_for_none() -> None:
    p95 = latency(0.02).model_copy(update={"name": "latency.p95"})
    found = {f.name: f for f in summarise(record(measurements=[latency(0.01), p95])).figures}
    median = found["latency.p50"].interval
    assert median is not None
    assert median[0] <= 0.01 <= median[1]
    assert found["latency.p95"].interval is None
    assert "percentiles other than the median" in found["latency.p95"].reason
