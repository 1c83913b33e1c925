"""From a profile's words to models: where weights are looked for, and what is said when they do not fit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models

from effaudit.assembly import _of_other_data, assemble, find_weights, load_all, model_config, open_data, weights_folder
from effaudit.errors import EffauditError
from effaudit.profile_spec import AuditProfile, ModelSpec, load_profile
from effaudit.training import train
from effaudit.weight_files import TOKENIZER_FILE, load_weights
from tests import makers

TSA = {"name": "tsa", "variant": "tsa", "options": {"lambda": 0.05}}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with weights of dense and tsa."""
    folder = tmp_path_factory.mktemp("weights")
    train(makers.profile("dense", TSA, training={"steps": 1}), folder, is_quiet=True)
    return folder


def _assembled(profile: AuditProfile, spec: ModelSpec, path: Path | None) -> Any:
    return assemble(profile, spec, open_data(profile), load_weights(path) if path else None)


def test_weights_are_found_in_a_folder(trained: Path) -> None:
    profile = makers.profile("dense", TSA)
    assert [find_weights(profile, spec, trained) for spec in profile.models] == [
        trained / "dense.safetensors",
        trained / "tsa.safetensors",
    ]


def test_named_weights_must_be_there(trained: Path, tmp_path: Path) -> None:
    profile = makers.profile("dense")
    assert find_weights(profile, profile.models[0], trained / "dense.safetensors") == trained / "dense.safetensors"
    with pytest.raises(EffauditError, match="no weights file"):
        find_weights(profile, profile.models[0], tmp_path / "none.safetensors")
    with pytest.raises(EffauditError, match="no weights for `dense` in") as caught:
        find_weights(profile, profile.models[0], tmp_path)
    assert "dense.safetensors" in caught.value.hint
    named = ModelSpec(name="dense", variant="dense", weights=str(trained / "dense.safetensors"))
    assert find_weights(profile, named, None) == trained / "dense.safetensors"


