"""A Hugging Face model folder (`hf:FOLDER`): encoder, sequence classifier, masked or causal language model.

Reads safetensors only, runs no code from the folder, and goes to the network only where a download is allowed.
transformers is imported when such a model is opened, not before.
"""

from __future__ import annotations

import gc
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

import psutil
import torch
from pydantic import Field, field_validator
from torch import nn

from effaudit import device as devices
from effaudit import units
from effaudit.datasets._model_tokenizer import ModelTokenizer
from effaudit.errors import EffauditError
from effaudit.profile_spec import Integer, OwnConfig, validated
from effaudit.record import Caution
from effaudit.variants import _hf_files
from effaudit.variants._own import Opened, Order, OwnModel, OwnOptions

TASKS = ("classification", "causal_lm")

Head = Literal["encoder", "classification", "masked_lm", "causal_lm"]
CLASSES: dict[Head, str] = {
    "encoder": "AutoModel",
    "classification": "AutoModelForSequenceClassification",
    "masked_lm": "AutoModelForMaskedLM",
    "causal_lm": "AutoModelForCausalLM",
}
ENDINGS: dict[str, Head] = {  # of the architecture that config.json names
    "ForSequenceClassification": "classification",
    "ForMaskedLM": "masked_lm",
    "ForCausalLM": "causal_lm",
    "LMHeadModel": "causal_lm",
}
ROOM = 1.1  # of the weights' own size: what loading holds beside them for a moment
UNLIMITED = 10**6  # a tokenizer's length from which it means none


class Options(OwnOptions):
    """`path` is a folder or an id; `tokenizer` another folder's. Without `head` the config's architecture tells.

    `num_labels` asks for a classification head of that size, fresh where the weights have none such.
    """

    path: str = ""
    head: Head | None = None
    num_labels: Annotated[Integer, Field(ge=1)] | None = None
    no_weights: bool = False
    attention: str | None = None  # eager, sdpa, …: what this transformers offers for the model
    tokenizer: str | None = None
    trust_remote_code: bool = False

    @field_validator("trust_remote_code")
    @classmethod
    def _never(cls, is_asked: bool) -> bool:
        if is_asked:
            raise EffauditError(
                "trust_remote_code is refused: it would run code from the checkpoint's folder on this machine",
                _hf_files.REMOTE_CODE_HINT,
            )
        return is_asked


@dataclass(frozen=True)
class _Checkpoint:
    """A folder that was looked through, before anything large is read."""

    folder: Path
    name: str
    options: Options
    config: Any  # transformers' own
    head: Head
    files: tuple[Path, ...]  # of weights; none where they are to be random

    @property
    def auto_class(self) -> Any:
        return getattr(_transformers(), CLASSES[self.head])


def open_model(order: Order) -> Opened:
    """The model with its tokenizer's view of the data.

    Raises EffauditError for whatever the folder lacks, before the weights are read where that can be told.
    """
    options = validated(Options, order.spec.options, f"options of `{order.spec.name}`")
    checkpoint = _look_through(order, options)
    tokenizer = _tokenizer(checkpoint, order.profile.data.max_tokens)
    dataset = order.data.under(tokenizer, is_causal=checkpoint.head == "causal_lm")
    _refuse_misfit(checkpoint, order, dataset.n_classes, tokenizer)
    device = devices.resolve(order.spec.run.device or order.profile.audit.device)
    _refuse_too_large(checkpoint, order.dtype, device)
    with _quiet():
        model, cautions = _built(checkpoint, order)
    found: Any = model.config
    found.pad_token_id = tokenizer.padding  # a decoder that classifies looks for the last token before it
    config = OwnConfig(
        variant="hf",
        n_layers=int(getattr(found, "num_hidden_layers", 0)),
        options={
            **options.model_dump(mode="json", exclude={"trust_remote_code"}),
            "head": checkpoint.head,
            "attention": found._attn_implementation,
            "num_labels": found.num_labels if checkpoint.head == "classification" else None,
        },
        weights_sha256=_hf_files.sha256(checkpoint.files) if checkpoint.files else None,
    )
    own = OwnModel(order.spec.name, model, dataset.n_classes, {"use_cache": False})
    return Opened(own.eval(), config, dataset, cautions)


