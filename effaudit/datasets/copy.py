"""`copy`: repeat the source; a synthetic task with known answers (TSA paper)."""

from __future__ import annotations

import numpy as np
from tokenizers import Tokenizer

from effaudit.datasets._sequences import Options, SequenceTask
from effaudit.profile_spec import DataSpec

__all__ = ["Options", "open_dataset"]


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> SequenceTask:
    """Sequences fixed by the options; a tokenizer plays no part.

    Raises EffauditError when a sequence does not fit max_tokens.
    """
    return SequenceTask(spec, np.copy)
