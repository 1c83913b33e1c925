"""What lies in a Hugging Face model folder, and whether it can be read safely: config and weight files."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from effaudit.errors import EffauditError

CONFIG, SINGLE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
PICKLES = ("pytorch_model*.bin", "*.pt", "*.pth", "*.ckpt")
WANTED = ("*.json", "*.safetensors", "*.txt", "*.model")  # of a repository that is fetched: no pickles, no code
REMOTE_CODE_HINT = (
    "wrap it in a function of yours that you have read: `--model python:my_module:factory` takes any torch module"
)


def find_folder(named: str, may_download: bool) -> Path:
    """The model's folder: a path, or a repository's id in the local cache, or fetched where that is allowed.

    Raises EffauditError when it is nowhere.
    """
    folder = Path(named).expanduser()
    if folder.is_dir():
        return folder
    if folder.exists():
        raise EffauditError(f"hf: `{named}` is a file, not a model's folder", f"give the folder that has its {CONFIG}")
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(named, local_files_only=not may_download, allow_patterns=list(WANTED))
    except Exception as error:  # a dozen kinds, of the hub, of HTTP, of the name itself
        if not may_download:
            raise EffauditError(
                f"hf: no folder `{named}`, and no such model in the local Hugging Face cache",
                "check the path; a model that is named by its id is fetched only with `--allow-download`",
            ) from error
        reason = str(error).splitlines()[0]
        raise EffauditError(f"hf: cannot fetch `{named}`: {reason}", "check its name and the network") from error
    return Path(found)


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json.

    Raises EffauditError when there is none, or it asks for code of its own.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise EffauditError(
            f"hf: `{folder}` has no {CONFIG}", "give the folder of one model, as `save_pretrained` writes it"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EffauditError(f"hf: `{path}` cannot be read: {error}", "copy the folder again") from error
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        if isinstance(config, dict) and "auto_map" in config:
            raise remote_code(folder)
        raise EffauditError(f"hf: `{path}` names no `model_type`", "it is no transformers model: use `python:`")
    return config


def remote_code(folder: Path) -> EffauditError:
    return EffauditError(
        f"hf: `{folder}` needs code of its own (`auto_map`): refused, an audit runs no code from a checkpoint",
        REMOTE_CODE_HINT,
    )


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The folder's safetensors files, each known to be whole.

    Raises EffauditError when there are none, some are missing or cut short, or only pickles.
    """
    index = folder / INDEX
    if index.is_file():
        files = _sharded(index)
    elif (folder / SINGLE).is_file():
        files = (folder / SINGLE,)
    else:
        pickles = sorted(p.name for pattern in PICKLES for p in folder.glob(pattern))
        random = "or audit random weights with `?no_weights=true`: FLOPs and time stay right"
        if pickles:
            raise EffauditError(
                f"hf: `{folder / pickles[0]}` is a pickle, which can run any code when it is read: refused",
                f"save it anew as safetensors, {random}",
            )
        raise EffauditError(f"hf: no {SINGLE} in `{folder}`", f"complete the folder, {random}")
    for path in files:
        _refuse_cut(path)
    return files


def _sharded(index: Path) -> tuple[Path, ...]:
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EffauditError(f"hf: `{index}` is no index of weight files", "copy it again") from error
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise EffauditError(
            f"hf: {len(missing)} of {len(names)} weight files are missing in `{index.parent}`, such as `{missing[0]}`",
            "the download was not finished: fetch the missing files",
        )
    return tuple(index.parent / name for name in names)


def _refuse_cut(path: Path) -> None:
    """Raises EffauditError where the file is shorter or longer than its header says."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            (n_header,) = struct.unpack("<Q", file.read(8))
            if n_header > size:
                raise ValueError("the header is longer than the file")
            header = json.loads(file.read(n_header))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        whole = 8 + n_header + max(ends, default=0)
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise EffauditError(f"hf: `{path}` is no whole safetensors file: {error}", "fetch it again") from error
    if size != whole:
        raise EffauditError(
            f"hf: `{path}` has {size:,} bytes, its header says {whole:,}", "the download was cut short: fetch it again"
        )


def sha256(files: Iterable[Path]) -> str:
    """Of one file its hash, of several that of their hashes in order of name."""
    digests = []
    for path in files:
        with path.open("rb") as file:
            digests.append(_hexdigest(file))
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _hexdigest(file: Any) -> str:
    digest = hashlib.sha256()
    while piece := file.read(1 << 20):
        digest.update(piece)
    return digest.hexdigest()
