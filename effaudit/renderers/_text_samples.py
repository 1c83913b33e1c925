"""What each token of a short text went through, as stretches of equal shade."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from effaudit.ladder import n_layers
from effaudit.record import MAX_SAMPLE_CHARACTERS, MAX_TEXT_SAMPLES, AuditRecord, TextSample

SHADES = 5  # from 0, nothing left out, to SHADES - 1


@dataclass(frozen=True)
class Stretch:
    """Neighbouring tokens that ran the same number of layers."""

    text: str
    layers_run: int
    shade: int


@dataclass(frozen=True)
class Shaded:
    """The samples of one model, each a row of stretches."""

    model: str
    n_layers: int
    samples: tuple[tuple[Stretch, ...], ...]


def shaded(records: Sequence[AuditRecord]) -> tuple[Shaded, ...]:
    """The models whose records hold samples."""
    found = []
    for record in records:
        n = n_layers(record)
        if record.text_samples and n is not None:
            samples = tuple(_stretches(sample, n) for sample in record.text_samples[:MAX_TEXT_SAMPLES])
            found.append(Shaded(record.model.name, n, samples))
    return tuple(found)


def _stretches(sample: TextSample, n: int) -> tuple[Stretch, ...]:
    pairs = _first(sample)
    return tuple(
        Stretch("".join(text for text, _ in group), layers, _shade(layers, n))
        for layers, group in groupby(pairs, key=lambda pair: pair[1])
    )


def _first(sample: TextSample) -> list[tuple[str, int]]:
    """The pieces that fit into MAX_SAMPLE_CHARACTERS, a line's end shown by a sign of its own."""
    kept, length = [], 0
    for piece, layers in zip(sample.pieces, sample.layers_run, strict=True):
        length += len(piece)
        if length > MAX_SAMPLE_CHARACTERS:
            break
        kept.append((piece.replace("\n", "\u21b5\n"), layers))
    return kept


def _shade(layers: int, n: int) -> int:
    """Every layer run is 0, none SHADES - 1; whatever is left out at all is not 0."""
    skipped = min(max(n - layers, 0), n)
    return -(-skipped * (SHADES - 1) // n)
