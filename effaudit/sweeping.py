"""A sweep: one model becomes many, one for each combination of what is varied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import yaml

from effaudit.errors import EffauditError
from effaudit.model_targets import NOT_IN_NAMES, PYTHON_KEYS, split_run
from effaudit.profile_spec import ModelSpec, RunSpec, validated

MAX_CELLS = 200  # more is a mistake, or a week


def sweep_of(texts: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """What `key=value,value,…` texts vary.

    Raises EffauditError for what is not of that form.
    """
    found: dict[str, tuple[Any, ...]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        try:
            listed = yaml.safe_load(f"[{values}]") if equals else None
        except yaml.YAMLError:
            listed = None
        if not listed or not key.strip():
            raise EffauditError(f"--sweep: `{text}` is not KEY=VALUE,VALUE", "write it as in `--sweep threads=1,2`")
        found[key.strip()] = tuple(listed)
    return found


def expanded(models: Sequence[ModelSpec], sweep: Mapping[str, Sequence[Any]]) -> tuple[ModelSpec, ...]:
    """Every model in every cell of the grid, in the order of the axes.

    Raises EffauditError for a value that cannot be, and for a grid beyond MAX_CELLS.
    """
    if not sweep:
        return tuple(models)
    cells = [dict(zip(sweep, values, strict=True)) for values in product(*sweep.values())]
    if len(cells) * len(models) > MAX_CELLS:
        raise EffauditError(
            f"the sweep has {len(cells) * len(models)} cells, {MAX_CELLS} at most are audited", "vary less at a time"
        )
    return tuple(_in_cell(model, cell) for model in models for cell in cells)


def _in_cell(model: ModelSpec, cell: dict[str, Any]) -> ModelSpec:
    run, options = split_run(cell)
    said = "-".join(f"{key}-{value}" for key, value in cell.items())
    return model.model_copy(
        update={
            "name": f"{model.name}-{NOT_IN_NAMES.sub('-', said)}",
            "options": {**model.options, **_own(model, options)},
            "run": validated(RunSpec, {**model.run.model_dump(), **run}, f"sweep of `{model.name}`"),
            "init_from": None,
            "swept": model.name,
            "cell": cell,
        }
    )


def _own(model: ModelSpec, options: dict[str, Any]) -> dict[str, Any]:
    """Where the model keeps these: a factory's keywords have a place of their own."""
    if model.variant != "python":
        return options
    known = {key: value for key, value in options.items() if key in PYTHON_KEYS}
    keywords = {key: value for key, value in options.items() if key not in PYTHON_KEYS}
    return {**known, "keywords": {**model.options.get("keywords", {}), **keywords}} if keywords else known
