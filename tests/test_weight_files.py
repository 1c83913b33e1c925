"""Weight files: round trips, and everything that is no weight file."""

from __future__ import annotations

import errno
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save
from tokenizers import Tokenizer, models
from torch import nn

from effaudit import weight_files
from effaudit.errors import EffauditError
from effaudit.weight_files import TrainingRecord, fit_weights, load_weights, save_weights
from tests import makers

RECORD = TrainingRecord(
    effaudit_version="0",
    seed=1,
    steps=20,
    dataset="copy",
    data_sha256="00",
    settings={"betas": [0.9, 0.95]},
    losses=((1, 2.5), (20, 1.5)),
    evaluations=((20, 1.25, 0.5),),
    best_step=20,
)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "dense.safetensors"
    made_from = makers.config("dense")
    save_weights(path, makers.build(made_from, dtype=torch.float32), made_from, RECORD, None)
    return path


def test_round_trip(saved: Path) -> None:
    found = load_weights(saved)
    model = makers.build(makers.config("dense"), dtype=torch.float32)
    assert found.state.keys() == model.state_dict().keys()
    assert all(torch.equal(found.state[name], value) for name, value in model.state_dict().items())
    assert (found.config, found.training, found.tokenizer) == (makers.config("dense"), RECORD, None)
    other = makers.build(makers.config("dense"), seed=5, dtype=torch.float32)
    fit_weights(other, found)
    of = makers.batch()
    assert torch.equal(makers.run(other, of).logits, makers.run(model, of).logits)


def test_hash_tells_weights_apart(saved: Path) -> None:
    before = load_weights(saved).sha256
    made_from = makers.config("dense")
    save_weights(saved, makers.build(made_from, dtype=torch.float32), made_from, RECORD, None)
    assert load_weights(saved).sha256 == before
    save_weights(saved, makers.build(made_from, seed=1, dtype=torch.float32), made_from, RECORD, None)
    assert load_weights(saved).sha256 != before


def test_tokenizer_lies_beside(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "word": 1}, unk_token="[UNK]"))
    path, made_from = tmp_path / "dense.safetensors", makers.config("dense")
    save_weights(path, makers.build(made_from), made_from, RECORD, tokenizer)
    found = load_weights(path).tokenizer
    assert found is not None
    assert found.to_str() == tokenizer.to_str()
    assert found.encode("word").ids == [1]


def test_bare_file_is_enough(saved: Path) -> None:
    saved.with_suffix(".json").unlink()
    found = load_weights(saved)
    assert (found.config, found.training) == (None, None)
    assert found.state


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(EffauditError, match=r"cannot read weights .*No such file"):
        load_weights(tmp_path / "none.safetensors")


@pytest.mark.parametrize("n_bytes", [0, 4, 100, -1])
def test_truncated(saved: Path, n_bytes: int) -> None:
    saved.write_bytes(saved.read_bytes()[:n_bytes])
    with pytest.raises(EffauditError, match="no whole safetensors file") as caught:
        load_weights(saved)
    assert "truncated" in caught.value.hint


@pytest.mark.parametrize("protocol", [2, 3, 4, 5, "torch", "old torch"])
def test_pickles_are_refused_unread(protocol: Any, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    if isinstance(protocol, int):
        path.write_bytes(pickle.dumps(_Exploding(), protocol=protocol))
    else:
        torch.save({"w": torch.zeros(2)}, path, _use_new_zipfile_serialization=protocol == "torch")
    with pytest.raises(EffauditError, match=r"is a pickle, .* refused") as caught:
        load_weights(path)
    assert "safetensors" in caught.value.hint


class _Exploding:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("the pickle was run",))


@pytest.mark.parametrize("n_header", [640, 896, 1152, 1408])
def test_header_length_that_looks_like_a_pickle(n_header: int, tmp_path: Path) -> None:
    """These little-endian lengths begin with the bytes of a pickle's protocol."""
    path = tmp_path / "weights.safetensors"
    for n in range(n_header):
        data = save({"w": torch.zeros(2)}, metadata={"note": "x" * n})
        if int.from_bytes(data[:8], "little") == n_header:
            break
    assert data[:1] == b"\x80"
    path.write_bytes(data)
    assert torch.equal(load_weights(path).state["w"], torch.zeros(2))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"config": {"variant": 1}, "training": {}}', "\x00"])
def test_damaged_description(text: str, saved: Path) -> None:
    saved.with_suffix(".json").write_text(text)
    with pytest.raises(EffauditError, match="does not describe the weights beside it"):
        load_weights(saved)


def test_damaged_tokenizer(saved: Path) -> None:
    saved.with_name("tokenizer.json").write_text("{}")
    with pytest.raises(EffauditError, match="is no tokenizer"):
        load_weights(saved)


@pytest.mark.parametrize(
    ("variant", "size", "message"),
    [
        ("dense", {"d_ff": 32}, "`blocks.0.ffn.up.weight` is .24, 16., the model wants .32, 16."),
        ("tsa", {}, "lacks `temperature`"),
        ("dense", {"n_layers": 2}, "has `blocks.2.attn.proj.weight`, which the model lacks"),
        ("dense", {"n_layers": 4}, "lacks `blocks.3"),
    ],
)
def test_weights_that_do_not_fit_name_the_tensor(variant: str, size: dict[str, int], message: str, saved: Path) -> None:
    model = makers.build(makers.config(variant, **size))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(EffauditError, match=message):
        fit_weights(model, load_weights(saved))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_foreign_tensors(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    model = nn.Linear(2, 2)
    path.write_bytes(save({**model.state_dict(), "extra": torch.zeros(1)}))
    with pytest.raises(EffauditError, match="has `extra`, which the model lacks"):
        fit_weights(model, load_weights(path))


def test_full_disk_leaves_the_old_file_whole(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path.name: path.read_bytes() for path in saved.parent.iterdir()}

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(weight_files.os, "fsync", full)
    made_from = makers.config("dense")
    with pytest.raises(EffauditError, match=r"cannot write .*No space left"):
        save_weights(saved, makers.build(made_from, seed=1), made_from, RECORD, None)
    assert {path.name: path.read_bytes() for path in saved.parent.iterdir()} == before


def test_two_processes_may_write_one_file_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, processes, plain = tmp_path / "tokenizer.json", iter((1, 2)), os.fsync

    def meanwhile(descriptor: int) -> None:
        monkeypatch.setattr(weight_files.os, "fsync", plain)
        weight_files._replace(path, b"same")

    monkeypatch.setattr(weight_files.os, "getpid", lambda: next(processes))
    monkeypatch.setattr(weight_files.os, "fsync", meanwhile)
    weight_files._replace(path, b"same")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"tokenizer.json": b"same"}


def test_description_is_written_last(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else weights of an older training would pass for those of the new one."""
    order: list[str] = []
    plain = weight_files._replace

    def noted(path: Path, data: bytes) -> None:
        order.append(path.suffix)
        plain(path, data)

    monkeypatch.setattr(weight_files, "_replace", noted)
    made_from = makers.config("dense")
    save_weights(saved, makers.build(made_from), made_from, RECORD, None)
    assert order == [".safetensors", ".json"]
    assert json.loads(saved.with_suffix(".json").read_text())["training"]["seed"] == 1
