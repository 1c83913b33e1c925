"""`enwik8`: the first 100 MB of English Wikipedia's XML of 2006, or an excerpt, as characters, 90/5/5.

The vocabulary is that of the whole file (6,064 symbols when complete) and keeps no unknown symbol. An excerpt
may end inside a character; its results do not compare with published ones.
"""

from __future__ import annotations

from tokenizers import Tokenizer

from effaudit.datasets._dataset import Dataset
from effaudit.datasets._folder import find_files
from effaudit.datasets._long_text import FileText
from effaudit.datasets._next_tokens import long_text
from effaudit.profile_spec import DataSpec, Spec, validated

FRACTIONS = (0.9, 0.05, 0.05)


class Options(Spec):
    """`enwik8` has no options."""


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> Dataset:
    """The file `enwik8`, or one whose name starts so, in the folder `spec.path`.

    Raises EffauditError that says what is expected where.
    """
    validated(Options, spec.options, "data options of `enwik8`")
    _, files = find_files(spec, [{"text": ["enwik8", "enwik8.*"]}])
    text = FileText(files["text"], may_be_cut=True)
    return long_text(text, spec.max_tokens, tokenizer, fractions=FRACTIONS, has_unknown=False)
