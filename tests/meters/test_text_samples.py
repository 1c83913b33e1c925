from pathlib import Path

import torch

from effaudit.auditing import run_audit
from effaudit.meters._text_samples import text_samples
from effaudit.record import MAX_SAMPLE_CHARACTERS, MAX_TEXT_SAMPLES
from effaudit.workload import IGNORED_LABEL, Batch
from tests import makers


def batch(first_index: int, n: int, n_tokens: int) -> Batch:
    """Token t of every example is t; the last one is padding."""
    mask = torch.ones(n, n_tokens, dtype=torch.bool)
    mask[:, -1] = False
    tokens = torch.arange(n_tokens).expand(n, -1)
    labels = torch.full_like(tokens, IGNORED_LABEL)
    return Batch(tokens, mask, labels, torch.arange(first_index, first_index + n), is_padded=True)


def letters(ids: object) -> tuple[str, ...]:
    assert isinstance(ids, list)
    return tuple("abcdefghij"[number % 10] for number in ids)


def test_each_token_has_its_text_and_the_layers_it_ran_without_padding() -> None:
    kept = torch.zeros(1, 4, 3, dtype=torch.bool)
    kept[0, :, 0] = True
    kept[0, 1] = True
    (sample,) = text_samples(batch(7, 1, 4), kept, letters)
    assert (sample.index, sample.pieces, sample.layers_run) == (7, ("a", "b", "c"), (1, 3, 1))


def test_only_the_first_examples_and_their_beginnings_are_kept() -> None:
    long = MAX_SAMPLE_CHARACTERS + 50
    found = text_samples(batch(MAX_TEXT_SAMPLES - 1, 3, long), torch.ones(3, long, 2, dtype=torch.bool), letters)
    assert [sample.index for sample in found] == [MAX_TEXT_SAMPLES - 1]
    assert len("".join(found[0].pieces)) == len(found[0].layers_run) == MAX_SAMPLE_CHARACTERS
    wide = text_samples(
        batch(0, 1, long), torch.ones(1, long, 2, dtype=torch.bool), lambda ids: ("abcdefg",) * len(ids)
    )
    assert len("".join(wide[0].pieces)) == MAX_SAMPLE_CHARACTERS // 7 * 7


def test_an_audit_keeps_text_that_is_public_and_no_other(tmp_path: Path) -> None:
    prose = makers.profile("dense", "tsa", data={"dataset": "prose", "options": {}, "max_tokens": 32, "limit": 12})
    dense, tsa = run_audit(prose, tmp_path / "prose", is_quiet=True)
    assert dense.text_samples == ()  # it decides nothing
    assert [sample.index for sample in tsa.text_samples] == list(range(MAX_TEXT_SAMPLES))
    assert {len(sample.pieces) for sample in tsa.text_samples} == {32}
    assert " " in {piece for sample in tsa.text_samples for piece in sample.pieces}
    for record in run_audit(makers.profile("tsa"), tmp_path / "copy", is_quiet=True):
        assert record.text_samples == ()
