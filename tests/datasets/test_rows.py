"""Rows of CSV, TSV and JSONL files, good and bad."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from effaudit.datasets._rows import read_rows
from effaudit.errors import EffauditError

ROWS = [["text", "label"], ['He said "hi",\nthen left', "a"], ["naïve € 漢字 😀", "b"], ["", "a"]]


def csv_text() -> str:
    return "".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) + "\r\n" for row in ROWS)


def cells(path: Path, has_header: bool = True) -> list[dict[str | int, object]]:
    return [dict(row.cells) for row in read_rows(path, has_header)]


EXPECTED = [dict(zip(ROWS[0], row, strict=True)) for row in ROWS[1:]]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_csv_with_quotes_line_ends_bom_and_gzip(tmp_path: Path, ending: str, bom: str) -> None:
    path = tmp_path / f"t.csv{ending}"
    content = (bom + csv_text()).encode()
    path.write_bytes(gzip.compress(content) if ending else content)
    assert cells(path) == EXPECTED
    assert [row.line for row in read_rows(path)] == [2, 4, 5]


def test_tsv_takes_quotes_literally(tmp_path: Path) -> None:
    path = tmp_path / "t.TSV"
    path.write_text('text\tlabel\n"open quote\ta\n\nb, c\td\n')
    assert cells(path) == [{"text": '"open quote', "label": "a"}, {"text": "b, c", "label": "d"}]
    assert cells(path, has_header=False)[0] == {0: "text", 1: "label"}


def test_jsonl_with_blank_lines_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(gzip.compress('\ufeff{"text": "a\u2028b", "label": 1}\n\n{"text": null, "label": 2.0}\n'.encode()))
    rows = list(read_rows(path))
    assert [row.line for row in rows] == [1, 3]
    assert rows[0].text("text") == "a\u2028b"
    assert (rows[1].text("text"), rows[1].text("label")) == ("", "2")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl"])
def test_nul_bytes_survive_reading(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes({"t.csv": b"text\na\0b\n", "t.tsv": b"text\na\0b\n", "t.jsonl": b'{"text": "a\0b"}\n'}[name])
    assert cells(path) == [{"text": "a\0b"}]


def test_half_surrogates_of_json_become_replacement_marks(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(r'{"a": "x\ud800y", "b": "\ud83d\ude00"}')
    (row,) = read_rows(path)
    assert row.text("a") == "x\ufffdy"
    assert row.text("b") == "😀"


def test_cells_larger_than_the_csv_module_allows_by_default(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text\n" + "x" * 200_000 + "\n")
    assert len(cells(path)[0]["text"]) == 200_000  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"text,label\na,b\nc,d,e\n", "line 3 has 3 columns, 2 are expected"),
        ("t.csv", b'text,label\n"open,b\nc,d\n', "line 2 is not a proper row"),
        ("t.csv", b"text,text\na,b\n", "two columns `text`"),
        ("t.csv", b"text,label\nok,b\ncaf\xe9,d\n", "byte 0xe9 at line 3, column 4"),
        ("t.csv", "text\né\n".encode("utf-16"), "byte 0xff at line 1, column 1"),
        ("t.jsonl", b'{"a": 1}\n{"a": 2\n', "line 2 is not JSON"),
        ("t.jsonl", b'{"a": ' + b"[" * 10**5 + b"\n", "line 1 is not JSON"),
        ("t.jsonl", b"[1, 2]\n", "line 1 is a list, not an object"),
        ("t.jsonl", '{"a": "é'.encode() + b"\xff", "byte 0xff at line 1, column 9"),
        ("t.csv.gz", b"text\n", "no complete gzip file"),
        ("t.csv.gz", gzip.compress(b"text\n" + b"abc\n" * 1000)[:-8], "no complete gzip file"),
        ("t.parquet", b"", "cannot tell the format"),
    ],
)
def test_bad_files_are_named_with_their_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(EffauditError, match=message) as caught:
        cells(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message


def test_missing_file_and_wrong_columns(tmp_path: Path) -> None:
    with pytest.raises(EffauditError, match="No such file"):
        cells(tmp_path / "t.csv")
    path = tmp_path / "t.jsonl"
    path.write_text('{"sentence": ["x"], "label": 1}\n')
    (row,) = read_rows(path)
    with pytest.raises(EffauditError, match="line 1: no column `sentense`") as caught:
        row.text("sentense")
    assert caught.value.hint == "did you mean `sentence`? known: label, sentence"
    with pytest.raises(EffauditError, match="column `sentence` holds a list"):
        row.text("sentence")
