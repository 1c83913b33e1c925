"""A few stretches of the workload's text, with the layers that each of their tokens went through."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from effaudit.record import MAX_SAMPLE_CHARACTERS, MAX_TEXT_SAMPLES, TextSample
from effaudit.workload import Batch


def text_samples(
    batch: Batch, kept: Tensor, pieces: Callable[[Sequence[int]], tuple[str, ...]]
) -> tuple[TextSample, ...]:
    """The beginnings of those examples of the batch that are among the first of the data.

    `kept` (B, T, L) bool: the hard rule keeps the token in the layer.
    """
    found = []
    for row, index in enumerate(batch.index.tolist()):
        if index < MAX_TEXT_SAMPLES:
            real = batch.mask[row]
            layers_run = kept[row][real].sum(dim=1).tolist()
            texts = _beginning(pieces(batch.tokens[row][real].tolist()))
            found.append(TextSample(index=index, pieces=texts, layers_run=tuple(layers_run[: len(texts)])))
    return tuple(found)


def _beginning(pieces: Sequence[str]) -> tuple[str, ...]:
    """The first pieces, as many as MAX_SAMPLE_CHARACTERS hold."""
    length = 0
    for n, piece in enumerate(pieces):
        length += len(piece)
        if length > MAX_SAMPLE_CHARACTERS:
            return tuple(pieces[:n])
    return tuple(pieces)
