import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import effaudit
from effaudit import plugins, training_jobs
from effaudit.meters import quality
from effaudit.record import AuditRecord, load_record, to_json
from effaudit.training_jobs import Job
from tests.conftest import Cli
from tests.fakes_profiles import save_run, write_profile
from tests.fakes_records import WORKLOAD, dense, record, tsa

COMMANDS = ("profile", "compare", "report", "gate", "baseline", "train", "list", "doctor")


def names(text: str) -> list[str]:
    return [found["model"]["name"] for found in json.loads(text)["records"]]


def test_help_names_every_command(cli: Cli) -> None:
    for arguments in (["--help"], []):
        answer = cli(*arguments)
        assert answer.code == 0
        assert all(f"\n  {command} " in answer.out for command in COMMANDS)
        assert answer.err == ""


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"effaudit {effaudit.__version__}\n"


def test_list_names_all_there_is_to_choose_from(cli: Cli) -> None:
    answer = cli("list")
    shown = {line.split()[0] for line in answer.out.splitlines()}
    assert shown >= {name for group in plugins.GROUPS for name in plugins.names(group)}
    assert "(classification, causal_lm)" in answer.out
    assert max(map(len, answer.out.splitlines())) <= 80


def test_doctor_says_what_can_be_measured(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from effaudit import doctor

    found = (
        doctor.Finding("FLOPs", True, "counted"),
        doctor.Finding("device cuda", False, reason="none here", remedy="buy one"),
    )
    monkeypatch.setattr(doctor, "survey", lambda: found)
    assert cli("doctor").out == "yes  FLOPs: counted\nno   device cuda: none here\n     hint: buy one\n"


def test_saved_records_are_compared_in_the_order_of_their_profile(cli: Cli, tmp_path: Path) -> None:
    profile = {"name": "example", "models": [{"name": "tsa"}, {"name": "dense"}]}
    saved = [record.model_copy(update={"profile": profile}) for record in (dense(), tsa())]
    save_run(tmp_path / "run", saved)
    answer = cli("compare", "run", "--json", "-")
    assert names(answer.out) == ["tsa", "dense"]
    assert "latency varied" not in answer.out + answer.err
    assert cli("compare", "run/dense.json", "run/tsa.json").out.startswith("example: graded/test")


def test_json_document_is_all_of_stdout_and_cautions_go_to_stderr(cli: Cli, tmp_path: Path) -> None:
    saved = save_run(tmp_path / "run")
    answer = cli("compare", "run", "--json", "-")
    found = [AuditRecord.model_validate(item) for item in json.loads(answer.out)["records"]]
    assert sorted(found, key=lambda r: r.model.name) == sorted(saved, key=lambda r: r.model.name)
    assert "latency varied by 12 % between rounds" in answer.err
    assert cli("compare", "run", "--json", "-", "--quiet").err == ""
    shown = cli("compare", "run", "--json", "all.json")
    assert names((tmp_path / "all.json").read_text(encoding="utf-8")) == names(answer.out)
    assert "dense is the reference" in shown.out
    assert names(cli("compare", "all.json", "--json", "-").out) == names(answer.out)


def test_two_runs_of_one_model_are_told_apart(cli: Cli, tmp_path: Path) -> None:
    save_run(tmp_path / "before", [tsa()])
    save_run(tmp_path / "after", [tsa(), dense()])
    out = cli("compare", "before", "after", "--html").out
    assert "tsa (before): claims" in out
    assert "tsa (after): claims" in out
    assert "\ndense is the reference" in out
    assert "tsa (after)" in (tmp_path / "before" / "report.html").read_text(encoding="utf-8")


def test_one_record_given_twice_is_shown_once(cli: Cli, tmp_path: Path) -> None:
    save_run(tmp_path / "run", [dense(), tsa()])
    assert cli("compare", "run", "run/tsa.json").out.count("tsa: claims") == 1


def test_models_of_one_name_in_one_file_are_numbered(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "both.json").write_text(to_json([dense(), tsa(), tsa(0.006)]), encoding="utf-8")
    out = cli("compare", "both.json").out
    assert f"tsa ({tmp_path.name}): claims" in out
    assert f"tsa ({tmp_path.name}) 2: claims" in " ".join(out.split())


def test_records_of_two_tasks_are_refused_in_one_line(cli: Cli, tmp_path: Path) -> None:
    language = WORKLOAD.model_copy(update={"task": "causal_lm", "dataset": "prose"})
    save_run(tmp_path / "one", [dense()])
    save_run(tmp_path / "other", [record("tsa", workload=language)])
    for command in ("compare", "report"):
        answer = cli(command, "one", "other")
        assert answer.code == 2
        assert (
            "error: these records are of different tasks: classification (graded) and causal_lm (prose)\n" in answer.err
        )


def test_compare_shows_the_budgets_by_difficulty_of_saved_records(cli: Cli, tmp_path: Path) -> None:
    save_run(tmp_path / "run", [dense(), tsa()])
    assert "What runs, by difficulty of the examples (%)\n" in cli("compare", "run").out


def test_output_is_plain_text_without_a_terminal(cli: Cli, tmp_path: Path) -> None:
    save_run(tmp_path / "run")
    out = cli("compare", "run").out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 80


def test_report_writes_what_is_asked_for_and_prints_the_paths(cli: Cli, tmp_path: Path) -> None:
    save_run(tmp_path / "run")
    assert cli("report", "run").out == "run/report.html\n"
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "difficulty" in page  # which only the per-example tables tell
    paths = cli(
        "report", "run/tsa.json", "run/dense.json", "--markdown", "--csv", "--figures", "--out", "o"
    ).out.split()
    assert paths[:3] == ["o/report.md", "o/report.csv", "o/figures/ladder.svg"]
    assert all((tmp_path / path).stat().st_size > 0 for path in paths)


def test_report_without_a_record_takes_the_newest_run(cli: Cli, tmp_path: Path) -> None:
    for age, name in enumerate(("newer", "older")):
        save_run(tmp_path / "reports" / "runs" / name, [dense()])
        os.utime(tmp_path / "reports" / "runs" / name / "dense.json", (1_000_000 - age, 1_000_000 - age))
    (tmp_path / "reports" / "runs" / "without records").mkdir()
    assert cli("report", "--csv").out == "reports/runs/newer/report.csv\n"


def test_profile_shows_one_model_and_saves_its_record(cli: Cli, tmp_path: Path) -> None:
    path = write_profile(tmp_path)
    answer = cli("profile", path, "--out", "o", "--html")
    assert answer.code == 0
    assert answer.out.startswith("dense (dense: execution=skip, micro_batch=auto)")
    assert "FLOPs by module" in answer.out
    assert "auditing `dense`; --model picks another: tsa" in answer.err
    assert "records: o" in answer.err
    assert load_record(tmp_path / "o" / "dense.json").profile["models"][0]["name"] == "dense"
    assert (tmp_path / "o" / "report.html").is_file()


def test_models_without_a_target_are_on_the_default_profile(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builtin = {"demo": write_profile(tmp_path, "demo")}
    monkeypatch.setattr("effaudit.profile_spec.builtin_profiles", lambda: builtin)
    assert names(cli("compare", "--json", "-").out) == ["dense", "tsa"]
    answer = cli("profile", "--model", "early_exit:threshold=0.5,min_layer=2", "--json", "-", "--quiet")
    (found,) = json.loads(answer.out)["records"]
    assert found["model"]["options"]["threshold"] == 0.5
    assert found["model"]["variant"] == "early_exit"
    assert found["profile"]["size"]["d_model"] == 16
    assert answer.err == ""


def test_nothing_that_a_library_prints_gets_into_the_json(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = quality.measure

    def noisy(*arguments: object) -> object:
        print("hello from a library")
        return measure(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(quality, "measure", noisy)
    answer = cli("compare", write_profile(tmp_path), "--json", "-")
    assert names(answer.out) == ["dense", "tsa"]
    assert "hello from a library" in answer.err


def test_train_then_compare_with_the_command_it_prints(cli: Cli, tmp_path: Path) -> None:
    path = write_profile(tmp_path, models=["dense", {"name": "tsa", "init_from": "dense"}])
    trained = cli("train", path, "--seed", "3")
    assert trained.out.split() == ["reports/weights/tiny/dense.safetensors", "reports/weights/tiny/tsa.safetensors"]
    command = trained.err.splitlines()[-1].removeprefix("audit with: effaudit ").split()
    picks = ("--model", "tsa:threshold=0.4", "--model", "tsa", "--model", "dense")
    answer = cli(*command, *picks, "--json", "-", "--limit", "8")
    found = [AuditRecord.model_validate(item) for item in json.loads(answer.out)["records"]]
    assert [r.model.name for r in found] == ["tsa-threshold-0.4", "tsa", "dense"]
    assert found[0].model.weights_sha256 == found[1].model.weights_sha256 != found[2].model.weights_sha256
    assert [r.model.options.get("threshold") for r in found] == [0.4, 0.5, None]
    assert "random weights" not in answer.err


def test_jobs_train_each_model_by_a_command_of_its_own(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from effaudit.cli import main

    seen: list[Job] = []

    def run_here(jobs: Sequence[Job], n_at_once: int) -> int:
        seen.extend(jobs)
        assert n_at_once == 2
        return max(main(job.command[3:]) for job in jobs)

    monkeypatch.setattr(training_jobs, "run_jobs", run_here)
    path = write_profile(tmp_path, models=[{"name": "tsa", "init_from": "dense"}, "dense", "early_exit"])
    answer = cli("train", path, "--jobs", 2, "--out", "w", "--seed", 1, "--quiet", "--model", "tsa", "--model", "dense")
    assert answer.code == 0
    assert answer.err == ""
    assert [(job.name, job.after, job.command[:3]) for job in seen] == [
        ("dense", None, (sys.executable, "-m", "effaudit")),
        ("tsa", "dense", (sys.executable, "-m", "effaudit")),
    ]
    assert answer.out.split()[-2:] == ["w/tsa.safetensors", "w/dense.safetensors"]
    assert json.loads((tmp_path / "w" / "tsa.json").read_text(encoding="utf-8"))["training"]["seed"] == 1


def test_a_part_that_fails_ends_the_training_with_its_code(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_jobs, "run_jobs", lambda jobs, n: 2)
    assert cli("train", write_profile(tmp_path), "--jobs", "2").code == 2


def test_interrupt_keeps_what_was_finished(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("effaudit.meters.flops.measure", interrupted)
    answer = cli("compare", write_profile(tmp_path), "--out", "o")
    assert answer.code == 130
    assert "what was finished is kept in `o`" in answer.err
    assert answer.out == ""
    kept = load_record(tmp_path / "o" / "tsa.json")
    assert kept.value("quality.loss") is not None
    assert kept.get("flops.executed") is None
    assert "interrupted" in {caution.code for caution in kept.cautions}


def test_interrupted_training_says_how_to_go_on(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("effaudit.training.train_model", interrupted)
    answer = cli("train", write_profile(tmp_path))
    assert answer.code == 130
    assert "the same command goes on from the last checkpoint" in answer.err


def test_a_bug_shows_its_traceback(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("effaudit.meters.quality.measure", broken)
    answer = cli("profile", write_profile(tmp_path))
    assert answer.code == 70
    assert "Traceback" in answer.err
    assert "RuntimeError: a bug" in answer.err
    assert not list((tmp_path / "reports" / "runs").iterdir())  # no empty folder is left to look like a run


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")])
def test_too_little_memory_is_no_bug(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def hungry(*_: object) -> None:
        raise error

    monkeypatch.setattr("effaudit.meters.quality.measure", hungry)
    answer = cli("profile", write_profile(tmp_path))
    assert answer.code == 2
    assert answer.err.splitlines()[-3:] == ["error: out of memory", "", answer.err.splitlines()[-1]]
    assert "--batch-size" in answer.err.splitlines()[-1]


def test_python_interface_audits_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write_profile(tmp_path)
    before, after = effaudit.audit(path, models=["dense", "tsa"], limit=8, out="o")
    assert capfd.readouterr() == ("", "")
    assert effaudit.load_record(tmp_path / "o" / "dense.json") == before
    assert {delta.name: delta.verdict for delta in effaudit.compare(before, after)}["params"] == "worse"
    with pytest.raises(TypeError, match="unexpected keyword"):
        effaudit.audit(path, modle="dense")


def test_all_that_is_public_can_be_had() -> None:
    assert all(getattr(effaudit, name) is not None for name in effaudit.__all__)
    assert set(effaudit.__all__) <= set(dir(effaudit))
    with pytest.raises(AttributeError, match="no `nothing`"):
        effaudit.nothing  # noqa: B018


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    save_run(tmp_path)
    command = [sys.executable, "-m", "effaudit", "compare", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, b"")
