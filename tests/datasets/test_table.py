"""`table:<path>`: columns, classes, splits, and what is said about bad tables."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

import pytest
import torch

from effaudit.datasets import table
from effaudit.datasets._text import TextClassification
from effaudit.errors import EffauditError
from effaudit.profile_spec import DataSpec
from effaudit.workload import Split

SPLITS: tuple[Split, ...] = ("train", "calibration", "test")


def write(path: Path, rows: Sequence[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows(n: int, start: int = 0) -> list[dict[str, object]]:
    return [{"text": f"row number {start + i}", "label": "no" if i % 3 else "yes"} for i in range(n)]


def opened(path: Path, **options: object) -> TextClassification:
    return table.open_dataset(DataSpec(dataset=f"table:{path}", options=options))


def texts(dataset: TextClassification, split: Split) -> list[str]:
    return [example.text for example in dataset._examples(split)]


def test_single_file_is_split_by_seed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", rows(1000))
    dataset = opened(path)
    by_split = {split: texts(dataset, split) for split in SPLITS}
    assert sorted(chain(*by_split.values())) == sorted(str(row["text"]) for row in rows(1000))
    assert abs(len(by_split["test"]) - 100) < 30  # three standard deviations
    assert abs(len(by_split["calibration"]) - 100) < 30
    assert texts(opened(path), "test") == by_split["test"]
    assert texts(opened(path, split_seed=1), "test") != by_split["test"]
    index = torch.cat([batch.index for batch in dataset.batches("test", 32)])
    assert sorted(index.tolist()) == list(range(len(by_split["test"])))


def test_calibration_is_kept_from_training_when_only_a_test_file_is_given(tmp_path: Path) -> None:
    write(tmp_path / "te.jsonl", rows(20, start=1000))
    train = write(tmp_path / "tr.jsonl", rows(1000))
    by_file, by_folder = opened(train, test="te.jsonl"), opened(tmp_path, train="tr.jsonl", test="te.jsonl")
    assert len(texts(by_file, "test")) == 20
    assert abs(len(texts(by_file, "calibration")) - 100) < 30
    parts = texts(by_file, "train") + texts(by_file, "calibration")
    assert sorted(parts) == sorted(str(row["text"]) for row in rows(1000))
    assert [by_file.sha256(split) for split in SPLITS] == [by_folder.sha256(split) for split in SPLITS]


def test_files_for_all_splits_are_taken_whole(tmp_path: Path) -> None:
    for n, name in enumerate(("a", "b", "c"), start=3):
        write(tmp_path / f"{name}.jsonl", rows(n))
    dataset = opened(tmp_path, train="a.jsonl", calibration="b.jsonl", test="c.jsonl")
    assert [len(texts(dataset, split)) for split in SPLITS] == [3, 4, 5]
    without_test = opened(tmp_path, train="a.jsonl", calibration="b.jsonl")
    with pytest.raises(EffauditError, match="the table has no test split"):
        next(without_test.batches("test", 1))


def test_columns_by_name_and_by_number(tmp_path: Path) -> None:
    content = "kind,title,body\n" + "x,Big News,it rains\ny,Small News,it snows\n" * 50
    (tmp_path / "h.csv").write_text(content)
    (tmp_path / "n.csv").write_text(content.split("\n", 1)[1])
    named = opened(tmp_path / "h.csv", text=["title", "body"], label="kind")
    numbered = opened(tmp_path / "n.csv", text=[1, 2], label=0, header=False)
    assert set(texts(named, "test")) == {"Big News it rains", "Small News it snows"}
    assert named.sha256("test") == numbered.sha256("test")
    assert named.class_names == ("x", "y")
    paired = opened(tmp_path / "h.csv", text="title", text_pair="body", label="kind")
    assert {(e.text, e.text_pair) for e in paired._examples("test")} == {
        ("Big News", "it rains"),
        ("Small News", "it snows"),
    }


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["10", "9", "2"], ("2", "9", "10")),
        ([3, 1.0, 2], ("1", "2", "3")),
        (["b", "10", "a"], ("10", "a", "b")),
        (["1", "01", "001"], ("001", "01", "1")),  # one number, but three classes: always in one order
    ],
)
def test_classes_are_found_in_order(tmp_path: Path, values: list[object], expected: tuple[str, ...]) -> None:
    path = write(tmp_path / "t.jsonl", [{"text": "x", "label": value} for value in values * 20])
    assert opened(path).class_names == expected


def test_given_classes_keep_their_order(tmp_path: Path) -> None:
    write(tmp_path / "t.jsonl", rows(30))
    dataset = opened(tmp_path, train="t.jsonl", test="t.jsonl", class_names=["yes", "no", "maybe"])
    assert (dataset.class_names, dataset.n_classes) == (("yes", "no", "maybe"), 3)
    batch = next(dataset.batches("test", 30))
    assert [int(batch.labels[int(i)]) for i in batch.index.argsort()] == [min(i % 3, 1) for i in range(30)]
    assert [caution.code for caution in dataset.cautions()][-1] == "unbalanced_classes"


def test_given_tokenizer_is_used(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", rows(100))
    other = write(tmp_path / "o.jsonl", [{"text": "number strange", "label": "no"}] * 100)
    tokenizer = opened(path).tokenizer
    dataset = table.open_dataset(DataSpec(dataset=f"table:{other}"), tokenizer)
    assert tokenizer is not None
    assert next(dataset.batches("test", 1)).tokens.tolist() == [[tokenizer.token_to_id("number"), 1]]


@pytest.mark.parametrize(
    ("content", "options", "message", "hint"),
    [
        ("", {}, "has no rows", ""),
        ("text,label\n", {}, "has no rows", ""),
        ("text,label\na,x\n", {"text": "txt"}, "line 2: no column `txt`", "did you mean `text`? known: label, text"),
        ("text,label\na,x\n", {"label": "class"}, "line 2: no column `class`", "known: label, text"),
        ("text,label\na,x\n", {"text": 0}, "line 2: no column `0`", "known: label, text"),
        ("a,x\n", {"header": False}, "line 1: no column `label`", "known: 0, 1"),
        ("text,label\na,x\nb,\n", {}, "line 3: the label is missing", "fill column `label`"),
        ("text,label\na,x\nb,z\n", {"class_names": ["x", "y"]}, "line 3: unknown label `z`", "known: x, y"),
        ("text,label\na,x\n", {"text": []}, "text", ""),
        ("text,label\na,x\n", {"class_names": [False, True]}, "put it in quotes", ""),
        ("text,label\na,x\n", {"class_names": ["x", "x"]}, "two classes have the same name", ""),
        ("text,label\na,x\n", {"texts": "text"}, "texts", "did you mean `text`"),
        ("text,label\na,x\n", {"test": "none.csv"}, "no test file", ""),
        ("text,label\na,x\n", {"train": "t.csv"}, "is the training file, and the option `train` names another", ""),
        ("text,label\n" + "".join(f"a,x{i}\n" for i in range(1001)), {}, "more than 1000 different labels", ""),
    ],
)
def test_bad_tables_and_options_are_named(
    tmp_path: Path, content: str, options: dict[str, object], message: str, hint: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(EffauditError) as caught:
        opened(path, **options)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_unknown_label_in_the_test_file_names_its_row(tmp_path: Path) -> None:
    write(tmp_path / "tr.jsonl", rows(30))
    write(tmp_path / "te.jsonl", [*rows(2), {"text": "x", "label": "unsure"}])
    dataset = opened(tmp_path, train="tr.jsonl", test="te.jsonl")
    with pytest.raises(EffauditError, match=r"te.jsonl` line 3: unknown label `unsure`") as caught:
        list(dataset.batches("test", 8))
    assert caught.value.hint == "known: no, yes"


def test_missing_table_and_folder_without_options(tmp_path: Path) -> None:
    with pytest.raises(EffauditError, match="no table"):
        opened(tmp_path / "none.csv")
    with pytest.raises(EffauditError, match="is a folder"):
        opened(tmp_path)
    with pytest.raises(EffauditError, match="needs a file"):
        table.open_dataset(DataSpec(dataset="table"))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    text = "word " * 40

    def peak(n: int) -> int:
        path = write(tmp_path / f"{n}.jsonl", [{"text": text + str(i), "label": i % 2} for i in range(n)])
        tokenizer = opened(path, test=path.name, class_names=[0, 1]).tokenizer
        spec = DataSpec(dataset=f"table:{path}", options={"test": path.name})
        tracemalloc.start()
        dataset = table.open_dataset(spec, tokenizer)
        assert sum(batch.n_examples for batch in dataset.batches("test", 2)) == n
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak

    peak(200)  # what is loaded once is not counted
    assert peak(1500) - peak(300) < 1200 * len(text) / 2


def test_difficulty_is_a_column_of_numbers(tmp_path: Path) -> None:
    graded = [{**row, "steps": i % 5 if i % 7 else None} for i, row in enumerate(rows(60))]
    dataset = opened(write(tmp_path / "t.jsonl", graded), difficulty="steps")
    found = {
        int(i): d
        for batch in dataset.batches("train", 8)
        for i, d in zip(batch.index.tolist(), batch.difficulty.tolist(), strict=True)  # type: ignore[union-attr]
    }
    by_text = {str(row["text"]): row["steps"] for row in graded}
    for index, text in enumerate(texts(dataset, "train")):
        expected = by_text[text]
        assert found[index] == expected if expected is not None else found[index] != found[index]


def test_difficulty_that_is_no_number_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [{**row, "steps": "hard"} for row in rows(20)])
    with pytest.raises(EffauditError, match="column `steps` holds `hard`, no number"):
        list(opened(path, difficulty="steps").batches("train", 4))