def test_trained_weights_are_found_below_the_current_folder(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = makers.profile("dense", "early_exit")
    monkeypatch.chdir(tmp_path)
    assert weights_folder(profile) is None
    assert find_weights(profile, profile.models[0], None) is None
    shutil.copytree(trained, "reports/weights/tiny")
    found = [find_weights(profile, spec, None) for spec in profile.models]
    assert found == [Path("reports/weights/tiny/dense.safetensors"), None]


def test_shipped_weights_are_for_the_built_in_profile_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = tmp_path / "weights" / "tiny"
    shipped.mkdir(parents=True)
    written = tmp_path / "tiny.yaml"
    written.write_text("models: [dense]\nsize: {d_model: 32}\n", encoding="utf-8")
    monkeypatch.setattr("effaudit.assembly.__file__", str(tmp_path / "assembly.py"))
    monkeypatch.setattr("effaudit.assembly.builtin_profiles", lambda: {"tiny": written})
    monkeypatch.chdir(tmp_path)
    builtin = load_profile(written)
    assert weights_folder(builtin.model_copy(update={"seed": 5})) == shipped
    assert weights_folder(makers.profile("dense")) is None  # of the same name, but of another size


def test_config_takes_size_data_and_resolved_options() -> None:
    profile = makers.profile(TSA)
    config = model_config(profile, profile.models[0], open_data(profile))
    assert (config.task, config.vocab_size, config.n_classes, config.max_tokens) == ("causal_lm", 32, None, 8)
    assert (config.d_model, config.n_layers, config.n_heads, config.d_ff) == (16, 2, 4, 32)
    assert config.options["lambda"] == 0.05
    assert config.options["mode"] == "ffn+query"


def test_unknown_option_is_refused() -> None:
    profile = makers.profile({**TSA, "options": {"treshold": 0.5}})
    with pytest.raises(EffauditError, match="treshold") as caught:
        model_config(profile, profile.models[0], open_data(profile))
    assert "`threshold`" in caught.value.hint


def test_variant_that_cannot_do_the_task_says_why() -> None:
    profile = makers.profile("budgetformer")
    with pytest.raises(EffauditError, match="cannot model language"):
        _assembled(profile, profile.models[0], None)


def test_without_weights_the_model_is_seeded_and_a_caution_says_so() -> None:
    profile = makers.profile("dense")
    state = torch.get_rng_state()
    one, other = (_assembled(profile, profile.models[0], None) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(map(torch.equal, one.model.state_dict().values(), other.model.state_dict().values()))
    assert [caution.code for caution in one.cautions] == ["untrained"]
    assert "effaudit train" in one.cautions[0].hint
    assert "tiny" not in one.cautions[0].hint  # a profile's file need not bear its name
    assert not one.model.training
    different = _assembled(profile.model_copy(update={"seed": 1}), profile.models[0], None)
    assert not torch.equal(different.model.embed.weight, one.model.embed.weight)


def test_trained_options_stand_where_the_profile_is_silent(trained: Path) -> None:
    profile = makers.profile({"name": "tsa", "variant": "tsa", "options": {"mode": "ffn"}})
    found = _assembled(profile, profile.models[0], trained / "tsa.safetensors")
    assert (found.config.options["lambda"], found.config.options["mode"]) == (0.05, "ffn")
    assert found.model.options.mode == "ffn"
    assert found.cautions == ()
    assert all(torch.equal(value, found.weights.state[name]) for name, value in found.model.state_dict().items())


def test_option_of_training_cannot_be_changed_afterwards(trained: Path) -> None:
    profile = makers.profile({"name": "tsa", "variant": "tsa", "options": {"lambda": 0.5}})
    (caution,) = _assembled(profile, profile.models[0], trained / "tsa.safetensors").cautions
    assert caution.code == "trained_otherwise"
    assert "trained with 0.05, not 0.5" in caution.text


def test_option_written_as_text_is_read_like_the_number(trained: Path) -> None:
    profile = makers.profile({"name": "tsa", "variant": "tsa", "options": {"lambda": "5e-2", "threshold": "4e-1"}})
    found = _assembled(profile, profile.models[0], trained / "tsa.safetensors")
    assert (found.config.options["lambda"], found.config.options["threshold"]) == (0.05, 0.4)
    assert found.cautions == ()


def test_option_has_one_name(trained: Path) -> None:
    profile = makers.profile({"name": "tsa", "variant": "tsa", "options": {"lambda_": 0.05}})
    with pytest.raises(EffauditError, match="no `lambda_`") as caught:
        _assembled(profile, profile.models[0], trained / "tsa.safetensors")
    assert "`lambda`" in caught.value.hint


@pytest.mark.parametrize(("mode", "codes"), [("soft", ["trained_otherwise"]), ("ffn", [])])
def test_soft_run_of_hardened_gates_is_said(mode: str, codes: list[str], tmp_path: Path) -> None:
    hardened = {"name": "tsa", "variant": "tsa", "options": {"anneal_to": 0.5}}
    (path,) = train(makers.profile(hardened, training={"steps": 1}), tmp_path, is_quiet=True)
    profile = makers.profile({"name": "tsa", "variant": "tsa", "options": {"mode": mode}})
    cautions = _assembled(profile, profile.models[0], path).cautions
    assert [caution.code for caution in cautions] == codes
    assert all("hardened" in caution.text for caution in cautions)


def test_published_gates_may_run_soft(trained: Path) -> None:
    profile = makers.profile({"name": "tsa", "variant": "tsa", "options": {"mode": "soft"}})
    assert _assembled(profile, profile.models[0], trained / "tsa.safetensors").cautions == ()


def test_weights_of_other_data_are_said(trained: Path) -> None:
    profile = makers.profile("dense", data={"dataset": "sort"})
    (caution,) = _assembled(profile, profile.models[0], trained / "dense.safetensors").cautions
    assert (caution.code, caution.text) == ("other_data", "trained on `copy`, not on `sort`")


@pytest.mark.parametrize(("audited", "n"), [("table:a/x.csv", 0), ("table:x.csv", 0), ("table:y.csv", 1), ("sort", 1)])
def test_same_file_may_lie_elsewhere(audited: str, n: int) -> None:
    assert len(_of_other_data("table:b/x.csv", audited)) == n


def test_weights_of_another_variant_are_refused(trained: Path) -> None:
    profile = makers.profile(TSA)
    with pytest.raises(EffauditError, match="of variant `dense`, not `tsa`"):
        _assembled(profile, profile.models[0], trained / "dense.safetensors")


def test_weights_of_another_size_are_refused(trained: Path) -> None:
    profile = makers.profile("dense", data={"max_tokens": 9})
    with pytest.raises(EffauditError, match=r"`position.weight` is .8, 16., the model wants .9, 16."):
        _assembled(profile, profile.models[0], trained / "dense.safetensors")


def _with_tokenizer(trained: Path, folder: Path, name: str, *words: str) -> str:
    folder.mkdir()
    for suffix in (".safetensors", ".json"):
        shutil.copy(trained / f"{name}{suffix}", folder)
    vocabulary = {word: i for i, word in enumerate(("[UNK]", *words))}
    Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]")).save(str(folder / TOKENIZER_FILE))
    return str(folder / f"{name}.safetensors")


def test_models_must_share_their_tokenizer(trained: Path, tmp_path: Path) -> None:
    one = {"name": "dense", "weights": _with_tokenizer(trained, tmp_path / "a", "dense", "x")}
    same = {"name": "tsa", "weights": _with_tokenizer(trained, tmp_path / "b", "tsa", "x")}
    other = {"name": "tsa", "weights": _with_tokenizer(trained, tmp_path / "c", "tsa", "y")}
    _, assembled = load_all(makers.profile(one, same), None)
    assert [model.spec.name for model in assembled] == ["dense", "tsa"]
    with pytest.raises(EffauditError, match="different tokenizers") as caught:
        load_all(makers.profile(one, other), None)
    assert TOKENIZER_FILE in caught.value.hint
