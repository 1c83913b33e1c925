import pytest

from effaudit.errors import EffauditError
from effaudit.gating import GateVerdict, gate
from effaudit.record import AuditRecord, Measurement
from effaudit.renderers.console import render_gate
from tests.fakes_records import WORKLOAD, dense, everyone, figure, latency, record

NOISE = (0.5, -0.5, 0.3, -0.3, 0.4, -0.4, 0.1, 0.0)


def one(measurement: Measurement, **changes: object) -> list[AuditRecord]:
    return [record(measurements=[measurement]).model_copy(update=changes)]


def flops(value: int | None) -> Measurement:
    return figure("flops.executed", value, "FLOP")


def accuracy(value: float) -> Measurement:
    return figure("quality.accuracy", value, better="higher", source="measured")


def memory(value: int) -> Measurement:
    return figure("memory.peak", value, "B", source="measured")


def rate(value: float) -> Measurement:
    return figure("r", value, better="neither")


@pytest.mark.parametrize(
    ("old", "new", "tolerances", "verdict", "exit_code"),
    [
        (flops(100), flops(100), {}, "pass", 0),
        (flops(10**12), flops(10**12 + 1), {}, "regressed", 1),
        (flops(100), flops(99), {}, "improved", 0),
        (flops(100), flops(101), {"flops.executed": 0.02}, "pass", 0),
        (flops(0), flops(0), {}, "pass", 0),
        (flops(0), flops(1), {}, "regressed", 1),
        (accuracy(0.9), accuracy(0.899), {}, "pass", 0),
        (accuracy(0.9), accuracy(0.8), {}, "regressed", 1),
        (accuracy(0.9), accuracy(0.95), {}, "improved", 0),
        (memory(100), memory(104), {}, "pass", 0),
        (memory(100), memory(106), {}, "regressed", 1),
        (latency(0.01), latency(0.0101), {"latency.p50": 0.05}, "pass", 0),
        (latency(0.01), latency(0.012), {"latency.p50": 0.05}, "regressed", 1),
        (latency(0.01), latency(0.005), {"latency.p50": 0.05}, "improved", 0),
        (latency(0.01), latency(0.0104, NOISE), {"latency.p50": 0.05}, "undecided", 2),
        (rate(0.5), rate(0.6), {"r": 0.1}, "regressed", 1),
        (rate(0.5), rate(0.51), {"r": 0.1}, "pass", 0),
        (flops(1), flops(None), {}, "undecided", 2),
        (flops(1), figure("flops.executed", 1, "MAC"), {}, "undecided", 2),
        (flops(1), figure("params", 1), {}, "undecided", 2),
    ],
)  # fmt: skip
def test_verdicts_and_exit_codes(
    old: Measurement, new: Measurement, tolerances: dict[str, float], verdict: GateVerdict, exit_code: int
) -> None:
    result = gate(one(new), one(old), tolerances)
    assert [row.verdict for row in result.rows] == [verdict]
    assert result.exit_code == exit_code
    row = result.rows[0]
    assert row.why
    assert bool(row.hint) == (verdict in ("regressed", "undecided"))


def test_time_is_judged_only_when_asked_for() -> None:
    assert gate(one(latency(0.1)), one(latency(0.01))).rows == ()


def test_nothing_in_common_cannot_be_decided() -> None:
    assert gate([], []).exit_code == 2
    assert gate(one(latency(0.01)), one(latency(0.01))).exit_code == 2
    result = gate([record("other", measurements=[figure("params", 1)])], one(figure("params", 1)))
    assert result.exit_code == 2
    assert "not among the current records" in result.rows[0].why


def test_another_workload_cannot_be_decided() -> None:
    old = one(flops(1))
    new = one(flops(1), workload=WORKLOAD.model_copy(update={"sha256": "other"}))
    result = gate(new, old)
    assert result.exit_code == 2
    assert "another workload" in result.rows[0].why


def test_time_of_another_machine_cannot_be_decided() -> None:
    new = [record(measurements=[latency(0.01)], fingerprint="machine-b")]
    result = gate(new, one(latency(0.01)), {"latency.p50": 0.05})
    assert result.exit_code == 2
    assert "machine" in result.rows[0].why


def test_a_regression_outweighs_what_is_undecided() -> None:
    old = [record(measurements=[flops(1), figure("flops.routed", 1, "FLOP")])]
    new = [record(measurements=[flops(2)])]
    assert gate(new, old).exit_code == 1


def test_order_and_additions_do_not_matter() -> None:
    extra = record("new_model", measurements=[figure("params", 1)])
    result = gate([extra, *reversed(everyone())], everyone())
    assert result.exit_code == 0
    assert {row.verdict for row in result.rows} == {"pass"}


def test_wrong_tolerances_are_the_users_mistake() -> None:
    with pytest.raises(EffauditError, match=r"no `latency\.p5`"):
        gate([dense()], [dense()], {"latency.p5": 0.1})
    with pytest.raises(EffauditError, match="tolerance"):
        gate([dense()], [dense()], {"latency.p50": -0.1})


def test_rendered_gate_names_the_row_the_reason_and_the_next_step() -> None:
    old, new = one(flops(10**12)), one(flops(10**12 + 1))
    text = render_gate(gate(new, old))
    assert "regressed flops.executed" in text
    assert "+1.0e-10 %" in text
    assert "hint: mend it" in text
    assert text.splitlines()[-1] == "gate: regressed (1 regressed)"
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "nothing in common" in render_gate(gate([], []))
