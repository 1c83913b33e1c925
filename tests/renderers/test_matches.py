"""What matched models differ by at equal cost, or at equal quality."""

from effaudit.record import AuditRecord, Match
from effaudit.renderers._topics import matches
from tests.fakes_records import dense, figure, latency, record, table


def matched(measurement: str, **changes: object) -> AuditRecord:
    """early_exit, brought to what tsa does, whose answers differ on 50 of 1000 examples."""
    match = Match(model="tsa", measurement=measurement, knob="threshold", goal=0.5, setting=0.8, reached=0.5)
    found = audited("early_exit", 900, 0.010)
    return found.model_copy(update={"model": found.model.model_copy(update={"match": match, **changes})})


def audited(name: str, n_right: int, seconds: float) -> AuditRecord:
    accuracy = figure("quality.accuracy", n_right / 1000, better="higher", source="measured")
    measurements = [figure("flops.executed", 40 * n_right, "FLOP"), latency(seconds), accuracy]
    answers = table(correct=[float(i < n_right) for i in range(1000)])
    return record(name, measurements=measurements).with_table(answers)


def test_at_equal_cost_the_difference_in_quality_is_said_with_its_interval() -> None:
    one = matched("routing.tlops_saved").with_table(table(correct=[float(i < 900) for i in range(1000)]))
    (said,) = matches.lines([dense(), audited("tsa", 950, 0.012), one])
    assert "at that, accuracy 90.0 % against 95.0 %, -5.00 points [-6." in said
    assert "not distinguishable" not in said
    (said,) = matches.lines([dense(), audited("tsa", 901, 0.012), one])
    assert said.endswith("-0.10 points [-0.30, 0.00], not distinguishable.")


def test_at_equal_quality_the_difference_in_cost_is_said() -> None:
    (said,) = matches.lines([dense(), audited("tsa", 800, 0.012), matched("quality.accuracy")])
    assert said.endswith("; for that, FLOPs +12.5 %, latency -16.7 % [-16.7, -16.7].")


def test_without_the_other_model_only_the_setting_is_said() -> None:
    (said,) = matches.lines([matched("routing.tlops_saved")])
    assert said.endswith("on the calibration split.")
