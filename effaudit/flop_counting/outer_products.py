"""Outer products are matrix products that torch runs as broadcast multiplications: counted where they are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from effaudit.flop_counting.mode import CountingMode
from effaudit.flop_counting.patching import patched

_PLACES: tuple[tuple[Any, str], ...] = ((torch, "outer"), (torch, "ger"), (Tensor, "outer"), (Tensor, "ger"))

_ORIGINALS = tuple((getattr(place, name), place, name) for place, name in _PLACES)


def as_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """What counts in place of an outer product that was looked up before the count began, else `function` itself."""
    for original, place, name in _ORIGINALS:
        if function is original:
            return getattr(place, name)
    return function


@contextmanager
def counted_outer_products(mode_here: Callable[[], CountingMode | None]) -> Iterator[None]:
    """`outer` and `ger` also count, in threads that have a mode, for as long as the context lasts."""
    with ExitStack() as stack:
        for place, name in _PLACES:
            stack.enter_context(patched(place, name, _counting(getattr(place, name), mode_here)))
        yield


def _counting(outer: Callable[..., Tensor], mode_here: Callable[[], CountingMode | None]) -> Callable[..., Tensor]:
    def counted(*args: Any, **kwargs: Any) -> Tensor:
        product = outer(*args, **kwargs)
        mode = mode_here()
        if mode is not None:
            mode.add("aten.outer", 2 * _of_all_examples(product).numel())
        return product

    return counted


def _of_all_examples(product: Tensor) -> Tensor:
    """The tensor that `vmap` shows one example of at a time."""
    while torch._C._functorch.is_functorch_wrapped_tensor(product):
        product = torch._C._functorch.get_unwrapped(product)
    return product
