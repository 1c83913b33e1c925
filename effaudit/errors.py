"""What a user can do wrong: one line that says it, one hint that mends it."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class EffauditError(Exception):
    """A user's mistake, shown as one line plus a hint and exit code 2; anything else is a bug."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def is_out_of_memory(error: BaseException) -> bool:
    """Python's own, torch's on a GPU and torch's on the CPU, told without importing torch."""
    texts = ("out of memory", "can't allocate memory", "not enough memory")
    is_torchs = isinstance(error, RuntimeError) and any(text in str(error) for text in texts)
    return isinstance(error, MemoryError) or is_torchs


def unknown_name(kind: str, given: str, known: Iterable[str]) -> EffauditError:
    """The error for a name that is not among `known`, with the nearest one as a hint."""
    names = sorted(known)
    close = get_close_matches(given, names, n=1, cutoff=0.5)
    listing = ", ".join(names)
    hint = f"did you mean `{close[0]}`? known: {listing}" if close else f"known: {listing}"
    return EffauditError(f"no `{given}` among the {kind}", hint)
