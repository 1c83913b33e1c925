"""Which examples of a batch run the same heads, or equally many.

Shapes: B batch, H heads, b examples that run k heads each.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor


@dataclass(frozen=True)
class Span:
    """Consecutive examples of a batch, and the row at which they lie in their group."""

    start: int
    stop: int
    row: int

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + self.stop - self.start)


@dataclass(frozen=True)
class HeadSet:
    """Heads (k,), and the examples that run these and no others; None stands for all heads."""

    heads: Tensor | None
    spans: list[Span]

    def of(self, weight: Tensor, dim: int) -> Tensor:
        """The part of these heads, which lie along `dim`."""
        return weight if self.heads is None else weight.index_select(dim, self.heads)


@dataclass(frozen=True)
class HeadGroup:
    """Examples (b,) that run k heads each (b, k), those of one set next to one another."""

    examples: Tensor
    heads: Tensor
    examples_of: list[tuple[int, list[int]]]  # those of each set: the row of their first, and their places in the batch
    is_whole: bool  # whether they run all heads

    @cached_property
    def sets(self) -> list[HeadSet]:
        return [
            HeadSet(None if self.is_whole else self.heads[row], _spans(examples, row))
            for row, examples in self.examples_of
        ]


def head_groups(runs: Tensor) -> list[HeadGroup]:
    """Of `runs` (B, H) bool; examples without any head are in no group. One transfer to the host."""
    examples_of: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for example, flags in enumerate(runs.tolist()):
        examples_of[tuple(head for head, is_run in enumerate(flags) if is_run)].append(example)
    by_size: dict[int, list[tuple[tuple[int, ...], list[int]]]] = defaultdict(list)
    for heads, examples in examples_of.items():
        by_size[len(heads)].append((heads, examples))
    return [_group(sets, runs) for n_heads, sets in by_size.items() if n_heads > 0]


def _group(sets: list[tuple[tuple[int, ...], list[int]]], runs: Tensor) -> HeadGroup:
    rows: list[list[int]] = []
    found = []
    for heads, examples in sets:
        found.append((len(rows), examples))
        rows += [[example, *heads] for example in examples]
    table = _on_device(rows, runs.device)  # (b, 1 + k)
    return HeadGroup(table[:, 0], table[:, 1:], found, is_whole=len(sets[0][0]) == runs.shape[1])


def _spans(examples: list[int], row: int) -> list[Span]:
    """Ascending examples as runs of consecutive ones."""
    breaks = [i for i in range(1, len(examples)) if examples[i] != examples[i - 1] + 1]
    edges = zip([0, *breaks], [*breaks, len(examples)], strict=True)
    return [Span(examples[i], examples[j - 1] + 1, row + i) for i, j in edges]


def _on_device(rows: list[list[int]], device: torch.device) -> Tensor:
    """Pinned first, as otherwise the host would wait for a GPU to take them."""
    table = torch.tensor(rows)
    return table if device.type != "cuda" else table.pin_memory().to(device, non_blocking=True)
