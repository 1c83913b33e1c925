"""`tiny_shakespeare`: karpathy/char-rnn's `input.txt`, 1,115,394 characters of 65 symbols, 80/10/10.

The vocabulary is that of the whole file, so that V is the papers' 65; it keeps no unknown symbol.
"""

from __future__ import annotations

from tokenizers import Tokenizer

from effaudit.datasets._dataset import Dataset
from effaudit.datasets._folder import find_files
from effaudit.datasets._long_text import FileText
from effaudit.datasets._next_tokens import long_text
from effaudit.profile_spec import DataSpec, Spec, validated


class Options(Spec):
    """`tiny_shakespeare` has no options."""


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> Dataset:
    """The file `input.txt` in the folder `spec.path`.

    Raises EffauditError that says what is expected where.
    """
    validated(Options, spec.options, "data options of `tiny_shakespeare`")
    _, files = find_files(spec, [{"text": ["input.txt"]}])
    dataset = long_text(FileText(files["text"]), spec.max_tokens, tokenizer, has_unknown=False)
    dataset.is_quotable = dataset.is_characters
    return dataset
