"""A Hugging Face model folder (`hf:FOLDER`): encoder, sequence classifier, masked or causal language model.

Reads safetensors only, runs no code from the folder, and goes to the network only where a download is allowed.
transformers is imported when such a model is opened, not before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from effaudit import device as devices
from effaudit.datasets._model_tokenizer import ModelTokenizer
from effaudit.errors import EffauditError
from effaudit.profile_spec import Integer, OwnConfig, validated
from effaudit.record import Caution
from effaudit.variants import _hf_files
from effaudit.variants._hf_library import quiet, transformers
from effaudit.variants._hf_loading import Checkpoint, Head, built, refuse_too_large
from effaudit.variants._own import Opened, Order, OwnModel, OwnOptions
from effaudit.variants._user_code import told

TASKS = ("classification", "causal_lm")

ENDINGS: dict[str, Head] = {  # of the architecture that config.json names
    "ForSequenceClassification": "classification",
    "ForMaskedLM": "masked_lm",
    "ForCausalLM": "causal_lm",
    "LMHeadModel": "causal_lm",
}
SEES_ALL = "a masked language model sees the next token, which is what is asked for"
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


def open_model(order: Order) -> Opened:
    """The model with its tokenizer's view of the data.

    Raises EffauditError for whatever the folder lacks, before the weights are read where that can be told.
    """
    options = validated(Options, order.spec.options, f"options of `{order.spec.name}`")
    checkpoint = _look_through(order, options)
    device = devices.resolve(order.spec.run.device or order.profile.audit.device)
    refuse_too_large(checkpoint, order.dtype, device)
    tokenizer = _tokenizer(checkpoint, options.tokenizer, order.profile.data.max_tokens)
    dataset = order.data.under(tokenizer, is_causal=checkpoint.head == "causal_lm")
    _refuse_misfit(checkpoint, order, dataset.n_classes, tokenizer)
    with quiet():
        model, cautions = built(checkpoint, order)
    found: Any = model.config
    found.pad_token_id = tokenizer.padding  # a decoder that classifies looks for the last token before it
    config = OwnConfig(
        variant="hf",
        n_layers=int(getattr(found, "num_hidden_layers", None) or 0),
        options={
            **options.model_dump(mode="json", exclude={"trust_remote_code"}),
            "head": checkpoint.head,
            "attention": found._attn_implementation,
            "num_labels": found.num_labels if checkpoint.head == "classification" else None,
        },
        weights_sha256=_hf_files.sha256(checkpoint.files) if checkpoint.files else None,
    )
    is_unasked = checkpoint.head == "masked_lm" and dataset.task == "causal_lm"
    no_quality = SEES_ALL if is_unasked else ""
    own = OwnModel(order.spec.name, model, dataset.n_classes, {"use_cache": False}, no_quality)
    return Opened(own.eval(), config, dataset, (*checkpoint.cautions, *cautions))


def _look_through(order: Order, options: Options) -> Checkpoint:
    if not options.path:
        raise EffauditError(f"`{order.spec.name}`: no folder is named", "write `hf:FOLDER`")
    library = transformers()
    folder = _hf_files.find_folder(options.path, order.profile.audit.allow_download)
    named = _hf_files.read_config(folder)
    extra = {} if options.num_labels is None else {"num_labels": options.num_labels}
    try:
        with quiet():
            config = library.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **extra)
    except Exception as error:  # whatever a config stumbles over
        if "auto_map" in named:
            raise _hf_files.remote_code(folder) from error
        text = f"hf: transformers {library.__version__} cannot read the config of `{folder}`"
        is_known = named["model_type"] in library.CONFIG_MAPPING
        raise EffauditError(
            f"{text} (model_type `{named['model_type']}`): {told(error)}",
            "mend its config.json" if is_known else "a newer transformers may know it",
        ) from error
    if options.head == "causal_lm" and hasattr(config, "is_decoder"):
        config.is_decoder = True  # an encoder's attention would see the next token
    if (n_layers := getattr(config, "num_hidden_layers", None) or 0) < 0:
        raise EffauditError(f"hf: the config of `{folder}` says num_hidden_layers {n_layers}", "mend its config.json")
    if getattr(config, "is_encoder_decoder", False) or not isinstance(getattr(config, "vocab_size", None), int):
        raise EffauditError(
            f"hf: `{named['model_type']}` is neither a text encoder nor a decoder",
            "bring it with its own inputs: `--model python:my_module:factory`",
        )
    files = () if options.no_weights else _hf_files.weight_files(folder)
    return Checkpoint(
        folder,
        order.spec.name,
        config,
        _head(options, config),
        files,
        options.attention,
        options.num_labels is not None,
        () if "auto_map" not in named else (_code_not_run(named["model_type"]),),
    )


def _code_not_run(model_type: str) -> Caution:
    return Caution(
        code="own_code_not_run",
        text=f"the folder's own code (auto_map) was not run: this is the `{model_type}` of transformers",
        hint="where that code computes something else, `--model python:my_module:factory` audits it",
    )


def _head(options: Options, config: Any) -> Head:
    if options.head is not None:
        return options.head
    if options.num_labels is not None:
        return "classification"
    architecture = next(iter(config.architectures or ()), "")
    return next((head for ending, head in ENDINGS.items() if architecture.endswith(ending)), "encoder")


def _tokenizer(checkpoint: Checkpoint, named: str | None, max_tokens: int) -> ModelTokenizer:
    """The model's own, or the one that was named for it.

    Raises EffauditError when there is none, or the model cannot take texts of that length.
    """
    where = checkpoint.folder if named is None else _hf_files.find_folder(named, may_download=False)
    try:
        with quiet():
            found = transformers().AutoTokenizer.from_pretrained(where, local_files_only=True, trust_remote_code=False)
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


def _refuse_misfit(checkpoint: Checkpoint, order: Order, n_classes: int | None, tokenizer: ModelTokenizer) -> None:
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
