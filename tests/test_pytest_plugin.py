"""The plug-in in pytest sessions of their own, as teams use it."""

import os
import subprocess
import sys
from pathlib import Path

import effaudit
from effaudit.baselines import baseline_of, save_baseline
from tests.fakes_profiles import save_run
from tests.fakes_records import figure, record

SUITE = """
import sys

import effaudit as package
import torch  # noqa: E402


def test_within(effaudit):
    assert effaudit.assert_flops(torch.nn.Linear(8, 4), torch.zeros(3, 8), at_most=192).total == 192


def test_beyond(effaudit):
    effaudit.assert_flops(torch.nn.Linear(8, 4), torch.zeros(3, 8), at_most=191)


def test_same(effaudit):
    assert effaudit.gate(package.load_record("same/m.json"), "baseline.json").exit_code == 0


def test_all_else_of_the_package(effaudit):
    assert effaudit.load_record is package.load_record


def test_worse(effaudit):
    effaudit.gate(package.load_record("worse/m.json"), "baseline.json")
"""

CONFTEST = """
import sys

assert "effaudit.pytest_plugin" in sys.modules
assert "torch" not in sys.modules
assert "numpy" not in sys.modules
"""


def test_the_fixture_fails_what_costs_more_and_loads_torch_with_the_first_count_only(tmp_path: Path) -> None:
    for name, flops in (("same", 100), ("worse", 102)):
        save_run(tmp_path / name, [record("m", measurements=[figure("flops.executed", flops, "FLOP")])])
    save_baseline(
        baseline_of([record("m", measurements=[figure("flops.executed", 100, "FLOP")])]), tmp_path / "baseline.json"
    )
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_suite.py").write_text(SUITE, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "effaudit.pytest_plugin", "--tb=short"]
    environment = {**os.environ, "PYTHONPATH": str(Path(effaudit.__file__).parents[1]), "PYTEST_ADDOPTS": ""}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 3 passed" in done.stdout
    assert "192 FLOPs ran, at most 191 FLOPs may" in done.stdout
    assert "gate: regressed (1 regressed)" in done.stdout
