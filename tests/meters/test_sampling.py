"""Which batches of a long stream are run, and what they stand for."""

import dataclasses
import itertools

import pytest

from effaudit.errors import EffauditError
from effaudit.meters import _sampling
from tests.fakes import batch, workload

IDLE = lambda _: None  # noqa: E731


def test_a_short_stream_is_held_whole():
    found = _sampling.sample([workload(IDLE, [batch(2, 3), batch(1, 5)])])[0]
    assert len(found.batches) == found.n_batches == 2
    assert found.scale == 1
    assert found.scope == "all 2 batches"


@pytest.mark.parametrize("n", [16, 17, 33, 100, 1000])
def test_a_long_stream_is_sampled_evenly(n):
    stream = [batch(2, 1 + i) for i in range(n)]
    found = _sampling.sample([workload(IDLE, stream)])[0]
    places = [b.tokens.shape[1] - 1 for b in found.batches]
    assert _sampling.MAX_BATCHES // 2 <= len(places) <= _sampling.MAX_BATCHES
    assert len({b - a for a, b in itertools.pairwise(places)}) == 1
    assert found.scale == pytest.approx(n * (n + 1) / sum(2 * (p + 1) for p in places))


def test_thinning_keeps_the_middle_of_each_stretch():
    found = _sampling.sample([workload(IDLE, [batch(1, 1 + i) for i in range(10)])])[0]
    assert [b.tokens.shape[1] - 1 for b in found.thinned(2).batches] == [2, 7]
    assert len(found.thinned(0).batches) == 1
    assert found.thinned(99) == found


def test_a_shared_stream_is_read_once():
    starts = []
    first = workload(IDLE)

    def start():
        starts.append(1)
        return iter([batch()])

    works = [dataclasses.replace(first, batches=start, name=name) for name in "ab"]
    assert len(_sampling.sample(works)) == 2
    assert len(starts) == 1


def test_largest_is_by_attention_and_first_of_equals():
    stream = [batch(8, 4), batch(2, 16), batch(1, 16), batch(2, 16)]
    found = _sampling.largest(workload(IDLE, stream), 2)
    assert found[0] is stream[1]
    assert found[1] is stream[3]


def test_an_empty_stream_is_the_users_mistake():
    work = dataclasses.replace(workload(IDLE), batches=lambda: iter(()))
    with pytest.raises(EffauditError, match="no batches"):
        _sampling.sample([work])
    with pytest.raises(EffauditError, match="no batches"):
        _sampling.largest(work, 1)
