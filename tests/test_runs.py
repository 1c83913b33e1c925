import json
import os
from pathlib import Path

import pytest

from effaudit import runs
from effaudit.errors import EffauditError
from effaudit.renderers import console
from tests.fakes_profiles import save_run
from tests.fakes_records import dense, tsa


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_run_has_a_folder_of_its_own() -> None:
    folders = [runs.new_run_folder("p") for _ in range(3)]
    assert len(set(folders)) == 3
    assert all(folder.parent == runs.RUNS and not any(folder.iterdir()) for folder in folders)


def test_what_a_later_version_added_to_a_record_is_kept(tmp_path: Path) -> None:
    data = dense().model_dump(mode="json")
    data["added"] = {"to": "the record"}
    data["measurements"][0]["added"] = "to a measurement"
    (tmp_path / "later.json").write_text(json.dumps(data), encoding="utf-8")
    (found,) = runs.saved_records(["later.json"])
    assert found.record.model_dump(mode="json") == data
    assert console.render([found.record]) == console.render([dense()])


def test_records_of_files_documents_and_folders(tmp_path: Path) -> None:
    saved = save_run(tmp_path / "run", [dense(), tsa()])
    (tmp_path / "run" / "notes.json").write_text('{"note": "no record"}', encoding="utf-8")
    assert [found.record for found in runs.saved_records(["run"])] == saved
    (found,) = runs.saved_records(["run/tsa.json"])
    assert found == runs.Saved(saved[1], Path("run"))


def test_a_damaged_record_in_a_folder_is_not_passed_over(tmp_path: Path) -> None:
    save_run(tmp_path / "run", [dense()])
    (tmp_path / "run" / "tsa.json").write_text('{"schema_version": 1, ', encoding="utf-8")
    with pytest.raises(EffauditError, match="is not JSON"):
        runs.saved_records(["run"])


def test_examples_come_from_beside_the_record(tmp_path: Path) -> None:
    save_run(tmp_path / "run", [dense(), tsa()])
    assert {name: len(table) for name, table in runs.examples_of(runs.saved_records(["run"])).items()} == {
        "dense": 1000,
        "tsa": 1000,
    }
    (tmp_path / "run" / "tsa.examples.csv").unlink()
    assert list(runs.examples_of(runs.saved_records(["run"]))) == ["dense"]


@pytest.mark.parametrize("content", [b"index,loss\nx,1\n", b"index,loss\n1,2,3\n", b"\xff\xfe,\n", b"loss\n1\n"])
def test_damaged_examples_are_said(content: bytes, tmp_path: Path) -> None:
    save_run(tmp_path / "run", [dense()])
    (tmp_path / "run" / "dense.examples.csv").write_bytes(content)
    with pytest.raises(EffauditError, match="is not a per-example table"):
        runs.examples_of(runs.saved_records(["run"]))


def test_newest_run(tmp_path: Path) -> None:
    for name, time in (("a", 20), ("b", 30), ("c", 10)):
        save_run(runs.RUNS / name, [dense()])
        os.utime(runs.RUNS / name / "dense.json", (time, time))
    assert runs.newest_run() == runs.RUNS / "b"


def test_what_means_saved_records(tmp_path: Path) -> None:
    (tmp_path / "ag_news").mkdir()
    (tmp_path / "run").mkdir()
    targets = ["run", "x.json", "x.yaml", "ag_news", "./ag_news"]
    assert [runs.is_saved(target) for target in targets] == [True, True, False, False, True]
