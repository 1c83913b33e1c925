import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from effaudit.training_jobs import AUDIT_WITH, Job, run_jobs


def job(name: str, code: str, after: str | None = None) -> Job:
    return Job(name, (sys.executable, "-S", "-c", f"import pathlib, sys, time\n{code}"), after)


def test_a_job_waits_for_the_one_it_starts_from(tmp_path: Path) -> None:
    made = tmp_path / "made"
    jobs = [
        job("second", f"sys.exit(not pathlib.Path({str(made)!r}).exists())", after="first"),
        job("first", f"time.sleep(0.2)\npathlib.Path({str(made)!r}).touch()"),
    ]
    assert run_jobs(jobs, 2) == 0


def test_a_job_whose_origin_is_not_among_the_jobs_starts_at_once() -> None:
    assert run_jobs([job("tsa", "", after="dense")], 2) == 0


def test_no_more_run_at_once_than_asked_for(tmp_path: Path) -> None:
    running = str(tmp_path / "running")
    mark = f"pathlib.Path({running!r}).touch(exist_ok=False)\ntime.sleep(0.05)\npathlib.Path({running!r}).unlink()"
    assert run_jobs([job(name, mark) for name in "abc"], 1) == 0


def test_a_failure_ends_the_others_and_gives_its_code(capfd: pytest.CaptureFixture[str]) -> None:
    jobs = [job("slow", "time.sleep(600)"), job("bad", "print('error: no', file=sys.stderr)\nsys.exit(2)")]
    started = time.monotonic()
    assert run_jobs(jobs, 2) == 2
    assert time.monotonic() - started < 300  # it did not wait for the slow one
    assert capfd.readouterr().err == "error: no\n"


def test_lines_are_passed_on_but_for_the_advice_of_each_part(capfd: pytest.CaptureFixture[str]) -> None:
    code = f"print('step 1', file=sys.stderr)\nprint({AUDIT_WITH!r} + 'x', file=sys.stderr)\nprint('path')"
    assert run_jobs([job("a", code)], 1) == 0
    assert capfd.readouterr() == ("", "step 1\n")


def test_an_interrupt_ends_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("effaudit.training_jobs.time", SimpleNamespace(sleep=interrupted))
    slow = f"time.sleep(600)\npathlib.Path({str(tmp_path / 'late')!r}).touch()"
    with pytest.raises(KeyboardInterrupt):
        run_jobs([job("a", slow), job("b", slow)], 2)
    assert not list(tmp_path.iterdir())
