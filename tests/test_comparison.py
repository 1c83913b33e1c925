import subprocess
import sys
from math import log

import pytest

from effaudit.comparison import Delta, compare, compare_measurement, ratio_of
from effaudit.example_table import ExampleTable
from effaudit.record import AuditRecord, Better, Measurement
from tests.fakes_records import WORKLOAD, dense, figure, latency, record, table, tsa


def verdict(old: Measurement, new: Measurement) -> Delta:
    return compare_measurement(record(measurements=[old]), record(measurements=[new]), old.name)


def test_a_record_against_itself_is_the_same() -> None:
    deltas = compare(dense(), dense())
    known = {d.name: d.verdict for d in deltas if d.before is not None}
    assert set(known.values()) == {"same"}
    assert [d.name for d in deltas] == [m.name for m in dense().measurements]


def test_counted_figures_compare_exactly() -> None:
    delta = verdict(figure("flops.executed", 1000, "FLOP"), figure("flops.executed", 1001, "FLOP"))
    assert (delta.verdict, delta.ratio, delta.interval) == ("worse", 1.001, None)
    delta = verdict(figure("x", 10, better="higher"), figure("x", 11, better="higher"))
    assert delta.verdict == "better"


def test_times_need_an_interval() -> None:
    assert verdict(latency(0.01), latency(0.02)).verdict == "worse"
    delta = verdict(latency(0.01), latency(0.005))
    assert delta.verdict == "better"
    assert delta.interval == pytest.approx((0.5, 0.5))
    alone = figure("latency.p50", 0.01, "s", source="measured")
    assert verdict(alone, figure("latency.p50", 0.02, "s", source="measured")).verdict == "unsure"


def test_times_with_an_interval_over_one_are_unsure() -> None:
    mixed = (0.5, -0.5, 0.3, -0.3, 0.4, -0.4, 0.1, 0.0)
    delta = verdict(latency(0.01), latency(0.0101, mixed))
    assert delta.verdict == "unsure"
    assert delta.interval is not None
    assert delta.interval[0] < 1 < delta.interval[1]


def test_samples_of_unlike_number_are_not_paired() -> None:
    spread = (0.0, 0.1, -0.1, 0.05, -0.05)
    paired = verdict(latency(0.01, spread), latency(0.0102, spread)).interval
    unpaired = verdict(latency(0.01, spread), latency(0.0102, (*spread, 0.0))).interval
    assert paired == pytest.approx((1.02, 1.02))
    assert unpaired is not None
    assert unpaired[0] < 1.02 < unpaired[1]


def test_tail_percentiles_get_no_interval_of_medians() -> None:
    slow = [0.01] * 40
    old = figure("latency.p95", 0.01, "s", source="measured", samples=slow)
    new = figure("latency.p95", 0.02, "s", source="measured", samples=slow)
    assert verdict(old, new).interval is None


def test_another_machine_leaves_only_what_does_not_depend_on_it() -> None:
    before, after = dense(), tsa().model_copy(update={"environment": record(fingerprint="machine-b").environment})
    verdicts = {d.name: d.verdict for d in compare(before, after)}
    assert verdicts["flops.executed"] == "better"
    for name in ("latency.p50", "energy.gross", "memory.peak"):
        assert verdicts[name] == "not_comparable"


@pytest.mark.parametrize(
    "change", [{"sha256": "workload-b"}, {"batch_size": 8}, {"n_examples": 10}, {"split": "train"}]
)
def test_another_workload_is_not_comparable_but_for_the_model_itself(change: dict[str, object]) -> None:
    old = record(measurements=[figure("params", 1), figure("flops.executed", 5, "FLOP")])
    new = old.model_copy(update={"workload": WORKLOAD.model_copy(update=change)})
    deltas = {d.name: d for d in compare(old, new)}
    assert deltas["params"].verdict == "same"
    assert deltas["flops.executed"].verdict == "not_comparable"
    assert "another workload" in deltas["flops.executed"].reason


def test_accuracy_differences_within_binomial_noise_are_unsure() -> None:
    def accuracy(value: float) -> AuditRecord:
        return record(measurements=[figure("quality.accuracy", value, better="higher")])

    near = compare_measurement(accuracy(0.90), accuracy(0.89), "quality.accuracy")
    far = compare_measurement(accuracy(0.90), accuracy(0.80), "quality.accuracy")
    # Standard error at n = 1000: sqrt(.9*.1/1000 + .8*.2/1000) = .0158; 1.96 of them around -.1, over .9.
    assert far.interval == pytest.approx(((0.8 - 0.03099) / 0.9, (0.8 + 0.03099) / 0.9), abs=1e-4)
    assert (near.verdict, far.verdict) == ("unsure", "worse")


