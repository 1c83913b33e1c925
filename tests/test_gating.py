from collections.abc import Callable

import pytest

from effaudit.baselines import baseline_of
from effaudit.errors import EffauditError
from effaudit.gate_rows import GateResult, GateVerdict
from effaudit.gating import gate
from effaudit.record import AuditRecord, Caution, Measurement
from effaudit.renderers.console import render_gate
from tests.fakes_records import ENVIRONMENT, WORKLOAD, dense, everyone, figure, latency, record

STEADY = (0.0, 0.001, -0.001, 0.002, -0.002, 0.0, 0.001, -0.001)
NOISE = (0.5, -0.5, 0.3, -0.3, 0.4, -0.4, 0.1, 0.0)


def one(measurement: Measurement, **changes: object) -> list[AuditRecord]:
    return [record(measurements=[measurement]).model_copy(update=changes)]


def flops(value: int | None, unit: str = "FLOP") -> Measurement:
    return figure("flops.executed", value, unit)


def accuracy(value: float) -> Measurement:
    return figure("quality.accuracy", value, better="higher", source="measured")


def loss(value: float) -> Measurement:
    return figure("quality.loss", value, "nat", source="measured")


def memory(value: int) -> Measurement:
    return figure("memory.peak", value, "B", source="measured")


def rate(value: float) -> Measurement:
    return figure("r", value, better="neither")


def routed(by: str = "routing.alpha_hard") -> Measurement:
    return figure(by, 0.5, better="neither")


def unrouted() -> Measurement:
    return figure("routing.alpha_hard", None, better="neither")


def only(result: GateResult, name: str) -> tuple[GateVerdict, str, str]:
    (row,) = (row for row in result.rows if row.measurement == name)
    return row.verdict, row.why, row.hint


@pytest.mark.parametrize(
    ("old", "new", "tolerances", "verdict", "exit_code", "why"),
    [
        (flops(100), flops(100), {}, "pass", 0, "as the baseline"),
        (flops(10**12), flops(10**12 + 1), {}, "regressed", 1, "1.0e-10 % worse, nothing is accepted"),
        (flops(100), flops(99), {}, "improved", 0, "1.00 % better"),
        (flops(100), flops(101), {"flops.executed": 0.02}, "pass", 0, "within its tolerance"),
        (flops(0), flops(0), {}, "pass", 0, "as the baseline"),
        (flops(0), flops(1), {}, "regressed", 1, "infinitely worse"),
        (flops(1), flops(10**400), {}, "regressed", 1, "infinitely worse"),
        (accuracy(0.9), accuracy(0.885), {}, "pass", 0, "within its tolerance"),
        (accuracy(0.9), accuracy(0.87), {}, "regressed", 1, "3.33 % worse, 3.10 % is accepted (unpaired, 95 %)"),
        (accuracy(0.9), accuracy(0.93), {}, "improved", 0, "3.33 % better"),
        (accuracy(0.9), accuracy(0.899), {"quality.accuracy": 0.0}, "regressed", 1, "0.11 % worse"),
        (loss(1.0), loss(1.004), {}, "pass", 0, "within its tolerance"),
        (loss(1.0), loss(1.006), {}, "regressed", 1, "0.60 % worse"),
        (memory(100), memory(104), {}, "pass", 0, "within its tolerance"),
        (memory(100), memory(106), {}, "regressed", 1, "6.00 % worse, 5.00 % is accepted"),
        (memory(0), memory(0), {}, "pass", 0, "as the baseline"),
        (latency(0.01), latency(0.0101, STEADY), {"latency.p50": 0.05}, "pass", 0, "unpaired, 95 %"),
        (latency(0.01), latency(0.012), {"latency.p50": 0.05}, "regressed", 1, "worse, 5.00 % is accepted (unpaired"),
        (latency(0.01), latency(0.005), {"latency.p50": 0.05}, "improved", 0, "better (unpaired, 95 %)"),
        (latency(0.01), latency(0.0104, NOISE), {"latency.p50": 0.05}, "undecided", 2, "5.00 % is accepted"),
        (latency(0.01, STEADY[:3]), latency(0.01), {"latency.p50": 0.05}, "undecided", 2,
         "no interval in the baseline: too few samples: 3, at least 5"),
        (latency(0.01), latency(0.01, ()), {"latency.p50": 0.05}, "undecided", 2, "no interval now: too few samples"),
        (rate(0.5), rate(0.6), {"r": 0.1}, "regressed", 1, "changed by 20.00 %, 10.00 % is accepted either way"),
        (rate(0.5), rate(0.4), {"r": 0.1}, "regressed", 1, "either way"),
        (rate(0.5), rate(0.51), {"r": 0.1}, "pass", 0, "within its tolerance"),
        (flops(1), flops(None), {}, "undecided", 2, "unavailable: by hand"),
        (flops(None), flops(1), {}, "skipped", 2, "unavailable in the baseline: by hand"),
        (flops(None), flops(1), {"flops.executed": 0.1}, "undecided", 2, "unavailable in the baseline"),
        (flops(1), flops(1, "MAC"), {}, "undecided", 2, "in FLOP in the baseline and MAC now"),
    ],
)  # fmt: skip
def test_verdicts_and_exit_codes(
    old: Measurement, new: Measurement, tolerances: dict[str, float], verdict: GateVerdict, exit_code: int, why: str
) -> None:
    result = gate(one(new), one(old), tolerances)
    assert [row.verdict for row in result.rows] == [verdict]
    assert result.exit_code == exit_code
    assert bool(result) == (exit_code == 0)
    row = result.rows[0]
    assert why in row.why
    assert bool(row.hint) == (verdict in ("regressed", "undecided", "skipped"))
    assert row.verdict == gate(one(new), baseline_of(one(old)), tolerances).rows[0].verdict if old.value else True


