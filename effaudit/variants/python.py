"""Any torch module (`python:package.module:factory`): a function of yours that returns it, its options as keywords.

The module gets the profile's tokens, or brings its own inputs: a method `batches()`, or `batches(batch_size)`, that
gives the same batches each time: a tensor, a dict of keyword arguments (`labels` set aside), or a pair of
one of these and labels.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Annotated, Any

import torch
from pydantic import Field
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from effaudit.datasets._dataset import Dataset
from effaudit.datasets._model_tokenizer import ModelTokenizer
from effaudit.errors import EffauditError, unknown_name
from effaudit.profile_spec import Integer, OwnConfig, validated
from effaudit.variants._own import Opened, Order, OwnModel, OwnOptions
from effaudit.variants._own_batches import OwnBatches
from effaudit.variants._user_code import told, users_code

TASKS = ("classification", "causal_lm")

FROM_DATA = ("vocab_size", "n_classes", "max_tokens")  # a factory that requires these gets the data's


class Options(OwnOptions):
    """`keywords` go to the factory; `n_layers`, where the module has no attribute of that name, makes shares whole."""

    factory: str = ""
    keywords: dict[str, Any] = Field(default={})
    n_layers: Annotated[Integer, Field(ge=1)] | None = None


def open_model(order: Order) -> Opened:
    """The module that the factory makes, on the profile's data or on its own.

    Raises EffauditError when the factory is not found, raises, or returns no module.
    """
    name = order.spec.name
    options = validated(Options, order.spec.options, f"options of `{name}`")
    factory = _found(options.factory)
    asked = _data_keywords(factory, order, options)
    module = _made(factory, options, asked, order.profile.seed)
    dataset = _dataset(module, order)
    n_layers = options.n_layers or _n_layers(module)
    resolved = {**options.model_dump(mode="json"), "n_layers": n_layers or None}
    config = OwnConfig(variant="python", n_layers=n_layers, options=resolved, weights_sha256=_sha256(module))
    return Opened(OwnModel(name, module, dataset.n_classes).eval(), config, dataset)


@contextmanager
def _importing_from_here() -> Iterator[None]:
    """The current folder comes first, as under `python -m`."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _found(target: str) -> Callable[..., object]:
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise EffauditError(f"python: `{target}` names no function", "write `python:package.module:factory`")
    try:
        with _importing_from_here():
            module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            hint = "run effaudit in its folder, or install its package"
            raise EffauditError(f"python: no module `{module_name}`", hint) from error
        raise EffauditError(f"python: `{module_name}` needs `{error.name}`, which is not installed") from error
    except (Exception, SystemExit) as error:  # whatever the user's module does when it is imported
        raise EffauditError(
            f"python: importing `{module_name}` failed: {told(error)}", "mend it, then try again"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        known = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise unknown_name(f"functions of `{module_name}`", attribute, known)
    found: Callable[..., object] = factory
    return found


def _data_keywords(factory: Callable[..., object], order: Order, options: Options) -> dict[str, Any]:
    """What the factory asks the data for."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return {}
    required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    wanted = [key for key in FROM_DATA if key in required and key not in options.keywords]
    if not wanted:
        return {}
    dataset = order.data.under(None)
    sizes = {
        "vocab_size": dataset.vocab_size,
        "n_classes": dataset.n_classes,
        "max_tokens": order.profile.data.max_tokens,
    }
    return {key: sizes[key] for key in wanted}


def _made(factory: Callable[..., object], options: Options, asked: dict[str, Any], seed: int) -> nn.Module:
    """What the factory returns under `seed`: random weights are the same ones in each audit, or no gate could pass."""
    keywords = {**asked, **options.keywords}
    try:
        inspect.signature(factory).bind(**keywords)
    except TypeError as error:
        takes = ", ".join(inspect.signature(factory).parameters) or "nothing"
        raise EffauditError(f"python: `{options.factory}` {error}", f"it takes {takes}") from error
    except ValueError:  # a builtin without a signature
        pass
    with _importing_from_here(), torch.random.fork_rng(devices=[]), users_code(f"python: `{options.factory}`"):
        torch.manual_seed(seed)
        module = factory(**keywords)
    if not isinstance(module, nn.Module):
        raise EffauditError(
            f"python: `{options.factory}` returns a {type(module).__name__}, not a torch.nn.Module", "return the module"
        )
    _refuse_valueless(module, options.factory)
    return module


def _refuse_valueless(module: nn.Module, factory: str) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor) or tensor.is_meta:
            what = "no shape until a first call" if is_lazy(tensor) else "no value: it is on `meta`"
            hint = "call the module once in the factory" if is_lazy(tensor) else "make it on the CPU in the factory"
            raise EffauditError(f"python: `{name}` of what `{factory}` returns has {what}", hint)


def _sha256(module: nn.Module) -> str:
    """Of the weights' names, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        if isinstance(tensor, Tensor):
            digest.update(f"{name}{tensor.dtype}{list(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _dataset(module: nn.Module, order: Order) -> Dataset:
    batches = getattr(module, "batches", None)
    if callable(batches):
        return OwnBatches(batches, order.spec.name)
    tokenizer = getattr(module, "tokenizer", None)
    return order.data.under(_own_tokenizer(tokenizer), is_causal=_is_causal(module))


def _is_causal(module: nn.Module) -> bool:
    """Whether it models language, as its attribute or, as transformers names them, its class says."""
    named = type(module).__name__.endswith(("ForCausalLM", "LMHeadModel"))
    return bool(getattr(module, "is_causal_lm", named))


def _own_tokenizer(tokenizer: object) -> ModelTokenizer | None:
    """From a `tokenizers.Tokenizer` or a transformers tokenizer that the module carries."""
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, Tokenizer):
        return None
    padding = getattr(tokenizer, "pad_token_id", None)
    return ModelTokenizer.of(backend, padding if padding is not None else 0, getattr(tokenizer, "unk_token_id", None))


def _n_layers(module: nn.Module) -> int:
    """Layers of the backbone by the module's attribute or its config's; 0 where neither says."""
    config = getattr(module, "config", None)
    said = (getattr(module, "n_layers", None), *(getattr(config, k, None) for k in ("n_layers", "num_hidden_layers")))
    return next((n for n in said if isinstance(n, int) and n > 0), 0)
