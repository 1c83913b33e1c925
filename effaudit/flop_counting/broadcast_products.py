"""Products that torch runs as broadcast multiplications, outer and batched dot products: counted where called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from effaudit.flop_counting.mode import CountingMode
from effaudit.flop_counting.patching import patched


def _outer(product: Tensor, *_: Any, **__: Any) -> int:
    return 2 * _of_all_examples(product).numel()


def _vecdot(product: Tensor, *args: Any, **kwargs: Any) -> int:
    """Of single vectors torch runs `vdot`, which dispatch shows."""
    x: Tensor = args[0] if args else kwargs["x"]
    return 2 * _of_all_examples(product).numel() * x.shape[kwargs.get("dim", -1)] if product.dim() else 0


_PLACES: tuple[tuple[Any, str, str, Callable[..., int]], ...] = (
    (torch, "outer", "aten.outer", _outer),
    (torch, "ger", "aten.outer", _outer),
    (Tensor, "outer", "aten.outer", _outer),
    (Tensor, "ger", "aten.outer", _outer),
    (torch.linalg, "vecdot", "aten.linalg_vecdot", _vecdot),
)

_ORIGINALS = tuple((getattr(place, name), place, name) for place, name, *_ in _PLACES)


def as_called(function: Callable[..., Any]) -> Callable[..., Any]:
    """What counts in place of such a product that was looked up before the count began, else `function` itself."""
    for original, place, name in _ORIGINALS:
        if function is original:
            return getattr(place, name)
    return function


@contextmanager
def counted_broadcast_products(mode_here: Callable[[], CountingMode | None]) -> Iterator[None]:
    """They also count, in threads that have a mode, for as long as the context lasts."""
    with ExitStack() as stack:
        for place, name, op, flops in _PLACES:
            stack.enter_context(patched(place, name, _counting(getattr(place, name), op, flops, mode_here)))
        yield


def _counting(
    function: Callable[..., Tensor], op: str, flops: Callable[..., int], mode_here: Callable[[], CountingMode | None]
) -> Callable[..., Tensor]:
    def counted(*args: Any, **kwargs: Any) -> Tensor:
        product = function(*args, **kwargs)
        mode = mode_here()
        if mode is not None:
            mode.add(op, flops(product, *args, **kwargs))
        return product

    return counted


def _of_all_examples(product: Tensor) -> Tensor:
    """The tensor that `vmap` shows one example of at a time."""
    while torch._C._functorch.is_functorch_wrapped_tensor(product):
        product = torch._C._functorch.get_unwrapped(product)
    return product
