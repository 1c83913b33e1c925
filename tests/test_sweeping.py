"""Sweeps: which cells there are, what they run, which is best and how sure that is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from effaudit.errors import EffauditError
from effaudit.overrides import Overrides, apply
from effaudit.profile_spec import AuditProfile, ModelSpec, validated
from effaudit.record import AuditRecord, Measurement
from effaudit.renderers import console, html, markdown
from effaudit.renderers._sweep import sweep_blocks
from effaudit.renderers._topics.sweep import sentence
from effaudit.sweep_table import grids
from effaudit.sweeping import MAX_CELLS, expanded, sweep_of
from tests import makers
from tests.conftest import Cli
from tests.fakes_profiles import write_profile
from tests.fakes_records import record


def test_every_combination_once_in_the_order_of_the_axes() -> None:
    models = [validated(ModelSpec, "hf:a", ""), validated(ModelSpec, "python:m:f?width=1", "")]
    cells = expanded(models, {"dtype": ("float32", "bfloat16"), "attention": ("eager", "sdpa")})
    assert [cell.name for cell in cells[:2]] == ["a-dtype-float32-attention-eager", "a-dtype-float32-attention-sdpa"]
    assert [cell.swept for cell in cells] == ["a"] * 4 + ["f"] * 4
    assert [cell.run.dtype for cell in cells[:4]] == ["float32", "float32", "bfloat16", "bfloat16"]
    assert cells[1].options == {"path": "a", "attention": "sdpa"}
    assert cells[4].options["keywords"] == {"width": 1, "attention": "eager"}
    assert expanded(models, {}) == tuple(models)


@pytest.mark.parametrize(
    ("texts", "found"),
    [(["threads=1,2"], {"threads": (1, 2)}), (["compile=false,true", "quantize=null,int8"],
     {"compile": (False, True), "quantize": (None, "int8")})],
)  # fmt: skip
def test_texts_of_a_sweep(texts: list[str], found: dict[str, Any]) -> None:
    assert sweep_of(texts) == found


@pytest.mark.parametrize("text", ["threads", "threads=", "threads=[1", "=1"])
def test_texts_that_are_no_sweep(text: str) -> None:
    with pytest.raises(EffauditError, match="sweep"):
        apply(makers.profile("dense"), Overrides(sweep=[text]))


def test_values_that_cannot_be() -> None:
    with pytest.raises(EffauditError, match="sweep of `dense`: dtype"):
        expanded([validated(ModelSpec, "dense", "")], {"dtype": ("int3",)})
    with pytest.raises(EffauditError, match="speed"):
        apply(makers.profile("dense"), Overrides(sweep=["speed=1,2"]))
    with pytest.raises(EffauditError, match=f"{MAX_CELLS} at most"):
        expanded([validated(ModelSpec, "dense", "")], {"threads": range(1, MAX_CELLS + 2)})
    for values in ((), (1, 1)):
        with pytest.raises(EffauditError, match="sweep: `threads`"):
            validated(AuditProfile, {"models": ["dense"], "sweep": {"threads": values}}, "profile")


def test_factories_get_their_keywords_and_the_audit_its_own() -> None:
    model = validated(ModelSpec, "python:mine:factory?width=3", "")
    (cell,) = expanded([model], {"depth": (2,), "execution": ("masked",), "n_layers": (4,), "threads": (1,)})
    assert cell.options["keywords"] == {"width": 3, "depth": 2}
    assert (cell.options["execution"], cell.options["n_layers"], cell.run.threads) == ("masked", 4, 1)


def test_sweep_of_a_profile_is_resolved_so_that_it_can_be_repeated() -> None:
    profile = makers.profile("dense", sweep={"threads": [1, 2], "batch_size": [2]})
    spec = apply(profile, Overrides())
    assert spec.sweep == {}
    assert [model.run.threads for model in spec.models] == [1, 2]
    assert apply(spec, Overrides()) == spec
    assert [m.run.threads for m in apply(profile, Overrides(sweep=["threads=2"])).models] == [2]


def test_cells_keep_the_weights_of_the_model_they_vary(tmp_path: Path) -> None:
    (tmp_path / "dense.safetensors").write_bytes(b"")
    spec = apply(makers.profile("dense"), Overrides(sweep=["threads=1,2"], weights=tmp_path))
    assert [model.weights for model in spec.models] == [str(tmp_path / "dense.safetensors")] * 2


def cell(threads: int, rate: float | None, samples: tuple[float, ...] = (), flops: int = 10) -> AuditRecord:
    made = record(f"m-threads-{threads}")
    measurements = [
        Measurement(name="flops.executed", unit="FLOP", better="lower", source="counted", method="", value=flops)
    ]
    if rate is not None:
        about = {"unit": "1/s", "better": "higher", "source": "measured", "method": ""}
        measurements.append(Measurement(name="throughput.examples", value=rate, samples=samples, **about))
    model = made.model.model_copy(update={"swept": "m", "cell": {"threads": threads}})
    return made.model_copy(update={"model": model, "measurements": tuple(measurements)})


def spread(around: float) -> tuple[float, ...]:
    return tuple(around + 0.01 * i for i in range(-4, 5))


def test_best_does_most_in_a_second() -> None:
    (grid,) = grids([cell(1, 100.0, spread(100)), cell(2, 190.0, spread(190)), cell(4, 150.0, spread(150))])
    assert grid.deciding == "throughput.examples"
    assert grid.best is grid.cells[1]
    assert [c.ratio for c in grid.cells] == pytest.approx([1, 1.9, 1.5])
    assert grid.rivals == ()
    assert sentence(grid) == "m: best is threads 2, 1.90 times the examples per second of threads 1."


def test_best_that_cannot_be_told_from_another_is_said() -> None:
    (grid,) = grids([cell(1, 100.0, spread(100)), cell(2, 100.01, spread(100.01)), cell(4, 50.0, spread(50))])
    assert [c.record.model.cell["threads"] for c in grid.rivals] == [1]
    assert "not to be told from threads 1" in sentence(grid)
    (unsure,) = grids([cell(1, 100.0), cell(2, 101.0)])
    assert len(unsure.rivals) == 1  # no samples, no certainty


def test_without_time_fewest_flops_decide() -> None:
    (grid,) = grids([cell(1, None, flops=10), cell(2, 99.0, flops=5)])
    assert grid.deciding == "flops.executed"
    assert grid.best is grid.cells[1]


def test_table_marks_the_best_row_and_fits_its_width() -> None:
    records = [cell(1, 100.0, spread(100)), cell(2, 190.0, spread(190))]
    for width in (40, 80):
        (block,) = sweep_blocks(records, width)
        assert all(len(line) <= max(width, 80) for line in block)
        assert [line[0] for line in block[2:4]] == [" ", "*"]
    assert "no room here" in "\n".join(sweep_blocks(records, 20)[0])
    text = console.render(records)
    assert "m, swept over threads (* best)" in text
    assert "claimed" not in text
    assert r"| \* | 2 |" in markdown.render(records)
    assert "m, swept over threads (* best)" in html.render(records)


def test_records_without_a_sweep_have_no_grid() -> None:
    assert grids([record("plain")]) == ()


def test_sweep_on_the_command_line(tmp_path: Path, cli: Cli) -> None:
    path = write_profile(tmp_path, models=["dense"], sweep={"batch_size": [4, 8]})
    answer = cli("compare", path, "--quiet", "--out", "run")
    assert answer.code == 0, answer.err
    assert "dense, swept over batch_size (* best)" in answer.out
    assert len(list((tmp_path / "run").glob("*.json"))) == 2
    again = cli("compare", "run")
    assert again.out == answer.out
    answer = cli("compare", path, "--quiet", "--sweep", "threads=1,2", "--sweep", "batch_size=4", "--out", "other")
    assert "swept over batch_size, threads" in answer.out
