"""How trained weights are kept: safetensors, with the model's config, tokenizer and training record beside them."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as parse_tensors
from safetensors.torch import save as dump_tensors
from tokenizers import Tokenizer
from torch import Tensor, nn

from effaudit.errors import EffauditError
from effaudit.profile_spec import TOKENIZER_NAME, ModelConfig, Spec

TOKENIZER_FILE = f"{TOKENIZER_NAME}.json"
PICKLE_STARTS = (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")  # zipped by torch.save, or bare


class TrainingRecord(Spec):
    """How weights came about; `losses` holds (step, training loss), `evaluations` (step, loss, accuracy)."""

    effaudit_version: str
    seed: int
    steps: int  # of this model, after `init_from`
    init_from: str | None = None
    init_sha256: str | None = None
    dataset: str
    data_sha256: str
    settings: dict[str, Any]
    losses: tuple[tuple[int, float], ...] = ()
    evaluations: tuple[tuple[int, float, float], ...] = ()
    best_step: int | None = None
    kept: str = "last"
    seconds: float = 0.0


@dataclass(frozen=True)
class TrainedWeights:
    """What lies in a weights file and beside it."""

    path: Path
    state: dict[str, Tensor]
    sha256: str
    config: ModelConfig | None  # None where a bare .safetensors file has no .json beside it
    training: TrainingRecord | None
    tokenizer: Tokenizer | None


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")  # several trainings share a folder
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        hint = "free some space or choose another --out"
        raise EffauditError(f"cannot write `{path}`: {error.strerror}", hint) from error


def save_weights(
    path: Path, model: nn.Module, config: ModelConfig, training: TrainingRecord, tokenizer: Tokenizer | None
) -> None:
    """Writes `path` (.safetensors), `path` with suffix .json, and the folder's tokenizer.json.

    Raises EffauditError when the disk refuses; a file that was there before is then still whole.
    """
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    about = {"config": config.model_dump(mode="json"), "training": training.model_dump(mode="json")}
    if tokenizer is not None:
        _replace(path.with_name(TOKENIZER_FILE), tokenizer.to_str(pretty=False).encode())
    # The tensors first: what then remains of older weights never passes for those described.
    _replace(path, dump_tensors(state))
    _replace(path.with_suffix(".json"), json.dumps(about, allow_nan=False).encode())


def load_weights(path: Path) -> TrainedWeights:
    """Reads a weights file with what lies beside it.

    Raises EffauditError when it is missing, truncated, or a pickle, or when what lies beside it is damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise EffauditError(f"cannot read weights `{path}`: {error.strerror}") from error
    try:
        state = parse_tensors(data)
    except SafetensorError as error:
        raise _unreadable(path, data, error) from error
    config, training = _beside(path)
    tokenizer = _tokenizer_beside(path)
    return TrainedWeights(path, state, hashlib.sha256(data).hexdigest(), config, training, tokenizer)


def _unreadable(path: Path, data: bytes, error: SafetensorError) -> EffauditError:
    # Only now, since a safetensors file of 640 bytes of header begins like a pickle too.
    if data.startswith(PICKLE_STARTS):
        return EffauditError(
            f"`{path}` is a pickle, which can run any code when it is read: refused", "save the weights as safetensors"
        )
    return EffauditError(f"`{path}` is no whole safetensors file: {error}", "it may be truncated: copy it again")


def _beside(path: Path) -> tuple[ModelConfig | None, TrainingRecord | None]:
    about_path = path.with_suffix(".json")
    if not about_path.is_file():
        return None, None
    try:
        about = json.loads(about_path.read_text(encoding="utf-8"))
        return ModelConfig.model_validate(about["config"]), TrainingRecord.model_validate(about["training"])
    except (OSError, ValueError, KeyError, TypeError, ValidationError) as error:
        raise EffauditError(f"`{about_path}` does not describe the weights beside it: {error}") from error


def _tokenizer_beside(path: Path) -> Tokenizer | None:
    tokenizer_path = path.with_name(TOKENIZER_FILE)
    if not tokenizer_path.is_file():
        return None
    try:
        return Tokenizer.from_file(str(tokenizer_path))
    except Exception as error:  # tokenizers raises nothing more precise
        raise EffauditError(f"`{tokenizer_path}` is no tokenizer: {error}", "copy it again, or retrain") from error


def fit_weights(model: nn.Module, weights: TrainedWeights) -> None:
    """Loads the state into the model.

    Raises EffauditError naming the first tensor that does not fit.
    """
    own = model.state_dict()
    for name, tensor in own.items():
        if name not in weights.state:
            raise EffauditError(f"`{weights.path}` lacks `{name}`: another variant or size")
        found = weights.state[name]
        if found.shape != tensor.shape:
            raise EffauditError(
                f"`{weights.path}` does not fit: `{name}` is {list(found.shape)}, the model wants {list(tensor.shape)}",
                "use the size, dataset and options that the weights were trained with",
            )
    if extra := sorted(set(weights.state) - set(own)):
        raise EffauditError(f"`{weights.path}` has `{extra[0]}`, which the model lacks: another variant or size")
    model.load_state_dict(weights.state)