def test_time_is_judged_only_when_asked_for() -> None:
    assert gate(one(latency(0.1)), one(latency(0.01))).rows == ()
    asking = {"name": "p", "gate": {"tolerances": {"latency.p50": 0.05}}}
    result = gate(one(latency(0.1), profile=asking), one(latency(0.01)))
    assert [row.verdict for row in result.rows] == ["regressed"]
    assert gate(one(latency(0.1), profile=asking), one(latency(0.01)), {"latency.p50": 50.0}).exit_code == 0


def test_intervals_of_both_sides_add_up_as_independent_ones_do() -> None:
    """Each side spans 1 % either way, so their ratio spans sqrt(2) % on the scale of logs."""
    samples = [0.0] * 3 + [0.01] * 50 + [-0.01] * 50
    (row,) = gate(one(latency(1.0, samples)), one(latency(1.0, samples)), {"latency.p50": 0.05}).rows
    assert row.interval is not None
    assert row.interval == pytest.approx((-0.0141, 0.0142), abs=2e-4)


CHANGES: list[tuple[str, Callable[[list[AuditRecord]], list[AuditRecord]], int, str]] = [
    ("the same", lambda now: now, 0, ""),
    ("reordered models", lambda now: now[::-1], 0, ""),
    ("reordered measurements", lambda now: [r.model_copy(update={"measurements": r.measurements[::-1]}) for r in now],
     0, ""),
    ("an added model", lambda now: [*now, record("new", measurements=[figure("params", 1)])], 0,
     "the model is not in the baseline"),
    ("an added measurement", lambda now: [r.model_copy(update={"measurements": (*r.measurements, figure("ops", 1))})
                                          for r in now], 0, "not in the baseline"),
    ("a missing model", lambda now: now[1:], 2, "the model is not among the current records"),
    ("a renamed model", lambda now: [now[0].model_copy(update={"model": now[0].model.model_copy(
        update={"name": "d"})}), *now[1:]], 2, "the model is not among the current records"),
    ("a missing measurement", lambda now: [now[0].model_copy(update={"measurements": now[0].measurements[1:]}),
                                           *now[1:]], 2, "not among the current figures"),
    ("no measurement", lambda now: [r.model_copy(update={"measurements": ()}) for r in now], 2,
     "not among the current figures"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "exit_code", "why"), [case[1:] for case in CHANGES], ids=[c[0] for c in CHANGES])
def test_what_is_there(change: Callable[[list[AuditRecord]], list[AuditRecord]], exit_code: int, why: str) -> None:
    result = gate(change(everyone()), everyone())
    assert result.exit_code == exit_code
    others = [row for row in result.rows if row.verdict != "pass"]
    decisive = [row for row in others if row.verdict == ("undecided" if exit_code else "skipped")]
    assert {row.why for row in decisive} == ({why} if why else set())
    assert {row.verdict for row in others} <= {"undecided", "skipped"}


