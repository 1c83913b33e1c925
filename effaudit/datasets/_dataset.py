"""What every dataset offers to training and to audits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from effaudit.record import Caution
from effaudit.workload import Batch, Split, Task


@dataclass(frozen=True)
class TextExample:
    """One labelled text before tokenisation."""

    text: str
    label: int
    text_pair: str | None = None
    difficulty: float | None = None


class Dataset(ABC):
    """Examples in fixed splits, as ids. Opened by a dataset module's `open_dataset(spec, tokenizer=None)`.

    Without a tokenizer the module fits one on the training split (or has fixed ids); with one, it
    uses that, so that ids match trained weights.
    """

    title: str | None = None  # where the profile's words do not name it
    own_batch_size: int | None = None  # of its largest batch, where the profile does not decide it
    task: Task
    vocab_size: int
    n_classes: int | None = None  # None for causal_lm
    class_names: tuple[str, ...] = ()
    is_characters: bool = False
    is_quotable: bool = False  # stretches of the text may stand in records and reports: it is public, nobody's own
    tokenizer: Tokenizer | None = None  # None where ids are fixed by the dataset
    own_tokenizer: str | None = None  # identifies the tokenizer of a model of the user's own

    @abstractmethod
    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> Iterator[Batch]:
        """The split once, in a fixed order, on the CPU; examples of like length share a batch.

        Raises EffauditError when the split is empty or a row cannot be used.
        """

    @abstractmethod
    def training_batches(self, batch_size: int, seed: int, first_step: int = 0) -> Iterator[Batch]:
        """Endless shuffled batches of the training split; the same for the same seed, wherever it starts."""

    def pieces(self, ids: Sequence[int]) -> tuple[str, ...]:
        """The text of each token; empty for an id that the tokenizer does not know."""
        if self.tokenizer is None:
            return ("",) * len(ids)
        return tuple(self.tokenizer.id_to_token(number) or "" for number in ids)

    @abstractmethod
    def sha256(self, split: Split) -> str:
        """The hash of the split's content (text and labels), whatever the tokenizer."""

    def cautions(self) -> tuple[Caution, ...]:
        """What was noticed so far: truncated texts, unknown symbols, unbalanced or single-class data."""
        return ()
