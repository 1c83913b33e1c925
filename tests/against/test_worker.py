from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from effaudit.against import worker
from effaudit.meters import latency
from tests.fakes_profiles import write_profile


@pytest.mark.parametrize(("n", "held"), [(0, []), (3, [0, 1, 2]), (8, list(range(8))), (9, [0, 2, 4, 6, 8])])
def test_batches_are_spread_over_the_stream(n: int, held: list[int]) -> None:
    assert worker.spread(iter(range(n))) == tuple(held)  # type: ignore[arg-type]
    assert len(worker.spread(iter(range(1000)))) <= worker.MAX_BATCHES  # type: ignore[arg-type]


@dataclass(frozen=True)
class Held:
    tokens: torch.Tensor
    other: object = None


def test_the_digest_sees_all_that_a_batch_holds() -> None:
    base = torch.arange(6).reshape(2, 3)
    different = [
        Held(base),
        Held(base + 1),
        Held(base.reshape(3, 2)),
        Held(base.float()),
        Held(base.bool()),
        Held(base, torch.tensor(1.0)),
        Held(base, {"a": torch.zeros(1)}),
        Held(base, {"b": torch.zeros(1)}),
        Held(base, (torch.zeros(1, dtype=torch.bfloat16),)),
    ]
    assert len({worker.digest(held) for held in different}) == len(different)
    assert worker.digest(Held(base)) == worker.digest(Held(base.clone()))
    assert worker.digest(Held(base)) == worker.digest({"tokens": base})  # a revision without the other field


@pytest.fixture
def timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[worker.Timed]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(latency, "measure", latency.measure)  # what `load` puts there is taken away again
    return worker.load(str(write_profile(tmp_path)), tmp_path / "records")


def test_a_profile_gives_its_models_in_order_with_their_batches(timed: list[worker.Timed]) -> None:
    assert [model.work.name for model in timed] == ["dense", "tsa"]
    assert [len(model.batches) for model in timed] == [2, 2]
    assert worker.digest(timed[0].batches) == worker.digest(timed[1].batches)


def test_a_turn_runs_the_batch_once_more_than_it_times(timed: list[worker.Timed]) -> None:
    calls: list[object] = []
    timed[0].work.model.register_forward_hook(lambda *_: calls.append(1))
    found = worker.turn(timed[0], 1, 3, None)
    assert len(calls) == 4
    assert len(found["seconds"]) == len(found["waited"]) == 3
    assert min(found["seconds"]) > 0
    assert min(found["waited"]) >= 0


def test_waiting_is_what_the_kernel_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "schedstat"
    said.write_text("5000000000 250000000 7\n", encoding="utf-8")
    monkeypatch.setattr(worker, "SCHEDSTAT", said)
    with worker.waiting_clock() as wait_s:
        assert wait_s() == pytest.approx(0.25)
        said.write_text("6000000000 750000000 8\n", encoding="utf-8")
        assert wait_s() == pytest.approx(0.75)
    monkeypatch.setattr(worker, "SCHEDSTAT", tmp_path / "none")
    with worker.waiting_clock() as wait_s:
        assert wait_s() == 0.0
