"""What goes to stdout, where results are, and what to stderr, where all else is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def note(text: str, is_quiet: bool = False) -> None:
    """A line beside the results."""
    if text and not is_quiet:
        print(text, file=sys.stderr, flush=True)


def say(text: str) -> None:
    """A result."""
    with closed_pipe_ignored():
        print(text, flush=True)


def say_json(text: str) -> None:
    """JSON, which is UTF-8 whatever the terminal's encoding."""
    with closed_pipe_ignored():
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode() + b"\n")
        sys.stdout.buffer.flush()


@contextmanager
def closed_pipe_ignored() -> Iterator[None]:
    """Lets a command go on to its exit code when nobody reads on (`| head`); rich makes a SystemExit of that."""
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
