"""Tokens told apart by their text, and what is summed by class, against small texts counted by hand."""

from __future__ import annotations

import math

import pytest
import torch

from effaudit.meters._token_classes import CLASSES, Texts, TokenClasses, kind_of, words_in
from effaudit.record import TokenClassRow
from effaudit.workload import IGNORED_LABEL, Batch, Output, Routing

TEXT = "The cat sat.\nThe 7 rats!"


@pytest.mark.parametrize(
    ("piece", "kind"),
    [
        (" ", "space"),
        ("\t", "space"),
        ("\n", "line end"),
        ("Ċ", "line end"),
        ("Ġ", "space"),
        ("a", "word"),
        ("Ġthe", "word"),
        ("##ing", "word"),
        ("▁Été", "word"),
        ("7", "digit"),
        ("Ġ1984", "digit"),
        (".", "punctuation"),
        ("##", "punctuation"),
        ("[SEP]", "other"),
        ("<s>", "other"),
        ("", "other"),
        ("'s", "word"),
    ],
)
def test_kind_of_a_piece(piece: str, kind: str) -> None:
    assert kind_of(piece) == kind


@pytest.mark.parametrize(
    ("pieces", "is_characters", "words"),
    [
        (list("a cat, 2"), True, ["a", "cat"]),
        (["the", "cat", ".", "sat"], False, ["the", "cat", "sat"]),
        (["un", "##like", "##ly", "cats"], False, ["unlikely", "cats"]),
        (["The", "Ġun", "like", "ly", "Ġcats", "."], False, ["the", "unlikely", "cats"]),
        (["▁un", "like", ",", "▁so"], False, ["unlike", "so"]),
    ],
)
def test_words_of_every_kind_of_tokenizer(pieces: list[str], is_characters: bool, words: list[str]) -> None:
    found = list(words_in(pieces, [kind_of(piece) for piece in pieces], is_characters))
    assert [span.word for span in found] == words
    assert all(found[i].stop <= found[i + 1].start for i in range(len(found) - 1))


def batch_of(*texts: str) -> Batch:
    """Characters by their code points, padded; each is asked for the next."""
    width = max(map(len, texts))
    tokens = torch.tensor([[ord(c) for c in text.ljust(width, "\0")] for text in texts])
    mask = torch.tensor([[i < len(text) for i in range(width)] for text in texts])
    labels = tokens.roll(-1, dims=1).masked_fill(~mask.roll(-1, dims=1) | ~mask, IGNORED_LABEL)
    labels[:, -1] = IGNORED_LABEL
    return Batch(tokens, mask, labels, torch.arange(len(texts)), is_padded=not bool(mask.all()))


def texts_for(*batches: Batch) -> Texts:
    texts = Texts(lambda ids: tuple(map(chr, ids)), is_characters=True)
    texts.count(batches)
    return texts


def rows_of(batch: Batch, output: Output, kept: torch.Tensor | None, texts: Texts) -> dict[str, TokenClassRow]:
    classes = TokenClasses(texts)
    classes.add(batch, output, kept)
    return {row.name: row for row in classes.rows(gated=[1])}


def test_tokens_are_counted_by_class() -> None:
    batch = batch_of(TEXT, "A")
    rows = rows_of(batch, Output(torch.zeros(*batch.tokens.shape, 128), Routing()), None, texts_for(batch))
    assert {name: row.n_tokens for name, row in rows.items()} == {
        "space": 4,
        "line end": 1,
        "punctuation": 2,
        "digit": 1,
        "first of a word": 6,
        "rest of a word": 2 + 2 + 2 + 2 + 3,
        "frequent word": 3 + 3,  # `the`
        "rare word": 3 + 3 + 4 + 1,  # seen once, though `cat` fills the half of the words that are frequent
    }
    assert rows["space"].loss == pytest.approx(math.log(128))
    assert all((row.alpha_hard, row.layers) == (None, ()) for row in rows.values())


def test_what_is_kept_is_a_mean_over_the_class() -> None:
    """Layer 2 keeps letters and half of the spaces; padding is never counted, kept or not."""
    batch = batch_of("a b c", "d")
    kept = torch.ones(2, 5, 2, dtype=torch.bool)
    kept[0, 1, 1] = False
    kept[1, 1:, 1] = False
    gate = torch.where(kept, 0.9, 0.2)
    logits = torch.zeros(2, 5, 128)
    rows = rows_of(batch, Output(logits, Routing(tokens=kept, gate=gate)), kept, texts_for(batch))
    space, first = rows["space"], rows["first of a word"]
    assert (space.n_tokens, space.alpha_hard, space.layers) == (2, 0.5, (1.0, 0.5))
    assert space.alpha_soft == pytest.approx(0.55)
    assert (first.n_tokens, first.alpha_hard, first.layers) == (4, 1.0, (1.0, 1.0))
    assert list(rows) == [name for name in CLASSES if name in rows]


def test_loss_is_that_of_what_follows() -> None:
    batch = batch_of("a b")
    logits = torch.zeros(1, 3, 128)
    logits[0, 1, ord("b")] = 20.0  # after the space all is known
    rows = rows_of(batch, Output(logits, Routing(exits=torch.tensor([[1, 2, 2]]))), None, texts_for(batch))
    assert rows["space"].loss == pytest.approx(0, abs=1e-4)
    assert rows["first of a word"].loss == pytest.approx(math.log(128))  # of `a` alone: nothing follows `b`
    assert (rows["space"].exit_layer, rows["first of a word"].exit_layer) == (2, 1.5)


def test_tokens_without_a_text_have_no_classes() -> None:
    batch = batch_of("ab")
    texts = Texts(lambda ids: ("",) * len(ids), is_characters=False)
    texts.count([batch])
    classes = TokenClasses(texts)
    classes.add(batch, Output(torch.zeros(1, 2, 128), Routing()), None)
    assert classes.rows(gated=[1]) == ()
