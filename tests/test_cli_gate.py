import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from effaudit.against.checkout import Revisions
from effaudit.against.processes import Side
from effaudit.against.race import Duel, Outcome
from effaudit.against.sequential import SequentialTest
from effaudit.baselines import baseline_of, to_text
from effaudit.record import to_json
from tests.conftest import Answer, Cli
from tests.fakes_profiles import save_run, write_profile
from tests.fakes_records import figure, record


def test_gate_tells_a_regression_by_its_exit_code_alone(cli: Cli, tmp_path: Path) -> None:
    for name, flops in (("base", 100), ("same", 100), ("worse", 102)):
        save_run(tmp_path / name, [record("m", measurements=[figure("flops.executed", flops, "FLOP")])])
    save_run(tmp_path / "other", [record("n", measurements=[figure("flops.executed", 100, "FLOP")])])
    update = cli("baseline", "update", "base")
    assert update.code == 0
    assert update.out.endswith("wrote profiles/baselines/example.json\n")
    baseline = ("--baseline", "profiles/baselines/example.json")
    assert cli("gate", "same", *baseline).code == 0
    worse = cli("gate", "worse/m.json", *baseline)
    assert worse.code == 1
    assert "regressed" in worse.out
    assert cli("gate", "worse", *baseline, "--tolerance", "flops.executed=5%").code == 0
    assert cli("gate", "worse", *baseline, "--tolerance", "flops.executed=0.01").code == 1
    assert cli("gate", "other", *baseline).code == 2
    told = json.loads(cli("gate", "worse", *baseline, "--json").out)
    assert told["exit_code"] == 1
    assert told["rows"][0]["verdict"] == "regressed"
    assert "m flops.executed: 100 FLOP -> 102 FLOP (+2.00 %)" in cli("baseline", "update", "worse").out
    assert cli("baseline", "update", "worse").out.startswith("nothing changes\n")
    assert cli("gate", "worse").code == 0  # the baseline of the records' profile


