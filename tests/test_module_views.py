"""`--modules`, `--depth` and `--elementwise` through the command."""

from __future__ import annotations

from pathlib import Path

from effaudit.record import load_record
from tests.conftest import Cli
from tests.fakes_profiles import write_profile


def test_tree_of_modules_and_its_depth(cli: Cli, tmp_path: Path) -> None:
    path = write_profile(tmp_path)
    short, whole, cut = (
        cli("profile", path, "--model", "tsa", "--meters", "flops", "--quiet", "--out", name, *options).out
        for name, options in (("a", ()), ("b", ("--modules",)), ("c", ("--modules", "--depth", 1)))
    )
    assert "FLOPs by op" in whole
    assert "FLOPs by op" not in short
    assert all("    routers  " in text for text in (short, whole, cut))
    assert "      0  " in whole
    assert "      0  " not in cut
    assert all(len(line) <= 80 for line in whole.splitlines())
    refused = cli("profile", path, "--depth", 1)
    assert (refused.code, refused.err.splitlines()[0]) == (2, "error: --depth is of the tree that --modules shows")


def test_work_per_element_is_asked_for_by_option_or_profile(cli: Cli, tmp_path: Path) -> None:
    path = write_profile(tmp_path)
    asked = ("--meters", "flops", "--quiet", "--elementwise")
    shown = cli("profile", path, "--model", "tsa", "--modules", *asked, "--out", "a").out
    assert "· gather, scatter" in shown
    assert "· per element" in shown
    assert "Work beside products" in cli("compare", path, *asked, "--out", "b").out
    cli("compare", path, "--meters", "flops", "--quiet", "--out", "c")
    with_it, without = (load_record(tmp_path / folder / "tsa.json") for folder in ("b", "c"))
    assert with_it["flops.executed"] == without["flops.executed"]
    assert with_it.profile["audit"]["elementwise"] is True
    assert (without.get("flops.elementwise"), with_it["flops.elementwise"].source) == (None, "counted")
