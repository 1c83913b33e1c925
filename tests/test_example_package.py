"""A package of one's own adds a variant, a dataset, a meter and a renderer through entry points."""

from __future__ import annotations

import configparser
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from effaudit import plugins
from effaudit.errors import EffauditError
from tests.conftest import Cli

SOURCE = Path(__file__).parent / "example_package"
NAMES = {"variants": "wide", "datasets": "parity", "meters": "depth", "renderers": "oneline"}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What installing the example leaves: its modules on the path, its entry points beside them."""
    told = configparser.ConfigParser()
    told.read(SOURCE / "pyproject.toml")
    groups = {name.split('"')[1]: told[name] for name in told.sections() if "entry-points" in name}
    about = tmp_path / "site" / "effaudit_example-1.0.dist-info"
    about.mkdir(parents=True)
    lines = [
        f"[{group}]\n" + "".join(f"{k} = {v.strip(chr(34))}\n" for k, v in e.items()) for group, e in groups.items()
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: effaudit-example\nVersion: 1.0\n")
    for folder in (SOURCE, about.parent):
        monkeypatch.syspath_prepend(str(folder))
    yield
    for name in [name for name in sys.modules if name.startswith("effaudit_example")]:
        del sys.modules[name]


def test_nothing_of_it_is_there_before() -> None:
    assert all(name not in plugins.names(group) for group, name in NAMES.items())


@pytest.mark.usefixtures("installed")
def test_all_four_are_found_and_listed(cli: Cli) -> None:
    for group, name in NAMES.items():
        assert name in plugins.names(group)
        assert plugins.load(group, name).__name__ == f"effaudit_example.{name}"
    listing = cli("list").out
    assert "wide              One block of one hidden layer" in listing
    assert "parity            whether a text of ones and zeros" in listing


@pytest.mark.usefixtures("installed")
def test_all_four_work_together(cli: Cli, tmp_path: Path) -> None:
    profile = tmp_path / "mine.yaml"
    profile.write_text(
        "data: {dataset: parity, options: {n_examples: 6}, batch_size: 4}\n"
        "size: {d_model: 8, n_layers: 1, n_heads: 2, d_ff: 8}\n"
        "models: [dense, {name: wide, options: {width: 4}}]\n"
        "audit: {meters: [quality, flops, depth], device: cpu}\n"
        "training: {steps: 2, batch_size: 4, eval_examples: 4}\n"
    )
    answer = cli("compare", profile, "--out", "run", "--json", "out.json", "--quiet")
    assert answer.code == 0, answer.err
    from effaudit.record import load_record

    record = load_record("run/wide.json")
    assert record["flops.executed"].value == 6 * (6 * 2 * 8 * 4 + 2 * 4 * 2)
    assert record["depth"].value == 1
    assert "formula_mismatch" not in {caution.code for caution in record.cautions}
    answer = cli("report", "run", "--format", "oneline")
    assert answer.code == 0, answer.err
    assert Path(answer.out.strip()).read_text() == "dense wide\n"
    assert cli("train", profile, "--model", "wide", "--quiet").code == 0


@pytest.mark.usefixtures("installed")
def test_package_that_is_not_whole_is_named_where_it_is_used(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("effaudit_example.depth.measure")
    with pytest.raises(EffauditError, match=r"`depth` among the meters .* lacks `measure`") as error:
        plugins.load("meters", "depth")
    assert "measure" in error.value.hint
    about = tmp_path / "site" / "broken-1.0.dist-info"
    about.mkdir()
    (about / "entry_points.txt").write_text("[effaudit.meters]\ngone = no_such_package.gone\n")
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    assert cli("list").code == 0
    answer = cli("profile", "--model", "dense", "--meters", "gone", "--quiet")
    assert answer.code == 2
    assert "`gone` among the meters (entry point `no_such_package.gone`) cannot be loaded" in answer.err


def test_renderer_that_is_not_there_is_named(cli: Cli, tmp_path: Path) -> None:
    from tests.fakes_profiles import save_run

    save_run(tmp_path)
    answer = cli("report", tmp_path, "--format", "oneline")
    assert answer.code == 2
    assert "no `oneline` among the renderers" in answer.err