def _transformers() -> ModuleType:
    try:
        import transformers
    except ImportError:
        raise EffauditError("`hf:` needs transformers, which is not installed", "pip install 'effaudit[hf]'") from None
    module: ModuleType = transformers
    return module


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps transformers' own bars and warnings away: what matters is said as a caution or an error."""
    library = logging.getLogger("transformers")
    level = library.level
    bars = _transformers().utils.logging
    was_shown = bars.is_progress_bar_enabled()
    library.setLevel(logging.ERROR + 1)
    bars.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        library.setLevel(level)
        if was_shown:
            bars.enable_progress_bar()


def _look_through(order: Order, options: Options) -> _Checkpoint:
    if not options.path:
        raise EffauditError(f"`{order.spec.name}`: no folder is named", "write `hf:FOLDER`")
    transformers = _transformers()
    folder = _hf_files.find_folder(options.path, order.profile.audit.allow_download)
    named = _hf_files.read_config(folder)
    extra = {} if options.num_labels is None else {"num_labels": options.num_labels}
    try:
        with _quiet():
            config = transformers.AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, **extra
            )
    except Exception as error:  # whatever a config stumbles over
        if "auto_map" in named:
            raise _hf_files.remote_code(folder) from error
        text = f"hf: transformers {transformers.__version__} cannot read the config of `{folder}`"
        raise EffauditError(
            f"{text} (model_type `{named['model_type']}`)", "a newer transformers may know it"
        ) from error
    if getattr(config, "is_encoder_decoder", False) or not isinstance(getattr(config, "vocab_size", None), int):
        raise EffauditError(
            f"hf: `{named['model_type']}` is neither a text encoder nor a decoder",
            "bring it with its own inputs: `--model python:my_module:factory`",
        )
    files = () if options.no_weights else _hf_files.weight_files(folder)
    return _Checkpoint(folder, order.spec.name, options, config, _head(options, config), files)


def _head(options: Options, config: Any) -> Head:
    if options.head is not None:
        return options.head
    if options.num_labels is not None:
        return "classification"
    architecture = next(iter(config.architectures or ()), "")
    return next((head for ending, head in ENDINGS.items() if architecture.endswith(ending)), "encoder")


