"""The transformers library: imported when it is needed, and kept from talking."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from effaudit.errors import EffauditError


def transformers() -> ModuleType:
    try:
        import transformers as library
    except ImportError:
        raise EffauditError("`hf:` needs transformers, which is not installed", "pip install 'effaudit[hf]'") from None
    module: ModuleType = library
    return module


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps transformers' own bars and warnings away: what matters is said as a caution or an error."""
    library = logging.getLogger("transformers")
    level = library.level
    bars = transformers().utils.logging
    was_shown = bars.is_progress_bar_enabled()
    library.setLevel(logging.ERROR + 1)
    bars.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        library.setLevel(level)
        if was_shown:
            bars.enable_progress_bar()
