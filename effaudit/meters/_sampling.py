"""Which batches of a stream a timed pass runs, and how much of the stream they stand for."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

from effaudit.errors import EffauditError
from effaudit.workload import Batch, Workload

MAX_BATCHES = 16  # held at once: bounds memory, and 16 strata follow any change of length along a stream


@dataclass(frozen=True)
class Sample:
    """Batches spread evenly over a stream of `n_batches`; `n_positions` counts B x T, padding included."""

    batches: tuple[Batch, ...]
    n_batches: int
    n_positions: int  # of the whole stream

    @property
    def scale(self) -> float:
        """What a total over the batches held is multiplied by to stand for the stream; 1 when all are held."""
        return self.n_positions / sum(positions(batch) for batch in self.batches)

    @property
    def scope(self) -> str:
        """The sample in words, for a measurement's method."""
        if len(self.batches) == self.n_batches:
            return f"all {self.n_batches} batches"
        return f"{len(self.batches)} of {self.n_batches} batches, spread evenly"

    def thinned(self, n: int) -> Sample:
        """At most `n` of the batches held, still spread evenly."""
        held = len(self.batches)
        n = max(1, min(n, held))
        return replace(self, batches=tuple(self.batches[(2 * i + 1) * held // (2 * n)] for i in range(n)))


def positions(batch: Batch) -> int:
    """What a batch costs before anything is skipped."""
    return batch.n_positions


def sample(works: Sequence[Workload]) -> list[Sample]:
    """One sample per workload; a stream that several share is read once.

    Raises EffauditError when a stream is empty.
    """
    read: dict[object, Sample] = {}
    for work in works:
        if work.batches not in read:
            read[work.batches] = _sample(work)
    return [read[work.batches] for work in works]


def _sample(work: Workload) -> Sample:
    """Keeps every `stride`-th batch and doubles the stride whenever too many are held, so the stream is never."""
    held: list[Batch] = []
    stride, n_batches, n_positions = 1, 0, 0
    for batch in work.batches():
        if n_batches % stride == 0:
            held.append(batch)
        if len(held) > MAX_BATCHES:
            held, stride = held[::2], stride * 2
        n_batches += 1
        n_positions += positions(batch)
    if not held:
        raise EffauditError(f"no batches for `{work.name}`: the split is empty")
    return Sample(tuple(held), n_batches, n_positions)


def largest(work: Workload, n: int) -> list[Batch]:
    """The `n` batches that need most memory: by B x T x T (attention scores) or elements, the first of equals.

    Raises EffauditError when the stream is empty.
    """
    keyed = ((batch.n_positions * batch.tokens.shape[1], -i, batch) for i, batch in enumerate(work.batches()))
    found = [batch for *_, batch in heapq.nlargest(n, keyed, key=lambda item: item[:2])]
    if not found:
        raise EffauditError(f"no batches for `{work.name}`: the split is empty")
    return found
