"""`prose`: the English documentation text that Python itself ships, 80/10/10 by character.

It is `pydoc_data.topics`, joined in order of topic: no download and no copy. Python versions differ in it,
so results compare only where the data hash in the record is the same.
"""

from __future__ import annotations

from tokenizers import Tokenizer

from effaudit.datasets._dataset import Dataset
from effaudit.datasets._long_text import MemoryText
from effaudit.datasets._next_tokens import long_text
from effaudit.errors import EffauditError
from effaudit.profile_spec import DataSpec, Spec, validated


class Options(Spec):
    """`prose` has no options."""


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> Dataset:
    """Python's documentation topics as one text.

    Raises EffauditError where this Python was packaged without them.
    """
    validated(Options, spec.options, "data options of `prose`")
    try:
        from pydoc_data.topics import topics
    except ImportError:
        raise EffauditError("this Python ships no `pydoc_data.topics`", "use `chars:<path>` with a text file") from None
    text = "\n\n".join(topics[name] for name in sorted(topics))
    dataset = long_text(MemoryText("prose", text), spec.max_tokens, tokenizer)
    dataset.is_quotable = dataset.is_characters
    return dataset
