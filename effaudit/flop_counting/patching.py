"""Functions of other packages, replaced for a while and put back exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def patched(place: Any, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    """`place.name` is `replacement` inside; afterwards what it was, inherited or its own."""
    is_own, before = name in vars(place), getattr(place, name)
    setattr(place, name, replacement)
    try:
        yield
    finally:
        if is_own:
            setattr(place, name, before)
        else:
            delattr(place, name)
