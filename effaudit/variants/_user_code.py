"""What a user's own code raises, said as the user's mistake: one line with the place."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from effaudit.errors import EffauditError, is_out_of_memory

HERE, TORCH = str(Path(__file__).parents[1]), str(Path(torch.__file__).parent)
MOST_TOLD = 300  # characters: some libraries write pages


@contextmanager
def users_code(what: str, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Around a call of code that is not this package's.

    Raises EffauditError for whatever it raises, sys.exit included. What is `passing`, a lack of memory and errors of
    this package's own lines stay as they are.
    """
    try:
        yield
    except passing:
        raise
    except EffauditError:
        raise
    except (Exception, SystemExit) as error:
        files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        if is_out_of_memory(error) or (len(files) > 1 and files[-1].startswith(HERE)):
            raise
        raise EffauditError(f"{what} raised {told(error)}{_place(error)}", "call it by itself to see why") from error


def told(error: BaseException) -> str:
    """An error's kind and text on one line."""
    text = " ".join(str(error).split())[:MOST_TOLD]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _place(error: BaseException) -> str:
    """The innermost line that is neither torch's nor this package's; empty where there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((HERE, TORCH, "<")):
            return f" ({Path(frame.filename).name}, line {frame.lineno})"
    return ""