def test_gate_writes_for_build_servers(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, flops in (("base", 100), ("worse", 102)):
        save_run(tmp_path / name, [record("m", measurements=[figure("flops.executed", flops, "FLOP")])])
    summary = tmp_path / "summary.md"
    summary.write_text("what another step said\n", encoding="utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("FORCE_COLOR", "1")
    gate = ("gate", "worse", "--baseline", "base/m.json", "--junit", "out/junit.xml", "--github")
    table = cli(*gate)
    assert table.code == 1
    assert "\x1b" not in table.out
    assert table.out.splitlines()[-1].startswith(
        "::error file=base/m.json,title=effaudit%3A m flops.executed regressed::"
    )
    assert "<failure" in (tmp_path / "out" / "junit.xml").read_text(encoding="utf-8")
    markdown = cli(*gate[:4], "--markdown")
    said = summary.read_text(encoding="utf-8")
    assert said == f"what another step said\n{markdown.out}{markdown.out}"
    told = cli(*gate, "--json")
    assert json.loads(told.out)["outcome"] == "regressed"
    assert told.err.startswith("::error")
    refused = cli("gate", "worse", "--baseline", "base/m.json", "--json", "--markdown")
    assert refused.code == 2
    assert "both go to stdout" in refused.err
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert "cannot append" in cli("gate", "base", "--baseline", "base/m.json").err


@pytest.mark.parametrize(
    ("document", "code", "sentence"),
    [
        ("record", 0, "gate: pass (1 pass)"),
        ("records", 0, "gate: pass (1 pass)"),
        ("baseline", 0, "gate: pass (1 pass)"),
        ("record of schema 0", 2, "has record schema 0, this effaudit reads from 1 on"),
        ("record of schema 99", 2, "has record schema 99, this effaudit reads up to 1"),
        ("baseline of schema 0", 2, "has baseline schema 0, this effaudit reads 1"),
        ("baseline of schema 99", 2, "has baseline schema 99, this effaudit reads 1"),
        ("nothing", 2, "cannot read baseline `b.json`"),
        ("an empty file", 2, "`b.json` is not JSON"),
        ("twice", 2, "`b.json`: `m` is there twice"),
    ],
)
def test_every_kind_of_baseline(cli: Cli, tmp_path: Path, document: str, code: int, sentence: str) -> None:
    (current,) = save_run(tmp_path / "run", [record("m", measurements=[figure("flops.executed", 1, "FLOP")])])
    texts = {
        "record": (tmp_path / "run" / "m.json").read_text(encoding="utf-8"),
        "records": to_json([current]),
        "baseline": to_text(baseline_of([current])),
        "an empty file": "",
        "twice": to_text(baseline_of([current, current])),
    }
    kind, _, version = document.partition(" of schema ")
    text = texts.get(kind)
    if text is not None:
        if version:
            text = text.replace('"schema_version": 1', f'"schema_version": {version}')
        (tmp_path / "b.json").write_text(text, encoding="utf-8")
    answer = cli("gate", "run", "--baseline", "b.json")
    assert answer.code == code
    assert sentence in answer.out + answer.err


def test_the_same_audit_passes_however_often_it_is_gated(cli: Cli, tmp_path: Path) -> None:
    """Counted figures have no noise to fail on."""
    path = write_profile(tmp_path)
    assert cli("baseline", "update", path, "--quiet").code == 0
    for _ in range(3):
        assert cli("gate", path, "--quiet").out.splitlines()[-1].startswith("gate: pass (")


def against(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: float) -> Callable[..., Answer]:
    """`gate` against a revision that is slower by `change`, without any process."""
    asked: list[tuple[float, float]] = []

    @contextmanager
    def revisions(revision: str, target: str) -> Iterator[Revisions]:
        assert (revision, target) == ("main", str(tmp_path / "tiny.yaml"))
        side = Side("s", "python", (), ".", target)
        yield Revisions(side, side)

    def race(base: Side, current: Side, tolerance: float, max_seconds: float, progress: object) -> Outcome:
        asked.append((tolerance, max_seconds))
        test = SequentialTest(tolerance)
        for part in (0.001, -0.001, 0.0, 0.0005, -0.0005):
            test.add(math.log1p(change) + part)
        duel = Duel(test, [0.01], [0.01 * (1 + change)])
        duel.last_look()
        return Outcome({"dense": duel}, {"dense": 0.002}, (), (), 5, 0, 42.0)

    monkeypatch.setattr("effaudit.against.checkout.revisions", revisions)
    monkeypatch.setattr("effaudit.against.race.race", race)

    def run(*arguments: object) -> Answer:
        answer = cli("gate", tmp_path / "tiny.yaml", "--against", "main", "--quiet", *arguments)
        if asked:
            assert asked.pop() == ((0.03, 7.0) if "--max-seconds" in arguments else (0.01, 120.0))
        return answer

    return run


@pytest.mark.parametrize(
    ("change", "verdict", "code"),
    [(0.05, "slower", 1), (-0.05, "faster", 0), (0.0, "same", 0), (0.0101, "undecided", 2)],
)
def test_time_against_a_revision(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: float, verdict: str, code: int
) -> None:
    path = write_profile(tmp_path, models=["dense"])
    run = against(cli, tmp_path, monkeypatch, change)
    answer = run("--json")
    assert answer.code == code
    (row,) = json.loads(answer.out)["rows"]
    assert (row["measurement"], row["verdict"]) == ("latency.p50", verdict)
    run("--max-seconds", "7", "--tolerance", "latency.p50=3%")
    assert cli("baseline", "update", path, "--out", "b.json", "--quiet").code == 0
    both = json.loads(run("--json", "--baseline", "b.json", "--tolerance", "flops.executed=0").out)["rows"]
    assert [row["measurement"] for row in both if row["verdict"] == verdict] == ["latency.p50"]
    assert len(both) > 5


def test_what_cannot_be_against_a_revision_is_refused(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_profile(tmp_path, models=["dense"])
    run = against(cli, tmp_path, monkeypatch, 0.0)
    assert "--against decides latency.p50 alone" in run("--tolerance", "flops.executed=0").err
    save_run(tmp_path / "run")
    assert "`run` is saved records" in cli("gate", "run", "--against", "main").err
    assert "--max-seconds acts on --against" in cli("gate", "run", "--max-seconds", "5").err


def test_a_profiles_tolerances_apply_and_the_command_line_goes_before_them(cli: Cli, tmp_path: Path) -> None:
    path = write_profile(tmp_path, models=["dense"])
    assert cli("baseline", "update", path).code == 0
    smaller = {"d_model": 16, "n_layers": 1, "n_heads": 2, "d_ff": 16}
    write_profile(tmp_path, models=["dense"], gate={"tolerances": {"flops.executed": "1%", "flops.dense": "0.9"}})
    assert cli("gate", path, "--quiet").code == 0
    write_profile(tmp_path, models=["dense"], size=smaller, gate={"tolerances": {"flops.dense": "10%"}})
    assert cli("gate", path, "--quiet").code == 1  # flops.dense has no better direction
    assert cli("gate", path, "--quiet", "--tolerance", "flops.dense=80%").code == 0
    write_profile(tmp_path, models=["dense"], gate={"tolerances": {"latency.p50": "5%"}})
    assert "no `latency.p50` among the measurements of the baseline" in cli("gate", path).err


def test_gate_and_baseline_audit_a_profile_first(cli: Cli, tmp_path: Path) -> None:
    path = write_profile(tmp_path, models=["dense"])
    assert cli("baseline", "update", path, "--out", "b.json", "--quiet").err == ""
    assert cli("gate", path, "--baseline", "b.json").code == 0
    assert len(list((tmp_path / "reports" / "runs").iterdir())) == 2