def test_a_renamed_measurement_is_missing_under_its_old_name() -> None:
    result = gate(one(figure("flops.ran", 1, "FLOP")), one(flops(1)))
    assert [(row.measurement, row.verdict) for row in result.rows] == [
        ("flops.executed", "undecided"),
        ("flops.ran", "skipped"),
    ]
    assert result.exit_code == 2


def test_nothing_in_common_cannot_be_decided() -> None:
    assert gate([], []).exit_code == 2
    assert gate(one(latency(0.01)), one(latency(0.01))).exit_code == 2
    assert gate(one(figure("params", 1)), []).exit_code == 2


def workload(**changes: object) -> dict[str, object]:
    return {"workload": WORKLOAD.model_copy(update=changes)}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sha256": "other"}, "graded/test and graded/test differ in content"),
        ({"split": "train"}, "graded/test and graded/train differ in content"),
        ({"n_examples": 8}, "n_examples 1000 and 8"),
        ({"batch_size": 8}, "batch_size 32 and 8"),
    ],
)
def test_another_workload_leaves_what_the_model_alone_decides(changes: dict[str, object], why: str) -> None:
    old = [record(measurements=[flops(1), accuracy(0.5), figure("params", 3)])]
    new = [record(measurements=[flops(1), accuracy(0.5), figure("params", 4)]).model_copy(update=workload(**changes))]
    result = gate(new, old)
    assert [row.verdict for row in result.rows] == ["undecided", "undecided", "regressed"]
    assert f"another workload: {why}" in result.rows[0].why
    assert gate(new, new).exit_code == 0


def elsewhere(records: list[AuditRecord], **changes: object) -> list[AuditRecord]:
    environment = ENVIRONMENT.model_copy(update={"fingerprint": "machine-b", **changes})
    return [r.model_copy(update={"environment": environment}) for r in records]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cpu_model": "Other CPU"}, "another machine or setting: cpu_model Example CPU and Other CPU"),
        ({"dtype": "bfloat16"}, "another machine or setting: dtype float32 and bfloat16"),
        ({"torch": "2.14.0"}, "another machine or setting: torch 2.13.0 and 2.14.0"),
        ({}, "another machine: its Python or the instruction sets of its CPU differ"),
    ],
)
def test_on_another_machine_counted_figures_decide(changes: dict[str, object], why: str) -> None:
    """Memory is skipped, as nobody asked for it; time that was asked for leaves it open."""
    old = [record(measurements=[flops(10_000), unrouted(), memory(100), accuracy(0.9), latency(0.01)])]
    new = elsewhere([record(measurements=[flops(10_000), memory(200), accuracy(0.9), latency(0.01)])], **changes)
    result = gate(new, old)
    assert result.exit_code == 0
    assert only(result, "memory.peak")[:2] == ("skipped", why)
    for name in ("latency.p50", "memory.peak"):
        asked = gate(new, old, {name: 0.05})
        assert asked.exit_code == 2
        assert only(asked, name)[:2] == ("undecided", why)
    worse = elsewhere([record(measurements=[flops(10_001), memory(200), accuracy(0.9), latency(0.01)])])
    assert gate(worse, old).exit_code == 1


@pytest.mark.parametrize("by", ["routing.alpha_hard", "routing.budget", "routing.exit_layer"])
def test_on_another_machine_routed_models_may_differ_by_a_thousandth(by: str) -> None:
    old = [record(measurements=[flops(10_000), routed(by)])]
    near, far = ([record(measurements=[flops(n), routed(by)])] for n in (10_010, 10_011))
    assert gate(elsewhere(near), old).exit_code == 0
    assert gate(elsewhere(far), old).exit_code == 1
    assert gate(near, old).exit_code == 1  # exact on the same machine
    assert gate(elsewhere(near), old, {"flops.executed": 0.0}).exit_code == 1


def test_a_model_that_routes_nothing_is_exact_everywhere() -> None:
    """Pruned heads make `routed` less than `dense`, but no decision: the routing meter tells."""
    figures = [flops(10_000), figure("routing.head_fraction", 0.5), figure("routing.budget", None, better="neither")]
    formula = [figure("flops.routed", 9_000, "FLOP"), figure("flops.dense", 10_000, "FLOP", "neither")]
    assert gate(elsewhere([record(measurements=[flops(10_001), *figures[1:], *formula])]),
                [record(measurements=[*figures, *formula])]).exit_code == 1  # fmt: skip
    assert gate(elsewhere([record(measurements=[flops(10_001), *formula])]),
                [record(measurements=[flops(10_000), *formula])]).exit_code == 0  # fmt: skip


