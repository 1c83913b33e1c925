"""A model's own tokenizer: its special tokens, its vocabulary, its way to cut and to tell the texts of a pair apart."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Encoding, Tokenizer

TextOrPair = str | tuple[str, str]


@dataclass(frozen=True)
class ModelTokenizer:
    """`backend` adds the model's special tokens; `padding` fills shorter texts, behind a mask that hides it."""

    backend: Tokenizer
    padding: int
    unknown: int | None = None  # None where every text can be spelled
    has_segments: bool = False  # the model asks which text of a pair a token is from

    @classmethod
    def of(
        cls, tokenizer: Tokenizer, padding: int, unknown: int | None = None, has_segments: bool = False
    ) -> ModelTokenizer:
        """A copy that neither cuts nor pads by itself, whatever its file says."""
        backend = Tokenizer.from_str(tokenizer.to_str())
        backend.no_truncation()
        backend.no_padding()
        return cls(backend, padding, unknown, has_segments)

    @property
    def vocab_size(self) -> int:
        n: int = self.backend.get_vocab_size()
        return n

    @property
    def identity(self) -> str:
        """Equal where the ids of every text are equal."""
        return hashlib.sha256(f"{self.backend.to_str()} {self.padding}".encode()).hexdigest()[:12]

    def encode(self, texts: Sequence[TextOrPair], max_tokens: int | None) -> list[Encoding]:
        """With special tokens, the longest text cut first; without `max_tokens` the text alone, whole."""
        if max_tokens is None:
            return list(self.backend.encode_batch(list(texts), add_special_tokens=False))
        cutting = Tokenizer.from_str(self.backend.to_str())
        cutting.enable_truncation(max_tokens)
        return list(cutting.encode_batch(list(texts)))
