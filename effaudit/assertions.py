"""What a test suite asserts about the compute of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from effaudit import units

if TYPE_CHECKING:
    from effaudit.flop_counting import FlopCount

N_NAMED = 3  # modules that a failure names


def assert_flops(model: Callable[..., object], inputs: object, *, at_most: float) -> FlopCount:
    """Counts one call of `model` and returns the count, which must not exceed `at_most`.

    `inputs` is the argument of the call, a tuple or list of arguments, or a mapping of keyword arguments.
    Raises AssertionError for more, naming the modules that cost most, and where ops without a formula leave it open.
    """
    from effaudit.flop_counting import count_flops

    if isinstance(inputs, Mapping):
        count = count_flops(model, **inputs)
    else:
        count = count_flops(model, *(inputs if isinstance(inputs, tuple | list) else (inputs,)))
    if count.total > at_most:
        over = units.signed_percent(count.total / at_most - 1) if at_most > 0 else "all of it"
        raise AssertionError(f"{_flops(count.total)} ran, at most {_flops(at_most)} may ({over})\n{_costliest(count)}")
    if not count.complete:
        ops = ", ".join(f"{op} ({calls}x)" for op, calls in sorted(count.uncounted.items()))
        raise AssertionError(f"{_flops(count.total)} were counted, but there is no formula for {ops}")
    return count


def _flops(n: float) -> str:
    return f"{n:,.0f} FLOPs"


def _costliest(count: FlopCount) -> str:
    """The modules with the most FLOPs of their own, a line each."""
    own = sorted(((module.own, path) for path, module in count.by_module.items() if module.own), reverse=True)
    return "\n".join(f"  {path or 'the model itself'}: {_flops(n)}" for n, path in own[:N_NAMED])
