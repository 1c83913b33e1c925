"""What `hf:PATH?key=value&…` and `python:package.module:factory?key=value&…` mean: a model of one's own in one word."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

import yaml

from effaudit.errors import EffauditError

OWN = ("hf", "python")  # variants that are models of the user's own
RUN_KEYS = ("device", "threads", "batch_size", "dtype", "quantize", "compile")  # how it is run, whatever the model is
PYTHON_KEYS = ("n_layers", "execution")  # of `python:` targets, beside the factory's keywords
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.+-]+")
_NAMELESS = ("model", "models", "checkpoint", "weights", "config.json")  # folders that say nothing of what is in them


def is_own(text: str) -> bool:
    """Whether a text names a model of one's own."""
    return text.partition(":")[0] in OWN and ":" in text


def parse_own(text: str) -> dict[str, Any]:
    """The fields of a ModelSpec.

    Raises EffauditError for what is not `key=value`.
    """
    variant, _, rest = text.partition(":")
    where, _, query = rest.partition("?")
    said = {}
    for part in query.split("&") if query else ():
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise EffauditError(
                f"`{text}`: `{part}` is not key=value", "write options as in `hf:FOLDER?dtype=bfloat16`"
            )
        said[key.strip()] = value_of(value, text)
    name = str(said.pop("name", None) or _name(variant, where))
    run, options = split_run(said)
    if variant == "hf":
        options = {"path": where, **options}
    else:
        known: dict[str, Any] = {key: options.pop(key) for key in PYTHON_KEYS if key in options}
        options = {"factory": where, **known, **({"keywords": options} if options else {})}
    return {"name": name, "variant": variant, "options": options, "run": run}


def split_run(said: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is about running a model, and the rest, which is the model's own."""
    run = {key: value for key, value in said.items() if key in RUN_KEYS}
    return run, {key: value for key, value in said.items() if key not in RUN_KEYS}


def value_of(text: str, where: str) -> Any:
    """A value as YAML reads it.

    Raises EffauditError when it is none.
    """
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise EffauditError(f"{where}: `{text}` is no value", "values are written as in YAML") from error


def _name(variant: str, where: str) -> str:
    if variant == "python":
        last = where.rpartition(":")[2] or where
    else:
        parts = [part for part in PurePath(where).parts if part not in ("/", ".", "..")]
        while len(parts) > 1 and parts[-1] in _NAMELESS:
            parts.pop()
        last = parts[-1] if parts else variant
    return NOT_IN_NAMES.sub("-", last).strip("-._+") or variant
