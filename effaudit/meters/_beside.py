"""Something done again and again beside the work, in a thread that ends with the work, also when the work fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(act: Callable[[], object], period_s: float) -> Iterator[None]:
    """Calls `act` each `period_s` until the block ends; what `act` raises ends the calls, not the block."""
    done = threading.Event()

    def keep_on() -> None:
        while not done.wait(period_s):
            try:
                act()
            except Exception:
                return  # the block reads the same thing itself and meets the same error

    thread = threading.Thread(target=keep_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def highest(read: Callable[[], int], period_s: float) -> Iterator[Callable[[], int]]:
    """Reads all the while; yields what gives the highest reading."""
    found = [read()]

    def look() -> None:
        found[0] = max(found[0], read())

    with repeated(look, period_s):
        yield lambda: max(found[0], read())