def answered(right: list[int], name: str = "quality.accuracy") -> AuditRecord:
    """A record whose table says which of 1000 examples were answered right, or with half a bit less loss."""
    rows = {"correct": right, "loss": [1.0 - log(2) / 2 * r for r in right], "n_asked": [1] * len(right)}
    loss = sum(rows["loss"]) / len(right)
    value = {"quality.accuracy": sum(right) / len(right), "quality.loss": loss, "quality.bpc": loss / log(2)}[name]
    better: Better = "higher" if name == "quality.accuracy" else "lower"
    return record(measurements=[figure(name, value, better=better, source="measured")]).with_table(table(**rows))


@pytest.mark.parametrize(("name", "verdict"), [("quality.accuracy", "worse"), ("quality.bpc", "worse")])
def test_quality_is_compared_example_by_example(name: str, verdict: str) -> None:
    """17 of 1000 lost and none won is a real difference, which the binomial interval of two samples cannot see."""
    right = [int(i % 10 < 9) for i in range(1000)]
    fewer = [r and int(i % 60 != 1) for i, r in enumerate(right)]
    lost = (sum(right) - sum(fewer)) / 1000
    delta = compare_measurement(answered(right, name), answered(fewer, name), name)
    assert delta.verdict == verdict
    assert delta.difference is not None
    change = -lost if name == "quality.accuracy" else lost / 2
    assert delta.difference[0] < change < delta.difference[1]
    # Standard error of a mean of n differences of which a share `lost` is 1: sqrt(lost (1 - lost) / n).
    half = 1.96 * (lost * (1 - lost) / 1000) ** 0.5 / (1 if name == "quality.accuracy" else 2)
    assert (delta.difference[1] - delta.difference[0]) / 2 == pytest.approx(half, rel=0.12)
    alone = answered(fewer, name).with_table(None)
    assert compare_measurement(answered(right, name), alone, name).verdict == "unsure"


def test_quality_that_the_examples_do_not_tell_apart() -> None:
    right = [int(i % 10 < 9) for i in range(1000)]
    other = [int(i % 10 > 0) for i in range(998)] + [0, 0]
    delta = compare_measurement(answered(right), answered(other), "quality.accuracy")
    assert (delta.verdict, delta.reason.partition(":")[0]) == ("unsure", "not distinguishable")


def test_examples_are_paired_by_index() -> None:
    right = [i % 2 for i in range(1000)]
    before, after = answered(right), answered(right)
    assert after.table is not None
    backwards = {name: after.table[name][::-1] for name in after.table.names}
    delta = compare_measurement(before, after.with_table(ExampleTable(None, backwards)), "quality.accuracy")
    assert delta.difference == (0, 0)


@pytest.mark.parametrize("columns", [{"loss": [0.5] * 10}, {"loss": [0.5] * 1000}])
def test_a_table_of_another_audit_is_not_read(columns: dict[str, list[float]]) -> None:
    own = record(measurements=[figure("quality.loss", 0.7, "nat", source="measured")])
    assert own.with_table(table(**columns)).table is None
    assert own.with_table(table(loss=[0.7] * 1000)).table is not None


def test_memory_is_the_same_within_what_a_reading_moves_by() -> None:
    def memory(value: int) -> Measurement:
        return figure("memory.peak", value, "B", source="measured")

    assert verdict(memory(1000), memory(1040)).verdict == "same"
    assert verdict(memory(1000), memory(1060)).verdict == "worse"
    assert verdict(memory(1000), memory(900)).verdict == "better"


def test_what_is_missing_says_where_and_why() -> None:
    none = figure("energy.gross", None, "J", method="no counter")
    assert "no counter" in verdict(none, figure("energy.gross", 1.0, "J", source="measured")).reason
    assert compare(record(), record(measurements=[figure("params", 1)]))[0].reason == "not measured before"
    assert verdict(figure("x", 1, "s"), figure("x", 1, "B")).verdict == "not_comparable"


def test_figures_without_a_direction_are_not_judged() -> None:
    assert verdict(figure("r", 0.5, better="neither"), figure("r", 0.6, better="neither")).verdict == "unsure"


def test_ratio_is_none_where_it_is_undefined() -> None:
    assert ratio_of(0, 1) is None
    assert ratio_of(1, 10**400) is None
    assert ratio_of(4, 2) == 0.5


def test_records_and_reports_import_neither_torch_nor_matplotlib() -> None:
    modules = ["comparison", "ladder", "gating", "baselines", "difficulty", "units"]
    modules += [f"renderers.{name}" for name in ["console", "markdown", "csv", "html", "figures"]]
    imports = "; ".join(f"import effaudit.{name}" for name in modules)
    check = f"{imports}; import sys; print([m for m in ('torch', 'matplotlib') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
