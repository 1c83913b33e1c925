"""`chars:<path>`: the characters of any UTF-8 text file, 80/10/10; symbols absent from training become one unknown."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Tokenizer

from effaudit.datasets._dataset import Dataset
from effaudit.datasets._long_text import FileText
from effaudit.datasets._next_tokens import long_text
from effaudit.errors import EffauditError
from effaudit.profile_spec import DataSpec, Spec, validated


class Options(Spec):
    """`chars` has no options."""


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> Dataset:
    """The text file named after the colon.

    Raises EffauditError when it is missing, not UTF-8, or too short.
    """
    validated(Options, spec.options, "data options of `chars`")
    path = spec.dataset.partition(":")[2]
    if not path:
        raise EffauditError("`chars` needs a text file", "write `chars:<path>`")
    return long_text(FileText(Path(path).expanduser()), spec.max_tokens, tokenizer)