def _tokenizer(checkpoint: _Checkpoint, max_tokens: int) -> ModelTokenizer:
    """The model's own, or the one that was named for it.

    Raises EffauditError when there is none, or the model cannot take texts of that length.
    """
    folder, options = checkpoint.folder, checkpoint.options
    where = folder if options.tokenizer is None else _hf_files.find_folder(options.tokenizer, may_download=False)
    try:
        with _quiet():
            found = _transformers().AutoTokenizer.from_pretrained(where, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # a dozen kinds, of three libraries
        raise _no_tokenizer(where) from error
    backend = getattr(found, "backend_tokenizer", None)
    if backend is None or backend.get_vocab_size() == 0:
        raise _no_tokenizer(where)
    longest = min(
        int(getattr(checkpoint.config, "max_position_embeddings", None) or UNLIMITED),
        int(found.model_max_length) if found.model_max_length < UNLIMITED else UNLIMITED,
    )
    if max_tokens > longest:
        raise EffauditError(
            f"`{checkpoint.name}` takes {longest} tokens at most, max_tokens is {max_tokens}",
            f"lower it: `--max-tokens {longest}`",
        )
    ids = (found.pad_token_id, checkpoint.config.pad_token_id, found.eos_token_id)
    padding = next((i for i in ids if isinstance(i, int) and i >= 0), 0)
    has_segments = "token_type_ids" in found.model_input_names
    return ModelTokenizer.of(backend, padding, found.unk_token_id, has_segments)


def _no_tokenizer(folder: Path) -> EffauditError:
    return EffauditError(
        f"hf: no tokenizer that can be read in `{folder}`",
        "complete the folder (tokenizer.json), or name another one's: `?tokenizer=FOLDER`",
    )


def _refuse_misfit(checkpoint: _Checkpoint, order: Order, n_classes: int | None, tokenizer: ModelTokenizer) -> None:
    name, config = checkpoint.name, checkpoint.config
    if tokenizer.vocab_size > config.vocab_size:
        raise EffauditError(
            f"`{name}`: the tokenizer has {tokenizer.vocab_size} ids, the model's vocabulary {config.vocab_size}",
            "they are not of one model: complete the folder, or name the right one with `?tokenizer=FOLDER`",
        )
    is_scored = checkpoint.head == "classification" and "quality" in order.profile.audit.meters
    if is_scored and n_classes is not None and config.num_labels != n_classes:
        raise EffauditError(
            f"`{name}`: its head has {config.num_labels} classes, `{order.profile.data.dataset}` has {n_classes}",
            f"`?num_labels={n_classes}` gives it a fresh head, `?head=encoder` none; or leave quality out of --meters",
        )


def _refuse_too_large(checkpoint: _Checkpoint, dtype: torch.dtype, device: torch.device) -> None:
    """From the config alone, before anything is read: an out-of-memory kill would take the whole audit with it."""
    with torch.device("meta"), _quiet():
        skeleton = checkpoint.auto_class.from_config(checkpoint.config, trust_remote_code=False)
    n_bytes = int(sum(p.numel() for p in skeleton.parameters()) * dtype.itemsize * ROOM)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    if n_bytes <= free:
        return
    size, left = units.quantity(n_bytes, "B"), units.quantity(free, "B")
    hint = "a smaller model, or a machine with more memory"
    if dtype.itemsize > 2:
        hint = f"`?dtype=bfloat16` takes {dtype.itemsize // 2} times less; else {hint}"
    raise EffauditError(
        f"`{checkpoint.name}` needs {size} for its weights alone, {left} are free on {device.type}", hint
    )


def _built(checkpoint: _Checkpoint, order: Order) -> tuple[nn.Module, tuple[Caution, ...]]:
    """The model, random where it must be under the profile's seed."""
    how: dict[str, Any] = {"dtype": order.dtype, "trust_remote_code": False}
    if checkpoint.options.attention is not None:
        how["attn_implementation"] = checkpoint.options.attention
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(order.profile.seed)
        try:
            if checkpoint.options.no_weights:
                return checkpoint.auto_class.from_config(checkpoint.config, **how), (_random(),)
            model, info = checkpoint.auto_class.from_pretrained(
                checkpoint.folder,
                config=checkpoint.config,
                local_files_only=True,
                use_safetensors=True,
                ignore_mismatched_sizes=checkpoint.options.num_labels is not None,
                output_loading_info=True,
                **how,
            )
        except (ValueError, ImportError, RuntimeError, OSError) as error:
            reason = " ".join(str(error).split())[:300]
            raise EffauditError(
                f"`{checkpoint.name}`: transformers refuses it: {reason}", "see `?attention=…`, `?head=…`"
            ) from error
        finally:
            gc.collect()
    return model, _fresh(checkpoint, [*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])])


def _random() -> Caution:
    return Caution(
        code="untrained",
        text="random weights (no_weights): quality and routing mean nothing",
        hint="FLOPs, time, memory and energy are those of trained weights of this size",
    )


def _fresh(checkpoint: _Checkpoint, keys: list[str]) -> tuple[Caution, ...]:
    if not keys:
        return ()
    shown = ", ".join(sorted(keys)[:3]) + (", …" if len(keys) > 3 else "")
    text = f"{len(keys)} tensors are not in the weights and random: {shown}"
    return (Caution(code="fresh_weights", text=text, hint="its quality means something only once they are trained"),)