def reweighted(records: list[AuditRecord], sha256: str | None, seed: int = 0) -> list[AuditRecord]:
    return [
        r.model_copy(update={"model": r.model.model_copy(update={"weights_sha256": sha256}), "profile": {"seed": seed}})
        for r in records
    ]


def test_other_weights_leave_what_they_do_not_decide() -> None:
    plain = [record(measurements=[flops(100), unrouted(), accuracy(0.5), memory(9), figure("params", 1)])]
    result = gate(reweighted(plain, "cd" * 32), plain)
    assert [row.verdict for row in result.rows] == ["pass", "undecided", "pass", "pass"]
    assert "other weights: abababababab in the baseline, cdcdcdcdcdcd now" in result.rows[1].why
    adaptive = [record(measurements=[flops(100), accuracy(0.5), memory(9), figure("params", 1), routed()])]
    result = gate(reweighted(adaptive, "cd" * 32), adaptive)
    assert [row.verdict for row in result.rows] == ["undecided", "undecided", "undecided", "pass"]
    assert gate(reweighted(adaptive, None, 1), reweighted(adaptive, None, 1)).exit_code == 0
    result = gate(reweighted(adaptive, None, 2), reweighted(adaptive, None, 1))
    assert "random ones of seed 1 in the baseline, random ones of seed 2 now" in result.rows[0].why
    assert "audit with the weights of the baseline" in result.rows[0].hint
    untold = [record(measurements=[flops(100)])]
    (row,) = gate(reweighted(untold, "cd" * 32), untold).rows
    assert (row.verdict, "add `routing` to the meters" in row.hint) == ("undecided", True)


@pytest.mark.parametrize("side", [0, 1])
def test_time_of_a_busy_machine_decides_nothing(side: int) -> None:
    busy = Caution(code="unstable", text="other processes used 2 of 2 CPUs")
    timed = [latency(0.01), latency(0.02)]
    timed[side] = timed[side].model_copy(update={"cautions": (busy,)})
    result = gate(one(timed[1]), one(timed[0]), {"latency.p50": 0.05})
    assert result.exit_code == 2
    assert "busy or unsteady machine" in result.rows[0].why
    assert "quiet machine" in result.rows[0].hint


def test_what_auto_chose_otherwise_is_not_compared() -> None:
    old, new = (one(flops(n), choices=(word,)) for n, word in ((100, "sss"), (150, "sms")))
    verdict, why, hint = only(gate(new, old), "flops.executed")
    assert (verdict, why) == ("skipped", "`execution: auto` chose otherwise which layers skip")
    assert "execution: skip" in hint
    assert only(gate(new, old, {"flops.executed": 0.1}), "flops.executed")[0] == "undecided"
    assert only(gate(one(flops(150), choices=("sss",)), old), "flops.executed")[0] == "regressed"


def test_memory_of_other_passes_is_no_regression() -> None:
    def measured(n_bytes: int, tokens_per_pass: int | None) -> list[AuditRecord]:
        (found,) = one(memory(n_bytes))
        return [found.model_copy(update={"model": found.model.model_copy(update={"tokens_per_pass": tokens_per_pass})})]

    verdict, why, hint = only(gate(measured(200, None), measured(100, 1024)), "memory.peak")
    assert verdict == "undecided"
    assert "in passes of 1024 tokens and a batch" in why
    assert "micro_batch" in hint
    assert only(gate(measured(200, 512), measured(100, 512)), "memory.peak")[0] == "regressed"
    assert only(gate(measured(90, 512), measured(100, None)), "memory.peak")[0] == "improved"


def test_a_regression_outweighs_what_is_undecided() -> None:
    old = [record(measurements=[flops(1), figure("flops.routed", 1, "FLOP")])]
    new = [record(measurements=[flops(2)])]
    assert gate(new, old).exit_code == 1


@pytest.mark.parametrize("side", [0, 1])
def test_a_model_that_is_there_twice_is_refused(side: int) -> None:
    pairs = [[record(measurements=[flops(1)])], [record(measurements=[flops(1)])]]
    pairs[side] = [*pairs[side], record(measurements=[flops(2)])]
    with pytest.raises(EffauditError, match="is there twice"):
        gate(*pairs)


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


def test_rendered_gate_says_once_what_holds_for_several_rows() -> None:
    other = [r.model_copy(update=workload(sha256="other")) for r in everyone()]
    text = render_gate(gate(other, everyone()))
    assert text.count("hint: audit the workload") == len(everyone())
