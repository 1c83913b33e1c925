"""What is wrong with a Hugging Face folder is said in one line, with a way out, and exits with 2."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import save_file

from effaudit import plugins
from effaudit.errors import EffauditError
from effaudit.profile_spec import validated
from effaudit.variants import _hf_files
from tests.conftest import Cli
from tests.own_models import BERT, audit, hf_folder, profile, table, with_weights


def one(size: int = 4) -> dict[str, torch.Tensor]:
    return {"weight": torch.zeros(size)}


def refusal(call: Any, *arguments: Any) -> EffauditError:
    with pytest.raises(EffauditError) as error:
        call(*arguments)
    assert "\n" not in error.value.message
    assert error.value.hint
    return error.value


def test_folder_without_a_config(tmp_path: Path) -> None:
    assert "has no config.json" in refusal(_hf_files.read_config, tmp_path).message


@pytest.mark.parametrize(("text", "message"), [("{", "cannot be read"), ("[]", "model_type"), ("{}", "model_type")])
def test_config_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "config.json").write_text(text)
    assert message in refusal(_hf_files.read_config, tmp_path).message


def test_config_that_needs_code(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoModel": "modeling.Mine"}}')
    error = refusal(_hf_files.read_config, tmp_path)
    assert "code of its own" in error.message
    assert "python:" in error.hint


def test_trust_remote_code_is_refused() -> None:
    options = plugins.load("variants", "hf").Options
    error = refusal(validated, options, {"path": "x", "trust_remote_code": True}, "options")
    assert "trust_remote_code is refused" in error.message


def test_name_that_is_nowhere_is_not_looked_for_in_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    asked: dict[str, Any] = {}

    def snapshot_download(name: str, **how: Any) -> str:
        asked.update(how, name=name)
        raise FileNotFoundError("not in the cache")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    error = refusal(_hf_files.find_folder, "org/model", False)
    assert "--allow-download" in error.hint
    assert (asked["name"], asked["local_files_only"]) == ("org/model", True)
    assert "cannot fetch" in refusal(_hf_files.find_folder, "org/model", True).message
    assert asked["local_files_only"] is False
    assert not any("bin" in pattern or "py" in pattern for pattern in asked["allow_patterns"])


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("x")
    assert "is a file" in refusal(_hf_files.find_folder, str(tmp_path / "model"), False).message


def test_folder_without_weights(tmp_path: Path) -> None:
    error = refusal(_hf_files.weight_files, tmp_path)
    assert "no model.safetensors" in error.message
    assert "no_weights" in error.hint


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "model.ckpt"])
def test_pickles_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PK")
    assert f"{name}` is a pickle" in refusal(_hf_files.weight_files, tmp_path).message


def test_half_downloaded_shards(tmp_path: Path) -> None:
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    index = {"weight_map": {f"w{i}": name for i, name in enumerate(names)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    save_file(one(), tmp_path / names[0])
    error = refusal(_hf_files.weight_files, tmp_path)
    assert f"2 of 3 weight files are missing in `{tmp_path}`, such as `{names[1]}`" in error.message
    for name in names[1:]:
        save_file(one(), tmp_path / name)
    assert _hf_files.weight_files(tmp_path) == tuple(tmp_path / name for name in names)


@pytest.mark.parametrize("n_kept", [0, 5, 40, -3])
def test_weights_that_were_cut_short(tmp_path: Path, n_kept: int) -> None:
    path = tmp_path / "model.safetensors"
    save_file(one(64), path)
    path.write_bytes(path.read_bytes()[:n_kept])
    assert f"`{path}`" in refusal(_hf_files.weight_files, tmp_path).message


def test_hash_of_shards_is_that_of_their_hashes(tmp_path: Path) -> None:
    for name, size in (("a.safetensors", 3), ("b.safetensors", 4)):
        save_file(one(size), tmp_path / name)
    both = (tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert _hf_files.sha256(both) != _hf_files.sha256(both[:1])
    assert _hf_files.sha256(both) == _hf_files.sha256(both)


def test_hf_alone_says_what_is_missing(cli: Cli) -> None:
    answer = cli("profile", "--model", "hf")
    assert answer.code == 2
    assert "hf:FOLDER" in answer.err


needs_transformers = pytest.mark.skipif(
    not __import__("importlib.util").util.find_spec("transformers"),
    reason="transformers is not installed: pip install 'effaudit[hf]'",
)


def audited(tmp_path: Path, folder: Path, query: str = "?no_weights=true", **changes: Any) -> EffauditError:
    spec = profile(table(tmp_path / "data"), f"hf:{folder}{query}", **changes)
    return refusal(audit, spec, tmp_path)


@needs_transformers
def test_tokenizer_that_does_not_fit_the_vocabulary(tmp_path: Path) -> None:
    error = audited(tmp_path, hf_folder(tmp_path / "m", BERT, vocab_size=6))
    assert "the tokenizer has 14 ids, the model's vocabulary 6" in error.message


@needs_transformers
def test_folder_without_a_tokenizer(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "m", BERT)
    (folder / "tokenizer.json").unlink()
    error = audited(tmp_path, folder)
    assert "no tokenizer" in error.message
    assert "?tokenizer=" in error.hint


@needs_transformers
def test_head_that_does_not_fit_the_labels(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "m", BERT)
    error = audited(tmp_path, folder, "?no_weights=true&num_labels=7")
    assert "its head has 7 classes" in error.message
    assert "num_labels=2" in error.hint
    spec = profile(table(tmp_path / "data"), f"hf:{folder}?no_weights=true&num_labels=7", audit={"meters": ("flops",)})
    assert audit(spec, tmp_path)[0]["flops.executed"].value


@needs_transformers
def test_texts_longer_than_the_model_takes(tmp_path: Path) -> None:
    error = audited(tmp_path, hf_folder(tmp_path / "m", BERT), data={"max_tokens": 64})
    assert "32 tokens at most, max_tokens is 64" in error.message
    assert "--max-tokens 32" in error.hint


@needs_transformers
def test_model_of_an_unknown_type(tmp_path: Path) -> None:
    error = audited(tmp_path, hf_folder(tmp_path / "m", BERT, model_type="no_such_type"))
    assert "model_type `no_such_type`" in error.message
    error = audited(tmp_path, hf_folder(tmp_path / "m", BERT, model_type="no_such_type", auto_map={"AutoModel": "m.M"}))
    assert "code of its own" in error.message


@needs_transformers
@pytest.mark.parametrize("model_type", ["t5", "vit"])
def test_model_that_is_neither_encoder_nor_decoder_of_text(tmp_path: Path, model_type: str) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    assert "neither a text encoder nor a decoder" in audited(tmp_path, folder).message


@needs_transformers
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": "many"}, "cannot read the config of .*hidden_size"),
        ({"hidden_size": 18}, "transformers refuses it: .* not a multiple of the number of attention heads"),
        ({"num_hidden_layers": -3}, "num_hidden_layers -3"),
    ],
)
def test_config_that_makes_no_model(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    assert re.search(message, audited(tmp_path, hf_folder(tmp_path / "m", BERT, **changes)).message)


@needs_transformers
def test_weights_of_another_model(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "m", BERT)
    with_weights(folder, "AutoModel")
    (folder / "config.json").write_text(json.dumps({**BERT, "vocab_size": 20}))
    error = audited(tmp_path, folder, "")
    assert "`embeddings.word_embeddings.weight` is [14, 16] in the weights, [20, 16] by the config" in error.message
    save_file(one(), folder / "model.safetensors", {"format": "pt"})
    assert "tensors is in the weights" in audited(tmp_path, folder, "").message


@needs_transformers
def test_known_model_with_code_of_its_own_is_audited_without_it_under_a_caution(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "m", BERT, auto_map={"AutoModel": "modeling.Mine"})
    (folder / "modeling.py").write_text("raise SystemError('this must not run')\n")
    (record,) = audit(profile(table(tmp_path / "data"), f"hf:{folder}?no_weights=true"), tmp_path)
    assert "own_code_not_run" in {caution.code for caution in record.cautions}


@needs_transformers
def test_attention_that_there_is_not(tmp_path: Path) -> None:
    error = audited(tmp_path, hf_folder(tmp_path / "m", BERT), "?no_weights=true&attention=no_such")
    assert "transformers refuses it" in error.message


@needs_transformers
def test_model_too_large_for_the_memory_is_told_from_its_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = hf_folder(tmp_path / "m", BERT, hidden_size=256, intermediate_size=1024)
    with_weights(folder, "AutoModel")
    memory = psutil.virtual_memory()._replace(available=2_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)

    def read(*args: Any, **kwargs: Any) -> None:
        pytest.fail("weights were read")

    import transformers

    monkeypatch.setattr(transformers.AutoModel, "from_pretrained", read)
    error = audited(tmp_path, folder, "")
    assert "for its weights alone, 2.00 MB are free on cpu" in error.message
    assert "dtype=bfloat16" in error.hint


@needs_transformers
def test_layers_beyond_count_are_not_built_to_be_counted(tmp_path: Path) -> None:
    folder = hf_folder(tmp_path / "m", BERT, num_hidden_layers=10**9)
    assert "for its weights alone" in audited(tmp_path, folder).message
    import transformers

    from effaudit.variants import _hf_loading

    def counted(n_layers: int) -> int:
        config = transformers.AutoConfig.from_pretrained(folder, num_hidden_layers=n_layers)
        return _hf_loading._n_parameters(_hf_loading.Checkpoint(folder, "m", config, "encoder", ()))

    assert counted(251) == counted(250) + counted(2) - counted(1)


@needs_transformers
def test_command_line_ends_with_two(tmp_path: Path, cli: Cli) -> None:
    answer = cli("profile", "--model", f"hf:{tmp_path}")
    assert answer.code == 2
    assert "has no config.json" in answer.err
    answer = cli("profile", "--model", f"hf:{tmp_path}?trust_remote_code=true")
    assert answer.code == 2
    assert "refused" in answer.err
    assert "Traceback" not in answer.err
