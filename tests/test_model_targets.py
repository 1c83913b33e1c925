"""What `hf:…` and `python:…` mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from effaudit.errors import EffauditError
from effaudit.model_targets import RUN_KEYS, is_own, parse_own
from effaudit.overrides import Overrides, apply
from effaudit.profile_spec import ModelSpec, RunSpec, load_profile, validated


@pytest.mark.parametrize(
    ("text", "is_it"), [("hf:x", True), ("python:a:b", True), ("hf", False), ("tsa:mode=ffn", False)]
)
def test_which_words_name_a_model_of_ones_own(text: str, is_it: bool) -> None:
    assert is_own(text) is is_it


@pytest.mark.parametrize(
    ("text", "name", "options", "run"),
    [
        ("hf:org/bert", "bert", {"path": "org/bert"}, {}),
        ("hf:/a/mini lm/model/", "mini-lm", {"path": "/a/mini lm/model/"}, {}),
        ("hf:x?dtype=bfloat16&attention=eager", "x", {"path": "x", "attention": "eager"}, {"dtype": "bfloat16"}),
        ("hf:x?no_weights=true&name=small", "small", {"path": "x", "no_weights": True}, {}),
        ("python:a.b:make", "make", {"factory": "a.b:make"}, {}),
        ("python:a:f?width=3&n_layers=2", "f", {"factory": "a:f", "n_layers": 2, "keywords": {"width": 3}}, {}),
        ("python:a:f?compile=true&threads=2", "f", {"factory": "a:f"}, {"compile": True, "threads": 2}),
    ],
)
def test_parts_of_a_target(text: str, name: str, options: dict[str, Any], run: dict[str, Any]) -> None:
    found = parse_own(text)
    assert found == {"name": name, "variant": text.partition(":")[0], "options": options, "run": run}
    assert validated(ModelSpec, text, "model") == validated(ModelSpec, found, "model")


def test_what_runs_is_what_a_profile_calls_run() -> None:
    assert set(RUN_KEYS) == set(RunSpec.model_fields)


@pytest.mark.parametrize("text", ["hf:x?eager", "python:a:f?width=[1"])
def test_options_that_are_none(text: str) -> None:
    with pytest.raises(EffauditError):
        parse_own(text)


def test_command_line_names_them_apart() -> None:
    base = load_profile("demo")
    spec = apply(base, Overrides(models=["hf:a", "hf:a?dtype=bfloat16", "python:m:f?width=3", "dense"]))
    assert [model.name for model in spec.audited_models] == ["a", "a-dtype-bfloat16", "f", "dense"]
    assert spec.models[1].run.dtype == "bfloat16"
    with pytest.raises(EffauditError, match="picked twice") as error:
        apply(base, Overrides(models=["hf:a/x", "hf:b/x"]))
    assert "?name=" in error.value.hint


def test_how_a_model_runs_goes_with_any_variant() -> None:
    spec = apply(load_profile("demo"), Overrides(models=["tsa:mode=ffn,dtype=bfloat16,threads=2"]))
    assert spec.models[0].options["mode"] == "ffn"
    assert spec.models[0].run == RunSpec(dtype="bfloat16", threads=2)
    with pytest.raises(EffauditError, match="dtype"):
        apply(load_profile("demo"), Overrides(models=["tsa:dtype=int3"]))


def test_folders_of_a_profile_are_found_beside_it(tmp_path: Path) -> None:
    (tmp_path / "bert").mkdir()
    path = tmp_path / "mine.yaml"
    path.write_text("models: ['hf:bert?tokenizer=bert', 'hf:org/other']\n")
    first, second = load_profile(path).models
    assert first.options == {"path": str(tmp_path / "bert"), "tokenizer": str(tmp_path / "bert")}
    assert second.options == {"path": "org/other"}
