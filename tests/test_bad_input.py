"""Every mistake is one line and a hint, exit code 2, without a traceback, and loses nothing."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from effaudit.record import save_record
from tests.conftest import Answer, Cli
from tests.fakes_profiles import profile_text, save_run, write_profile
from tests.fakes_records import dense


def complaint(answer: Answer) -> tuple[str, str]:
    """The error and the hint, which are all that a mistake shows."""
    assert answer.code == 2, answer
    assert answer.out == ""
    error, blank, hint = answer.err.splitlines()[-3:]
    assert error.startswith("error: ")
    assert blank == ""
    assert hint.startswith("hint: ")
    assert "Traceback" not in answer.err
    return error.removeprefix("error: "), hint.removeprefix("hint: ")


@pytest.mark.parametrize(
    ("options", "error", "hint"),
    [
        ("--model dnse", "no `dnse` among the models of `tiny` and the variants", "did you mean `dense`?"),
        ("--model tsa:mood=soft", "no `mood` among the keys of options of `tsa`", "did you mean `mode`?"),
        ("--model tsa:mode=sotf", "options of `tsa`: mode: Input should be", "did you mean `soft`?"),
        ("--model tsa:lambda=-1", "options of `tsa`: lambda: Input should be greater", "left out, it is `0.001`"),
        ("--model tsa:mode", "`mode` is not key=value", "write it as in"),
        ("--model tsa:mode=[", "`[` is no value", "as in YAML"),
        ("--model tsa --model tsa", "`tsa` is picked twice", "different options"),
        ("--data grade", "no `grade` among the datasets", "did you mean `graded`?"),
        ("--data .", "`.` is a folder, `graded` needs no data", "presets take a folder"),
        ("--data tiny.yaml", "cannot tell what `tiny.yaml` is", "`chars:tiny.yaml`"),
        ("--data chars:no.txt", "no.txt", ""),
        ("--data ag_news:.", "lacks files for `ag_news`", "--data FOLDER"),
        ("--meters flop", "--meters: no `flop` among the meters", "did you mean `flops`?"),
        ("--meters ,", "--meters: none named", ""),
        ("--device cpuu", "no `cpuu` among the devices", "did you mean `cpu`?"),
        ("--device cuda", "no `cuda` device on this machine", "present: cpu"),
        ("--device mps", "no `mps` device on this machine", "present: cpu"),
        ("--dtype bf16", "--dtype: Input should be", "did you mean `bfloat16`?"),
        ("--batch-size 0", "--batch-size: Input should be greater than or equal to 1, given `0`", ""),
        ("--limit -3", "--limit: Input should be greater than or equal to 1, given `-3`", ""),
        ("--seed -1", "--seed: Input should be greater than or equal to 0, given `-1`", ""),
        ("--threads two", "'--threads'", "--help"),
        ("--country DE", "--country: ", "ISO 3166-1 alpha-3"),
        ("--country XXX", "no carbon intensity for country `XXX`", "--intensity"),
        ("--country USA --region califronia", "no `califronia` among the regions of USA", "did you mean `california`?"),
        ("--region texas", "region `texas` without its country", "--country"),
        ("--pue 0.9", "--pue: Input should be greater than or equal to 1, given `0.9`", ""),
        ("--weights none", "--weights: no file or folder `none`", "`effaudit train` writes weights"),
        ("--weights .", "--weights: none for `dense` in `.`", "dense.safetensors"),
        ("--modell dense", "No such option: --modell", "did you mean `--model`?"),
        ("--out tiny.yaml/run", "cannot write to `tiny.yaml/run`", "choose another --out"),
        ("--json .", "cannot write `.`: it is a folder", "name a file"),
        ("--json tiny.yaml/x.json", "cannot write to `tiny.yaml`", ""),
    ],
)
def test_options(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, error: str, hint: str
) -> None:
    monkeypatch.setattr("effaudit.device.available", lambda: ("cpu",))
    write_profile(tmp_path)
    told = complaint(cli("compare", "tiny.yaml", *options.split()))
    assert error in told[0]
    assert hint in told[1]
    assert not list(tmp_path.glob("reports/runs/*"))


@pytest.mark.parametrize(
    ("changes", "error", "hint"),
    [
        ({"nane": "x"}, "no `nane` among the keys of `tiny.yaml`", "did you mean `name`?"),
        ({"data": {"batchsize": 4}}, "no `data.batchsize` among", "did you mean `batch_size`?"),
        ({"models": [{"name": "a", "variant": "tsa", "optoins": {}}]}, "`models.0.optoins`", "did you mean `options`?"),
        (
            {"models": [{"variant": "tsa", "options": {"mood": 1}}]},
            "no `mood` among the keys of options of `tsa`",
            "mode",
        ),
        ({"models": [{"variant": "tsa", "training": {"stepz": 1}}]}, "no `stepz` among", "did you mean `steps`?"),
        ({"data": {"dataset": "graded", "options": {"n_trian": 4}}}, "no `n_trian` among", "did you mean `n_train`?"),
        ({"size": {"d_model": "wide"}}, "size.d_model: Input should be a valid integer", "left out, it is `128`"),
        ({"size": {"d_model": -4}}, "size.d_model: Input should be greater than or equal to 1, given `-4`", "128"),
        ({"size": {"n_layers": 1.5}}, "size.n_layers: Input should be a valid integer", "left out, it is `4`"),
        ({"size": {"d_model": 16, "n_heads": 3}}, "d_model 16 is not a multiple of n_heads 3", "another of the two"),
        ({"data": {"limit": True}}, "data.limit: Input should be a number, not true or false", ""),
        ({"size": {"n_layers": True}}, "size.n_layers: Input should be a number, not true or false", ""),
        ({"audit": {"intensity": True}}, "audit.intensity: Input should be a number, not true or false", ""),
        ({"models": ["tsa"], "training": {"betas": [0.9, 1]}}, "training.betas.1: Input should be less than 1", ""),
        ({"seed": 2**64}, "seed: Input should be less than", ""),
        (
            {"models": [{"name": "tokenizer", "variant": "tsa"}]},
            "no model can be called `tokenizer`",
            "another `name:`",
        ),
        ({"models": [{"variant": "tsa", "options": {"lambda": True}}]}, "lambda: Input should be a number", ""),
        ({"data": 3}, "data: Input should be a valid dictionary", "its keys are dataset, "),
        ({"data": {"dataset": "grade"}}, "no `grade` among the datasets", "did you mean `graded`?"),
        ({"audit": {"meters": ["flop"]}}, "no `flop` among the meters", "did you mean `flops`?"),
        ({"audit": {"device": "cudaa"}}, "no `cudaa` among the devices", "did you mean `cuda`?"),
        ({"training": {"schedule": "cos"}}, "training.schedule: Input should be", "did you mean `cosine`?"),
        ({"models": ["dense", "dense"]}, "two models are called `dense`", "`name:` of its own"),
        ({"models": ["dnse"]}, "no `dnse` among the variants", "did you mean `dense`?"),
        ({"models": []}, "models: ", "a list: each item the name of a variant"),
        ({"models": [{"variant": "tsa", "init_from": "desne"}]}, "no `desne` among the models", "known: tsa"),
        ({"models": [{"name": "a/b", "variant": "tsa"}]}, "models.0.name: ", "made of letters, digits"),
        ({"models": [{"variant": "tsa", "weights": "no.safetensors"}]}, "no weights file `no.safetensors`", "train"),
        ({"models": ["budgetformer"], "data": {"dataset": "copy"}}, "would see the future", "classification dataset"),
        ({"data": {"dataset": "copy", "max_tokens": 4}}, "max_tokens is 4", "raise max_tokens"),
    ],
)
def test_profiles(cli: Cli, tmp_path: Path, changes: dict[str, Any], error: str, hint: str) -> None:
    write_profile(tmp_path, **changes)
    told = complaint(cli("compare", "tiny.yaml"))
    assert error in told[0]
    assert hint in told[1]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("- dense\n", "is a list, not a mapping"),
        ("", "is empty, not a mapping"),
        ("models: [dense\n", "is not YAML: line 2, column 1"),
        ("models: [dense]\ndata: {limit: 1, limit: 2}\n", "line 2, column 18: `limit` is given twice"),
        ("models: [dense]\nmodels: [tsa]\n", "line 2, column 1: `models` is given twice"),
        ("models:\n\t- dense\n", "is not YAML: line 2, column 1"),
    ],
)
def test_texts_that_are_no_profile(cli: Cli, tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
    assert error in complaint(cli("profile", "p.yaml"))[0]


def test_targets_that_are_not_there(cli: Cli, tmp_path: Path) -> None:
    assert complaint(cli("compare", "demos.yaml"))[0] == "no profile file `demos.yaml`"
    error, hint = complaint(cli("train", "ag_new"))
    assert error == "no `ag_new` among the built-in profiles"
    assert hint.startswith("did you mean `ag_news`?")
    (tmp_path / "p.yaml").write_bytes(b"\xff\xfe")
    assert "cannot read profile `p.yaml`" in complaint(cli("compare", "p.yaml"))[0]
    save_record(dense(), tmp_path / "r.json")
    for command in ("profile", "train"):
        assert complaint(cli(command, "r.json"))[0] == "`r.json` is a saved record, not a profile"
    assert "no saved record" in complaint(cli("compare", "a.json", "p.yaml"))[0]
    assert "no model" not in complaint(cli("train", write_profile(tmp_path), "--model", "desne"))[0]
    assert "did you mean `dense`?" in complaint(cli("train", "tiny.yaml", "--model", "desne", "--jobs", 2))[1]
    assert "No such command" in complaint(cli("trian"))[0]
    assert "audits one model" in complaint(cli("profile", "tiny.yaml", "--model", "dense", "--model", "tsa"))[0]


def damaged(folder: Path, kind: str) -> Path:
    text = json.dumps(dense().model_dump(mode="json"))
    texts = {
        "text": "not JSON",
        "truncated": text[: len(text) // 2],
        "newer": text.replace('"schema_version": 1', '"schema_version": 99'),
        "older": text.replace('"schema_version": 1', '"schema_version": 0'),
        "other": '{"a": 1}',
        "list": "[1]",
        "no record": '{"schema_version": 1}',
        "empty document": '{"records": []}',
    }
    path = folder / "r.json"
    path.write_text(texts[kind], encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("text", "is not JSON"),
        ("truncated", "is not JSON"),
        ("newer", "has record schema 99, this effaudit reads up to 1"),
        ("older", "has record schema 0, this effaudit reads from 1 on"),
        ("other", "is not an effaudit record"),
        ("list", "no document of records"),
        ("no record", "is not a valid record: created_utc: Field required"),
        ("empty document", "holds no records"),
    ],
)
def test_damaged_records(cli: Cli, tmp_path: Path, kind: str, error: str) -> None:
    path = damaged(tmp_path, kind)
    for arguments in (["compare", path], ["report", path], ["gate", path, "--baseline", path]):
        assert error in complaint(cli(*arguments))[0]


def test_records_that_are_not_there(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "no run under" in complaint(cli("report"))[0]
    assert "no records in `empty`" in complaint(cli("report", "empty"))[0]
    assert "no record `x.json`" in complaint(cli("compare", "x.json"))[0]
    assert "cannot read baseline `b.json`" in complaint(cli("gate", "x.json", "--baseline", "b.json"))[0]
    save_run(tmp_path / "run")
    assert "--device acts on an audit" in complaint(cli("compare", "run", "--device", "cpu"))[0]


@pytest.mark.parametrize(
    ("tolerance", "error", "hint"),
    [
        ("flops.executd=0", "no `flops.executd` among", "did you mean `flops.executed`?"),
        ("flops.executed", "not NAME=VALUE", "latency.p50=5%"),
        ("flops.executed=much", "not NAME=VALUE", "latency.p50=5%"),
        ("flops.executed=-1", "not a share", "0.05"),
    ],
)
def test_tolerances(cli: Cli, tmp_path: Path, tolerance: str, error: str, hint: str) -> None:
    save_record(dense(), tmp_path / "r.json")
    told = complaint(cli("gate", "r.json", "--baseline", "r.json", "--tolerance", tolerance))
    assert error in told[0]
    assert hint in told[1]


@pytest.fixture
def weights(cli: Cli, tmp_path: Path) -> Path:
    """The trained weights of a dense model, by the profile `tiny.yaml`."""
    write_profile(tmp_path, models=["dense"])
    assert cli("train", "tiny.yaml", "--out", "w").code == 0
    return tmp_path / "w" / "dense.safetensors"


def test_weights_that_do_not_fit(cli: Cli, tmp_path: Path, weights: Path) -> None:
    wider = write_profile(tmp_path, "wider", size={"d_model": 32, "n_layers": 2, "n_heads": 2, "d_ff": 16})
    error, hint = complaint(cli("profile", wider, "--weights", weights))
    assert "does not fit" in error
    assert "use the size" in hint
    assert (
        "of variant `dense`, not `tsa`"
        in complaint(cli("profile", "wider.yaml", "--model", "tsa", "--weights", weights))[0]
    )


def test_damaged_weights(cli: Cli, tmp_path: Path, weights: Path) -> None:
    import torch

    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    assert "is no whole safetensors file" in complaint(cli("compare", "tiny.yaml", "--weights", "w"))[0]
    torch.save({"a": torch.zeros(2)}, weights)
    error, hint = complaint(cli("compare", "tiny.yaml", "--weights", weights))
    assert "is a pickle, which can run any code" in error
    assert hint == "save the weights as safetensors"
    weights.write_bytes(whole)
    weights.with_suffix(".json").write_text("{", encoding="utf-8")
    assert "does not describe the weights" in complaint(cli("compare", "tiny.yaml", "--weights", "w"))[0]


@pytest.mark.parametrize("rows", ["", "a,x\n", "a,x\nb,y\n"])
def test_empty_data(cli: Cli, tmp_path: Path, rows: str) -> None:
    (tmp_path / "t.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    write_profile(tmp_path)
    complaint(cli("compare", "tiny.yaml", "--data", "t.csv"))
    (tmp_path / "t.txt").write_text("", encoding="utf-8")
    complaint(cli("profile", "tiny.yaml", "--data", "t.txt"))


@pytest.fixture
def _no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def begun(*_: object, **__: object) -> None:
        raise AssertionError("the work was begun")

    monkeypatch.setattr("effaudit.auditing.load_all", begun)
    monkeypatch.setattr("effaudit.training.train_model", begun)


@pytest.mark.usefixtures("_no_work")
def test_unwritable_places_are_told_before_the_work(cli: Cli, tmp_path: Path) -> None:
    write_profile(tmp_path)
    file = tmp_path / "file"
    file.touch()
    for arguments in (
        ["compare", "tiny.yaml", "--out", file],
        ["compare", "tiny.yaml", "--out", file / "run"],
        ["compare", "tiny.yaml", "--json", file / "records.json"],
        ["train", "tiny.yaml", "--out", file / "weights"],
        ["baseline", "update", "tiny.yaml", "--out", file / "b.json"],
    ):
        assert "cannot write" in complaint(cli(*arguments))[0]
    (tmp_path / "reports").touch()
    assert "cannot write to `reports/runs/" in complaint(cli("compare", "tiny.yaml"))[0]


@pytest.mark.usefixtures("_no_work")
def test_records_are_not_overwritten(cli: Cli, tmp_path: Path) -> None:
    write_profile(tmp_path)
    save_run(tmp_path / "run", [dense()])
    before = (tmp_path / "run" / "dense.json").read_bytes()
    assert "has a record of `dense` already" in complaint(cli("compare", "tiny.yaml", "--out", "run"))[0]
    assert (tmp_path / "run" / "dense.json").read_bytes() == before


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_no_half_record(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_profile(tmp_path)
    monkeypatch.setattr(os, step, full)
    error, hint = complaint(cli("compare", "tiny.yaml", "--out", "o"))
    assert "No space left on device" in error
    assert "free some space" in hint
    assert list((tmp_path / "o").iterdir()) == []


def test_messages_stay_on_one_line_whatever_a_name_holds(cli: Cli) -> None:
    assert complaint(cli("compare", "no\nsuch\x1b[31m.yaml"))[0] == "no profile file `no such?[31m.yaml`"


def test_mistakes_exit_with_2_from_a_shell(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(profile_text(models=["dnse"]), encoding="utf-8")
    command = [sys.executable, "-m", "effaudit", "compare", "p.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no `dnse` among the variants\n\nhint: did you mean `dense`?")
