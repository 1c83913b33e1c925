"""What can be turned on a trained model without training it again.

A variant with knobs exports `KNOBS`, from an option to its Knob for a config, the usual one first; an adaptive one
exports `GATES`, the beginnings of the names of the parameters that decide, and, where its gates are continuous,
`SOFT`, the options under which they multiply and nothing is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from effaudit.profile_spec import ModelConfig


@dataclass(frozen=True)
class Knob:
    """The values of an option that are searched, ends included."""

    low: float
    high: float
    is_integer: bool = False
    is_remade: bool = False  # the model is made anew from the one that its training started from


Knobs = Mapping[str, Callable[[ModelConfig], Knob]]
