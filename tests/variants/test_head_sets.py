"""Examples by their heads, against the sets written out."""

from __future__ import annotations

import torch

from effaudit.variants._head_sets import HeadGroup, HeadSet, Span, head_groups

HEADS = 4


def _runs(*sets: tuple[int, ...]) -> torch.Tensor:
    runs = torch.zeros(len(sets), HEADS, dtype=torch.bool)
    for example, heads in enumerate(sets):
        runs[example, list(heads)] = True
    return runs


def _heads(found: HeadSet) -> list[int] | None:
    return None if found.heads is None else found.heads.tolist()


def test_examples_are_grouped_by_number_then_by_set() -> None:
    groups = head_groups(_runs((1, 3), (2,), (1, 3), (0, 2), (), (0, 1, 2, 3), (1, 3)))
    pairs, single, whole = groups
    assert pairs.examples.tolist() == [0, 2, 6, 3]
    assert pairs.heads.tolist() == [[1, 3], [1, 3], [1, 3], [0, 2]]
    assert [_heads(found) for found in pairs.sets] == [[1, 3], [0, 2]]
    assert pairs.sets[0].spans == [Span(0, 1, 0), Span(2, 3, 1), Span(6, 7, 2)]
    assert pairs.sets[1].spans == [Span(3, 4, 3)]
    assert (single.examples.tolist(), single.heads.tolist()) == ([1], [[2]])
    assert [_heads(found) for found in whole.sets] == [None]  # all heads need no gathering


def test_consecutive_examples_are_one_span() -> None:
    (group,) = head_groups(_runs((0,), (0,), (1,), (0,)))
    assert group.sets[0].spans == [Span(0, 2, 0), Span(3, 4, 2)]
    assert [span.rows for span in group.sets[0].spans] == [slice(0, 2), slice(2, 3)]


def test_no_heads_at_all_are_no_group() -> None:
    assert head_groups(_runs((), ())) == []


def test_part_of_a_weight() -> None:
    weight = torch.arange(12).view(3, HEADS)
    group: HeadGroup = head_groups(_runs((1, 3)))[0]
    assert group.sets[0].of(weight, dim=1).tolist() == weight[:, [1, 3]].tolist()
    assert HeadSet(None, []).of(weight, dim=1) is weight
