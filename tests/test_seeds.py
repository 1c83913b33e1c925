"""Several seeds: trained by one command, audited beside each other, averaged with their spread."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from effaudit.auditing import run_audit
from effaudit.comparison import Delta, Spread, compare_measurement, over_seeds
from effaudit.errors import EffauditError
from effaudit.example_table import ExampleTable
from effaudit.overrides import Overrides, apply
from effaudit.profile_spec import AuditProfile
from effaudit.record import AuditRecord, SeedRow, load_record
from effaudit.training import train
from tests import makers
from tests.fakes_profiles import save_table
from tests.fakes_records import WORKLOAD, figure, record, table


def profile() -> AuditProfile:
    tuned = {"name": "tsa", "init_from": "dense"}
    return makers.profile("dense", tuned, seeds=[3, 5], training={"steps": 2}, audit={"meters": ("quality", "flops")})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("weights")
    train(profile(), folder, is_quiet=True)
    return folder


def test_every_seed_is_trained_in_a_folder_of_its_own(trained: Path) -> None:
    for name in ("dense", "tsa"):
        files = [trained / place / f"{name}.safetensors" for place in (".", "seed3", "seed5")]
        assert len({file.read_bytes() for file in files}) == 3
    (alone,) = train(profile().model_copy(update={"seed": 3, "seeds": ()}), trained.parent / "alone", ("dense",), True)
    assert alone.read_bytes() == (trained / "seed3" / "dense.safetensors").read_bytes()


def test_an_audit_has_a_row_a_seed(trained: Path, tmp_path: Path) -> None:
    records = run_audit(profile(), tmp_path / "run", trained, is_quiet=True)
    for found in records:
        assert load_record(tmp_path / "run" / f"{found.model.name}.json") == found
        assert list(found.values_by_seed("quality.loss")) == [0, 3, 5]
        assert len(set(found.values_by_seed("quality.loss").values())) == 3
        for seed, rows in found.tables_by_seed().items():
            assert rows["loss"].mean() == pytest.approx(found.values_by_seed("quality.loss")[seed])
        spread = over_seeds(found, "quality.loss")
        assert spread is not None
        assert spread.mean == pytest.approx(np.mean(list(found.values_by_seed("quality.loss").values())))
    delta = compare_measurement(*records, "quality.loss")
    assert delta.seeds is not None
    assert delta.seeds.n == 3
    assert delta.after == pytest.approx(np.mean(list(records[1].values_by_seed("quality.loss").values())))


def test_missing_weights_of_a_seed_are_said(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(EffauditError, match="no weights of seed 7 for `dense`") as caught:
        run_audit(profile().model_copy(update={"seeds": (7,)}), tmp_path / "run", trained, is_quiet=True)
    assert "seed7" in caught.value.hint


def test_a_seed_of_ones_own_is_that_one_alone() -> None:
    assert apply(profile(), Overrides(seed=9)).seeds == ()
    with pytest.raises(EffauditError, match="repeats a seed"):
        makers.profile("dense", seed=3, seeds=[3])


def with_seeds(folder: Path, name: str, right: dict[int, list[int]]) -> AuditRecord:
    """A record whose model answered `right` from each seed, the first its own."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for seed, answers in right.items():
        save_table(table(correct=[float(a) for a in answers]), folder / f"{name}.seed{seed}.csv")
        accuracy = figure("quality.accuracy", sum(answers) / len(answers), better="higher", source="measured")
        rows.append(
            SeedRow(seed=seed, weights_sha256=None, measurements=(accuracy,), examples=f"{name}.seed{seed}.csv")
        )
    first, *others = rows
    profile = {"name": "example", "seed": first.seed, "size": {"n_layers": 4}}
    work = WORKLOAD.model_copy(update={"n_examples": len(answers)})
    found = record(name, measurements=first.measurements, profile=profile, workload=work)
    found = found.model_copy(update={"seeds": tuple(others)})
    return found.with_table(ExampleTable(folder / str(first.examples)))


def answers(n_right: int, n: int = 400) -> list[int]:
    return [int(i < n_right) for i in range(n)]


def compared(folder: Path, before: tuple[int, ...], after: tuple[int, ...]) -> Delta:
    """Two models of several seeds, given how many of 400 examples each seed got right."""
    old, new = (
        with_seeds(folder, name, {seed: answers(n) for seed, n in enumerate(counts)})
        for name, counts in (("dense", before), ("tsa", after))
    )
    return compare_measurement(old, new, "quality.accuracy")


def test_the_difference_is_the_mean_over_seeds_with_its_spread(tmp_path: Path) -> None:
    delta = compared(tmp_path, (300, 310, 320), (280, 300, 305))
    assert (delta.before, delta.after) == (pytest.approx(310 / 400), pytest.approx(295 / 400))
    assert delta.seeds is not None
    assert asdict(delta.seeds) == pytest.approx(asdict(Spread(3, -15 / 400, -20 / 400, -10 / 400)))
    assert delta.verdict == "worse"
    assert delta.difference is not None
    assert delta.difference[0] < -15 / 400 < delta.difference[1] < 0


def test_seeds_that_disagree_tell_nothing(tmp_path: Path) -> None:
    delta = compared(tmp_path, (300, 310, 320), (240, 312, 305))
    assert delta.verdict == "unsure"
    assert delta.reason == "not distinguishable: the 3 seeds do not agree which is better"


def test_only_seeds_that_both_have_are_compared(tmp_path: Path) -> None:
    delta = compared(tmp_path, (300, 310, 320), (280,))
    assert (delta.before, delta.after, delta.seeds) == (300 / 400, 280 / 400, None)
