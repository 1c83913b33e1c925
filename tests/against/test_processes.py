import sys
from pathlib import Path

import pytest

import effaudit
from effaudit.against.processes import Side, Turn, started
from effaudit.errors import EffauditError
from tests.fakes_profiles import write_profile

PACKAGES = str(Path(effaudit.__file__).parents[1])


def side(folder: Path, target: str = "tiny.yaml", paths: tuple[str, ...] = (PACKAGES,)) -> Side:
    return Side("HEAD", sys.executable, paths, str(folder), target)


def test_a_process_loads_times_and_ends(tmp_path: Path) -> None:
    write_profile(tmp_path)
    with started([side(tmp_path)]) as (worker,):
        models = worker.models(600.0)
        assert [model.name for model in models] == ["dense", "tsa"]
        assert all(model.is_one_thread and len(model.batches) == 2 and model.run_s > 0 for model in models)
        turn = worker.turn(1, 0, 3, None, 600.0)
        assert len(turn.seconds) == len(turn.waited) == 3
        process = worker._process
    assert process.poll() is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.yaml"]  # its records lay elsewhere


def test_what_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    (tmp_path / "effaudit").mkdir()
    (tmp_path / "effaudit" / "__init__.py").write_text("raise ImportError('no compiled part')", encoding="utf-8")
    with started([side(tmp_path, paths=(str(tmp_path),))]) as (worker,), pytest.raises(EffauditError) as caught:
        worker.models(600.0)
    assert caught.value.message == "`HEAD` cannot be timed: ImportError: no compiled part"


def test_a_users_mistake_is_said_as_such(tmp_path: Path) -> None:
    write_profile(tmp_path, models=["dnse"])
    with started([side(tmp_path)]) as (worker,), pytest.raises(EffauditError, match="no `dnse` among the variants"):
        worker.models(600.0)


def test_a_process_that_takes_too_long_is_given_up(tmp_path: Path) -> None:
    (tmp_path / "effaudit").mkdir()
    (tmp_path / "effaudit" / "__init__.py").write_text("import time\ntime.sleep(600)", encoding="utf-8")
    with started([side(tmp_path, paths=(str(tmp_path),))]) as (worker,), pytest.raises(TimeoutError, match="`HEAD`"):
        worker.models(0.05)


def test_a_process_that_is_gone_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "effaudit").mkdir()
    (tmp_path / "effaudit" / "__init__.py").write_text("raise SystemExit(3)", encoding="utf-8")
    with started([side(tmp_path, paths=(str(tmp_path),))]) as (worker,):
        with pytest.raises(EffauditError, match="exit code 3"):
            worker.models(600.0)
        with pytest.raises(EffauditError, match="exit code 3"):
            worker.turn(0, 0, 1, None, 600.0)


def test_runs_that_waited_for_a_cpu_are_not_clean() -> None:
    assert Turn((1.0, 1.0, 2.0), (0.0, 0.02, 0.02)).clean == (1.0, 2.0)
