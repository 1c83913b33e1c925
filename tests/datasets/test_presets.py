"""Well-known sets: official and JSONL layouts give the same examples; the real files are what they should be."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from tokenizers import Tokenizer

from effaudit.datasets import ag_news, dbpedia14, imdb, snli, yelp_full
from effaudit.datasets._dataset import TextExample
from effaudit.datasets._text import TextClassification
from effaudit.datasets._tokenize import word_tokenizer
from effaudit.errors import EffauditError
from effaudit.profile_spec import DataSpec
from effaudit.workload import Split

PRESETS = {"ag_news": ag_news, "dbpedia14": dbpedia14, "imdb": imdb, "snli": snli, "yelp_full": yelp_full}
SPLITS: tuple[Split, ...] = ("train", "calibration", "test")


def opened(name: str, folder: Path, tokenizer: Tokenizer | None = None) -> TextClassification:
    module: ModuleType = PRESETS[name]
    dataset: TextClassification = module.open_dataset(DataSpec(dataset=name, path=str(folder)), tokenizer)
    return dataset


def examples(name: str, folder: Path, split: Split = "test") -> list[TextExample]:
    """Without fitting a tokenizer, which takes seconds on real files."""
    return list(opened(name, folder, word_tokenizer(["x x"], 8))._examples(split))


def hashes(dataset: TextClassification) -> list[str]:
    return [dataset.sha256(split) for split in SPLITS]


@pytest.mark.parametrize(
    ("name", "texts"),
    [("ag_news", ["Oil up", "it #39;s $5"]), ("dbpedia14", ["Foo Ltd", "a firm"]), ("yelp_full", ["ok"])],
)
def test_official_csv_and_jsonl_are_the_same_examples(tmp_path: Path, name: str, texts: list[str]) -> None:
    n_classes = len(PRESETS[name].CLASS_NAMES)
    for folder in ("csv", "jsonl"):
        (tmp_path / folder).mkdir()
    for split in ("train", "test"):
        numbers = [i % n_classes for i in range(60)]
        rows = [",".join(f'"{cell}"' for cell in (n + 1, *texts)) for n in numbers]
        (tmp_path / "csv" / f"{split}.csv").write_text("\n".join(rows))
        lines = [json.dumps({"text": " ".join(texts), "label": n, "label_name": "x"}) for n in numbers]
        (tmp_path / "jsonl" / f"{split}.jsonl").write_text("\n".join(lines))
    official, plain = opened(name, tmp_path / "csv"), opened(name, tmp_path / "jsonl")
    assert hashes(official) == hashes(plain)
    labels = [example.label for example in official._examples("test")]
    assert labels == [i % n_classes for i in range(60)]
    assert len(list(official._examples("train"))) + len(list(official._examples("calibration"))) == 60


def test_official_snli_leaves_out_rows_without_gold_label(tmp_path: Path) -> None:
    names = ["neutral", "-", "entailment", "contradiction"]
    for split in ("train", "dev", "test"):
        rows = [{"gold_label": name, "sentence1": "a b", "sentence2": f"c {name}"} for name in names]
        (tmp_path / f"snli_1.0_{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    dataset = opened("snli", tmp_path)
    assert [(e.label, e.text_pair) for e in dataset._examples("calibration")] == [
        (1, "c neutral"),
        (0, "c entailment"),
        (2, "c contradiction"),
    ]


@pytest.mark.parametrize(
    ("damaged", "mended"),
    [
        ("they don #39;t, he said", "they don't, he said"),
        ("a  quot;joke quot; by ", 'a "joke" by'),
        ("Q amp;A, AT amp;T", "Q&A, AT&T"),
        ('(Reuters) &lt;A HREF="x"&gt;text&lt;/A&gt;', "(Reuters) text"),
        ("#39;Marathon mouse #39;", "'Marathon mouse'"),
        ("first\\second", "first second"),
        ("semi; colon #", "semi; colon #"),
    ],
)
def test_ag_news_html_is_mended(damaged: str, mended: str) -> None:
    assert ag_news.mended(damaged) == mended


@pytest.mark.parametrize(
    ("text", "expected"),
    [('"A ""red"" sign."', 'A "red" sign.'), ('"Quoted."', '"Quoted."'), ("plain", "plain"), ('""', '""')],
)
def test_snli_quoting_of_csv_is_undone(text: str, expected: str) -> None:
    assert snli.unquoted(text) == expected


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_missing_files_are_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(EffauditError, match=f"`{name}` needs the folder where its files lie: `train.jsonl`"):
        PRESETS[name].open_dataset(DataSpec(dataset=name))
    with pytest.raises(EffauditError, match=f"lacks files for `{name}`: `train.jsonl`"):
        opened(name, tmp_path)
    with pytest.raises(EffauditError, match="is no folder"):
        opened(name, tmp_path / "none")
    with pytest.raises(EffauditError, match="bogus"):
        PRESETS[name].open_dataset(DataSpec(dataset=name, path=str(tmp_path), options={"bogus": 1}))


def test_parent_folder_is_enough(tmp_path: Path) -> None:
    folder = tmp_path / "ag-news"
    folder.mkdir()
    for split in ("train", "test"):
        (folder / f"{split}.jsonl").write_text((json.dumps({"text": "x", "label": 0}) + "\n") * 30)
    assert hashes(opened("ag_news", tmp_path)) == hashes(opened("ag_news", folder))


def test_real_ag_news(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    folder = real_data("ag-news")
    found = examples("ag_news", folder)
    assert Counter(example.label for example in found) == {0: 1900, 1: 1900, 2: 1900, 3: 1900}
    for split in ("train", "test"):
        (tmp_path / f"{split}.csv").symlink_to(folder / "test.csv")
    assert examples("ag_news", tmp_path) == found


def test_real_snli_is_brought_to_one_form(real_data: Callable[[str], Path]) -> None:
    dataset = opened("snli", real_data("snli"))
    assert [len(list(dataset._examples(split))) for split in SPLITS] == [21_605, 9_842, 9_824]
    tokenizer = dataset.tokenizer
    assert tokenizer is not None
    unknown: Counter[str] = Counter()
    for example in dataset._examples("calibration"):
        text = tokenizer.normalizer.normalize_str(f"{example.text} {example.text_pair}")
        words = (word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
        unknown.update(word for word in words if tokenizer.token_to_id(word) is None)
    marks = {word: n for word, n in unknown.items() if not word.isalnum()}
    assert sum(marks.values()) <= 2  # of 230,000 words: no mark or ending is known in one form only
    assert {"n't", "'s", '"', "'"} <= tokenizer.get_vocab().keys()


def test_real_imdb_and_dbpedia(real_data: Callable[[str], Path]) -> None:
    reviews = examples("imdb", real_data("imdb"))
    assert Counter(review.label for review in reviews) == {0: 500, 1: 500}
    assert all("<br" not in review.text for review in reviews)
    folder = real_data("dbpedia14")
    lines = (folder / "test.jsonl").read_text(encoding="utf-8").strip().split("\n")
    names = [dbpedia14.CLASS_NAMES[example.label] for example in examples("dbpedia14", folder)]
    assert names == [json.loads(line)["label_name"] for line in lines]
