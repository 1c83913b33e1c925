import json
from pathlib import Path

import pytest

from effaudit.baselines import Change, baseline_path, changes, load_baseline, save_baseline
from effaudit.errors import EffauditError
from effaudit.record import save_record
from effaudit.renderers.console import render_changes
from tests.fakes_records import dense, everyone, figure, record


def test_round_trip_as_a_document_and_as_one_record(tmp_path: Path) -> None:
    path = baseline_path("demo", tmp_path)
    save_baseline(everyone(), path)
    save_baseline(everyone(), path)  # a baseline is replaced, unlike a record
    assert load_baseline(path) == tuple(everyone())
    assert path.name == "demo.json"

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    assert set(json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)) == {"records"}
    save_record(dense(), tmp_path / "one.json")
    assert load_baseline(tmp_path / "one.json") == (dense(),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON"),
        ("[]", "no document"),
        ('{"records": []}', "holds no records"),
        ('{"records": 3}', "no document"),
        ('{"records": [{}]}', "no schema_version"),
        ('{"records": [{"schema_version": 99}]}', "schema 99"),
        ('{"records": [{"schema_version": 1}]}', "not a valid record"),
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
    old = [record(measurements=[figure("params", 10), figure("gone", 1), figure("kept", 3)])]
    new = [record(measurements=[figure("kept", 3), figure("params", 11), figure("added", 2)])]
    found = changes(old, new)
    assert found == (
        Change("dense", "params", "1", 10, 11),
        Change("dense", "gone", "1", 1, None),
        Change("dense", "added", "1", None, 2),
    )
    assert render_changes(found).splitlines()[1] == "dense gone: 1.00 -> –"
    assert render_changes(()) == "nothing changes\n"
