"""Character language modelling: splits, windows, vocabulary, bad files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from effaudit.datasets import _long_text, chars, enwik8, prose, tiny_shakespeare
from effaudit.datasets._characters import CharacterModelling
from effaudit.datasets._long_text import FileText, MemoryText
from effaudit.errors import EffauditError
from effaudit.profile_spec import DataSpec

TEXT = "".join(chr(97 + i * i % 23) for i in range(880)) + "Ünïcödé €!" * 22  # 1,100 characters, the last 220 special
TEST_TEXT = TEXT[990:]


def text_dataset(path: Path, max_tokens: int = 9, text: str = TEXT) -> CharacterModelling:
    path.write_text(text, encoding="utf-8")
    return chars.open_dataset(DataSpec(dataset=f"chars:{path}", max_tokens=max_tokens))


def decoded(dataset: CharacterModelling, ids: torch.Tensor) -> list[str]:
    assert dataset.tokenizer is not None
    return [dataset.tokenizer.id_to_token(i) for i in ids.flatten().tolist()]


def test_evaluation_windows_follow_the_text_in_order(tmp_path: Path) -> None:
    dataset = text_dataset(tmp_path / "t.txt")
    batches = list(dataset.batches("calibration", 4))
    assert [batch.n_examples for batch in batches] == [4, 4, 3]
    windows = [batch.tokens.tolist() for batch in batches]
    assert dataset.tokenizer is not None
    expected = [dataset.tokenizer.encode(TEXT[880 + 10 * i :][:9]).ids for i in range(11)]
    assert [row for window in windows for row in window] == expected
    assert torch.cat([b.index for b in batches]).tolist() == list(range(11))
    for batch in batches:
        assert torch.equal(batch.tokens[:, 1:], batch.labels[:, :-1])
        assert batch.mask.all()
        assert not batch.is_padded


def test_partial_window_is_dropped_and_limit_counts_windows(tmp_path: Path) -> None:
    dataset = text_dataset(tmp_path / "t.txt", max_tokens=14)  # 110 characters hold seven windows of 15
    assert sum(batch.n_examples for batch in dataset.batches("test", 3)) == 7
    assert [batch.n_examples for batch in dataset.batches("test", 3, limit=5)] == [3, 2]


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_reading_in_small_pieces_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int) -> None:
    whole = text_dataset(tmp_path / "t.txt")
    monkeypatch.setattr(_long_text, "PIECE", piece)
    pieces = text_dataset(tmp_path / "t.txt")
    for split in ("train", "calibration", "test"):
        assert whole.sha256(split) == pieces.sha256(split)
        for one, other in zip(whole.batches(split, 5), pieces.batches(split, 5), strict=True):
            assert torch.equal(one.tokens, other.tokens)


def test_hash_is_that_of_the_splits_text(tmp_path: Path) -> None:
    dataset = text_dataset(tmp_path / "t.txt")
    assert dataset.sha256("test") == hashlib.sha256(TEST_TEXT.encode()).hexdigest()


def test_symbols_unseen_in_training_are_unknown_and_reported(tmp_path: Path) -> None:
    dataset = text_dataset(tmp_path / "t.txt")
    symbols = decoded(dataset, torch.cat([batch.tokens for batch in dataset.batches("test", 4)]))
    expected = ["[UNK]" if c not in TEXT[:880] else c for i, c in enumerate(TEST_TEXT) if i % 10 < 9]
    assert symbols == expected
    (caution,) = dataset.cautions()
    n_unknown = sum(c not in TEXT[:880] for c in TEST_TEXT)
    assert caution.code == "unknown_symbols"
    assert f"{n_unknown} of 110 characters of test" in caution.text
    assert dataset.vocab_size == len(set(TEXT[:880])) + 1


def test_ids_equal_those_of_the_saved_tokenizer(tmp_path: Path) -> None:
    dataset = text_dataset(tmp_path / "t.txt")
    assert dataset.tokenizer is not None
    saved = Tokenizer.from_str(dataset.tokenizer.to_str())
    (batch,) = dataset.batches("test", 99)
    assert saved.encode(TEST_TEXT[:9]).ids == batch.tokens[0].tolist()
    (tmp_path / "other.txt").write_text("abc" * 100)
    other = chars.open_dataset(DataSpec(dataset=f"chars:{tmp_path / 'other.txt'}", max_tokens=9), saved)
    assert other.vocab_size == dataset.vocab_size
    tokens = next(other.batches("train", 1)).tokens[0]
    assert tokens.tolist() == saved.encode("abcabcabc").ids


def test_training_windows_are_text_and_start_at_any_step(tmp_path: Path) -> None:
    dataset = text_dataset(tmp_path / "t.txt")
    steps = list(islice(dataset.training_batches(8, seed=3), 4))
    assert torch.equal(next(dataset.training_batches(8, seed=3, first_step=2)).tokens, steps[2].tokens)
    assert not torch.equal(steps[0].tokens, steps[1].tokens)
    assert not torch.equal(next(dataset.training_batches(8, seed=4)).tokens, steps[0].tokens)
    for row, label in zip(steps[0].tokens, steps[0].labels, strict=True):
        assert "".join(decoded(dataset, torch.cat([row, label[-1:]]))) in TEXT[:880]


def test_whole_file_vocabulary_keeps_no_unknown(tmp_path: Path) -> None:
    text = MemoryText("t", TEXT)
    dataset = CharacterModelling(text, 9, has_unknown=False)
    assert dataset.vocab_size == len(set(TEXT))
    with pytest.raises(EffauditError, match="has 1 symbols that the weights' vocabulary lacks, such as '#'"):
        CharacterModelling(MemoryText("t", TEXT + "#"), 9, dataset.tokenizer)


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    dataset = text_dataset(tmp_path / "t.txt", text="\ufeff" + TEXT)
    assert dataset.sha256("test") == hashlib.sha256(TEST_TEXT.encode()).hexdigest()
    assert dataset.vocab_size == len(set(TEXT[:880])) + 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"too short", "too short: of its 9 characters 7 are for train, one window takes 10"),
        (b"ab\nc\xc3\xa9\xff" + b"x" * 200, "byte 0xff at line 2, column 3"),
        (b"x" * 200 + b"\n\xe2\x82", "byte 0xe2 at line 2, column 1"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "t.txt"
    path.write_bytes(content)
    with pytest.raises(EffauditError, match=message):
        chars.open_dataset(DataSpec(dataset=f"chars:{path}", max_tokens=9))


def test_missing_file_missing_path_and_unknown_option_are_errors(tmp_path: Path) -> None:
    with pytest.raises(EffauditError, match="No such file"):
        chars.open_dataset(DataSpec(dataset=f"chars:{tmp_path / 'none.txt'}"))
    with pytest.raises(EffauditError, match="Is a directory"):
        chars.open_dataset(DataSpec(dataset=f"chars:{tmp_path}"))
    with pytest.raises(EffauditError, match="needs a text file"):
        chars.open_dataset(DataSpec(dataset="chars"))
    with pytest.raises(EffauditError, match="lenght"):
        chars.open_dataset(DataSpec(dataset="chars:x", options={"lenght": 3}))


def test_text_cut_inside_a_character_is_tolerated_only_where_said(tmp_path: Path) -> None:
    path = tmp_path / "enwik8.cut"
    path.write_bytes(b"x" * 300 + "€".encode()[:2])
    dataset = enwik8.open_dataset(DataSpec(dataset="enwik8", path=str(tmp_path), max_tokens=9))
    assert dataset.vocab_size == 1
    with pytest.raises(EffauditError, match="not UTF-8"):
        list(FileText(path).pieces())


def test_prose_is_pythons_documentation() -> None:
    dataset = prose.open_dataset(DataSpec(dataset="prose", max_tokens=64))
    (first,) = dataset.batches("train", 4, limit=4)
    assert "".join(decoded(dataset, first.tokens[0])).startswith("The ")
    assert sum(batch.n_examples for batch in dataset.batches("test", 64)) > 500
    assert dataset.sha256("test") == prose.open_dataset(DataSpec(dataset="prose")).sha256("test")


@pytest.mark.parametrize(("module", "wanted"), [(tiny_shakespeare, "input.txt"), (enwik8, "enwik8")])
def test_presets_say_what_is_expected_where(tmp_path: Path, module: object, wanted: str) -> None:
    name = str(getattr(module, "__name__")).rsplit(".", 1)[-1]  # noqa: B009
    open_dataset: Callable[[DataSpec], CharacterModelling] = getattr(module, "open_dataset")  # noqa: B009
    with pytest.raises(EffauditError, match=f"{name}` needs the folder where its files lie: `{wanted}`"):
        open_dataset(DataSpec(dataset=name))
    with pytest.raises(EffauditError, match=f"lacks files for `{name}`: `{wanted}`"):
        open_dataset(DataSpec(dataset=name, path=str(tmp_path)))


def test_tiny_shakespeare_has_the_papers_65_symbols(real_data: Callable[[str], Path]) -> None:
    folder = real_data("tiny-shakespeare")
    dataset = tiny_shakespeare.open_dataset(DataSpec(dataset="tiny_shakespeare", path=str(folder), max_tokens=128))
    assert dataset.vocab_size == 65
    n_test = 1_115_394 - 1_115_394 * 9 // 10
    assert sum(batch.n_examples for batch in dataset.batches("test", 64)) == n_test // 129
    assert dataset.cautions() == ()


def test_enwik8_excerpt_is_split_90_5_5(real_data: Callable[[str], Path]) -> None:
    folder = real_data("enwik8-excerpt")
    dataset = enwik8.open_dataset(DataSpec(dataset="enwik8", path=str(folder), max_tokens=256))
    text = (folder / "enwik8.first1004232").read_bytes().decode("utf-8", "ignore")
    expected = text[int(len(text) * 0.95) :]
    assert dataset.sha256("test") == hashlib.sha256(expected.encode()).hexdigest()
    assert dataset.vocab_size == len(set(text))
