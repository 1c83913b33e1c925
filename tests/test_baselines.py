import json
from pathlib import Path

import pytest

from effaudit import plugins
from effaudit.baselines import Change, baseline_of, baseline_path, changes, load_baseline, save_baseline, to_text
from effaudit.errors import EffauditError
from effaudit.model_targets import OWN
from effaudit.profile_spec import load_profile
from effaudit.record import Caution, save_record, to_json
from effaudit.renderers.console import render_changes
from tests.fakes_records import dense, everyone, figure, latency, record


def test_round_trip(tmp_path: Path) -> None:
    path = baseline_path("demo", tmp_path)
    baseline = baseline_of(everyone())
    save_baseline(baseline, path)
    save_baseline(baseline, path)  # a baseline is replaced, unlike a record
    assert load_baseline(path) == baseline
    assert path.name == "demo.json"

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    data = json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)
    assert list(data) == ["schema_version", "profile", "models"]


def test_full_records_are_read_as_the_baseline_that_they_would_make(tmp_path: Path) -> None:
    document = tmp_path / "document.json"
    document.write_text(to_json(everyone()), encoding="utf-8")
    assert load_baseline(document) == baseline_of(everyone())
    save_record(dense(), tmp_path / "one.json")
    assert load_baseline(tmp_path / "one.json") == baseline_of([dense()])


def test_a_figure_is_a_line_without_raw_samples() -> None:
    text = to_text(baseline_of([dense()]))
    lines = [line.strip().rstrip(",") for line in text.splitlines()]
    assert (
        '{"name": "flops.executed", "unit": "FLOP", "better": "lower", "source": "counted", "value": 50000000000}'
        in (lines)
    )
    (timed,) = (json.loads(line) for line in lines if "latency.p50" in line)
    assert timed["value"] == 0.012
    assert timed["n"] == 8
    assert timed["interval"][0] <= 0.012 <= timed["interval"][1]
    (quality,) = (json.loads(line) for line in lines if "quality.accuracy" in line)
    assert quality["standard_error"] == pytest.approx((0.942 * 0.058 / 1000) ** 0.5, rel=1e-5)
    assert '"samples"' not in text
    assert "emissions" not in text  # unavailable


def test_what_changes_from_run_to_run_is_left_out() -> None:
    """The same figures, found later, at another commit, on a busier machine: the same file."""
    later = dense().model_copy(update={"created_utc": "2031-01-01T00:00:00Z", "effaudit_version": "9"})
    there = later.environment.model_copy(update={"git_commit": "ab" * 20, "load_average": (9.0, 9.0, 9.0)})
    later = later.model_copy(update={"environment": there})
    assert to_text(baseline_of([later])) == to_text(baseline_of([dense()]))


def test_an_unstable_time_stays_so() -> None:
    caution = Caution(code="unstable", text="busy")
    measurement = latency(0.01).model_copy(update={"cautions": (caution,)})
    assert '"is_unstable": true' in to_text(baseline_of([record(measurements=[measurement])]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON"),
        ("[]", "no document"),
        ('{"records": []}', "holds no records"),
        ('{"records": 3}', "no document"),
        ('{"records": [{}]}', "no schema_version"),
        ('{"records": [{"schema_version": 0}]}', "has record schema 0, this effaudit reads from 1 on"),
        ('{"records": [{"schema_version": 99}]}', "has record schema 99, this effaudit reads up to 1"),
        ('{"records": [{"schema_version": 1}]}', "not a valid record"),
        ('{"schema_version": 0, "profile": "p", "models": []}', "has baseline schema 0, this effaudit reads 1"),
        ('{"schema_version": 99, "profile": "p", "models": []}', "has baseline schema 99, this effaudit reads 1"),
        ('{"profile": "p", "models": []}', "has baseline schema None, this effaudit reads 1"),
        ('{"schema_version": 1, "profile": "p", "models": []}', "holds no models"),
        ('{"schema_version": 1, "models": []}', "profile: Field required"),
        ('{"schema_version": 1, "profile": "p", "models": [{}]}', r"models\.0\.model: Field required"),
    ],
)
def test_what_is_no_baseline_is_refused_in_one_line(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "b.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(EffauditError, match=message) as caught:
        load_baseline(path)
    assert "\n" not in caught.value.message


def test_a_missing_baseline_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(EffauditError, match="cannot read baseline") as caught:
        load_baseline(tmp_path / "none.json")
    assert "baseline update" in caught.value.hint


def test_changes_name_what_differs_is_added_and_goes() -> None:
    old = record(measurements=[figure("params", 10), figure("gone", 1), figure("kept", 3)])
    new = record(measurements=[figure("kept", 3), figure("params", 11), figure("added", 2)])
    found = changes(baseline_of([old]), baseline_of([new]))
    assert found == (
        Change("dense", "params", "1", 10, 11),
        Change("dense", "gone", "1", 1, None),
        Change("dense", "added", "1", None, 2),
    )
    told = render_changes(found).splitlines()
    assert told[0] == "dense params: 10.0 -> 11.0 (+10.00 %)"
    assert told[1] == "dense gone: 1.00 -> –"
    assert render_changes(()) == "nothing changes\n"


def test_changes_name_another_machine_workload_and_weights() -> None:
    new = record(measurements=[figure("params", 10)], fingerprint="machine-b")
    new = new.model_copy(
        update={
            "model": new.model.model_copy(update={"weights_sha256": None}),
            "workload": new.workload.model_copy(update={"batch_size": 8}),
        }
    )
    old = record(measurements=[figure("params", 10)])
    assert [(change.what, change.after) for change in changes(baseline_of([old]), baseline_of([new]))] == [
        ("weights", "random ones"),
        ("machine", "Example CPU, torch 2.13.0 (machine-b)"),
        ("workload", "graded/test, 1000 in batches of 8 (workload-a)"),
    ]
    assert len(changes(None, baseline_of([old]))) == 4


def test_this_projects_own_gate_covers_every_variant() -> None:
    profile = load_profile("ci")
    assert {model.variant for model in profile.models} == set(plugins.names("variants")) - set(OWN)
    baseline = load_baseline(Path(__file__).parents[1] / baseline_path("ci"))
    assert [summary.model for summary in baseline.models] == [model.name for model in profile.models]
    assert all(summary.get("flops.executed") for summary in baseline.models)
