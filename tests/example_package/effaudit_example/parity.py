"""`parity`: whether a text of ones and zeros has an even number of ones."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tokenizers import Tokenizer

from effaudit.datasets._dataset import TextExample
from effaudit.datasets._text import TextClassification
from effaudit.profile_spec import Count, DataSpec, Spec, validated
from effaudit.workload import Split


class Options(Spec):
    """Options of `parity`."""

    n_examples: Count = 16
    length: Count = 6


def open_dataset(spec: DataSpec, tokenizer: Tokenizer | None = None) -> TextClassification:
    options = validated(Options, spec.options, "data options of `parity`")

    def examples(split: Split) -> Iterator[TextExample]:
        for i in range(options.n_examples):
            bits = [Random(f"{split}-{i}-{place}").choice("01") for place in range(options.length)]
            yield TextExample(" ".join(bits), bits.count("1") % 2)

    return TextClassification(examples, ("even", "odd"), spec.max_tokens, spec.vocab_size, tokenizer)
