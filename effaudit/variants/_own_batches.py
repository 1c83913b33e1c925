"""Inputs that a model of the user's own brings along, as batches that meters understand."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from effaudit.datasets._dataset import Dataset
from effaudit.errors import EffauditError
from effaudit.variants._user_code import users_code
from effaudit.workload import IGNORED_LABEL, Batch, Inputs, Split

SURVEY_SIZE = 32  # where the module asks for a size: the hash does not depend on how it is audited
KINDS = "a tensor, a dict of keyword arguments, or a pair of one of these and labels"


class OwnBatches(Dataset):
    """What a module's `batches()` yields, the same for every split; its labels, where it brings some, are the task."""

    title = "own batches"

    def __init__(self, source: Callable[..., Iterable[object]], name: str) -> None:
        self._source, self._name = source, name
        self._takes_size = "batch_size" in inspect.signature(source).parameters
        digest, highest, n_label_axes = hashlib.sha256(), IGNORED_LABEL, 0
        first, largest = b"", 0
        for batch in self.batches("test", SURVEY_SIZE):
            n_label_axes, highest = batch.labels.dim(), max(highest, int(batch.labels.max()))
            content = _content(batch)
            digest.update(content)
            first, largest = first or content, max(largest, batch.n_examples)
        if not n_label_axes:
            raise EffauditError(f"`{name}`: its batches() yields nothing", f"yield {KINDS}")
        again = next(self.batches("test", SURVEY_SIZE), None)
        if again is None or _content(again) != first:
            what = "nothing when it is called again" if again is None else "other batches each time"
            hint = "let each call begin anew, with a seed of its own where it draws"
            raise EffauditError(f"`{name}`: its batches() yields {what}", hint)
        self.task = "causal_lm" if n_label_axes == 2 else "classification"
        self.n_classes = highest + 1 if highest >= 0 else None
        self.own_batch_size = None if self._takes_size else largest
        self.vocab_size, self._sha256 = 0, digest.hexdigest()

    def batches(self, split: Split, batch_size: int, limit: int | None = None) -> Iterator[Batch]:
        """The module's own order and, unless it asks for `batch_size`, its own size."""
        n = 0
        for item in self._items(batch_size):
            batch = _batch(item, n, self._name)
            if limit is not None and n + batch.n_examples > limit:
                batch = _first(batch, limit - n)
            n += batch.n_examples
            if batch.n_examples:
                yield batch
            if n == limit:
                return

    def _items(self, batch_size: int) -> Iterator[object]:
        what = f"`{self._name}`: its batches()"
        with users_code(what):
            found = self._source(**({"batch_size": batch_size} if self._takes_size else {}))
            if not isinstance(found, Iterable):
                raise EffauditError(f"{what} returns a {type(found).__name__}", f"return an iterable: yield {KINDS}")
            items = iter(found)
        while True:
            with users_code(what):
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

    def training_batches(self, batch_size: int, seed: int, first_step: int = 0) -> Iterator[Batch]:
        raise EffauditError("models of one's own are audited, not trained", "train it with its own code")

    def sha256(self, split: Split) -> str:
        return self._sha256


def _content(batch: Batch) -> bytes:
    """The hash of what a batch holds."""
    digest = hashlib.sha256()
    for tensor in (*(batch.inputs.tensors() if batch.inputs is not None else [batch.tokens]), batch.labels):
        digest.update(f"{tensor.dtype}{list(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.digest()


def _batch(item: object, first_index: int, name: str) -> Batch:
    """One batch of whatever the module yields.

    Raises EffauditError for what is none, and for examples that do not match their labels.
    """
    if isinstance(item, Batch):
        return replace(item, index=torch.arange(first_index, first_index + item.n_examples))
    given, labels = item if isinstance(item, tuple | list) and len(item) == 2 else (item, None)
    if isinstance(given, Mapping):
        kwargs = dict(given)
        labels = kwargs.pop("labels", labels)
        inputs = Inputs((), kwargs)
    elif isinstance(given, Tensor):
        inputs = Inputs((given,))
    else:
        raise EffauditError(f"`{name}`: its batches() yields a {type(item).__name__}", f"yield {KINDS}")
    tensors = inputs.tensors()
    if not tensors or tensors[0].dim() == 0 or (labels is not None and not isinstance(labels, Tensor)):
        raise EffauditError(f"`{name}`: its batches() yields no tensors", f"yield {KINDS}")
    n = tensors[0].shape[0]
    if labels is not None and (labels.dim() == 0 or labels.shape[0] != n):
        raise EffauditError(f"`{name}`: a batch has {n} examples and {list(labels.shape)} labels", f"yield {KINDS}")
    return _tokens(inputs, labels, n, first_index)


def _tokens(inputs: Inputs, labels: Tensor | None, n: int, first_index: int) -> Batch:
    """With `input_ids` among the inputs the examples are made of tokens, else each stands for itself."""
    index = torch.arange(first_index, first_index + n)
    if labels is not None:  # what is no class answers to no logits; maps of classes are rows of them
        labels = None if labels.is_floating_point() else labels.long().flatten(1) if labels.dim() > 1 else labels.long()
    ids = inputs.kwargs.get("input_ids")
    nothing = torch.full((n,), IGNORED_LABEL)
    if isinstance(ids, Tensor) and set(inputs.kwargs) <= {"input_ids", "attention_mask"}:
        given = inputs.kwargs.get("attention_mask")
        mask = torch.ones_like(ids, dtype=torch.bool) if given is None else given.bool()
        return Batch(ids, mask, nothing if labels is None else labels, index, is_padded=not bool(mask.all()))
    return Batch(
        tokens=torch.zeros(n, 1, dtype=torch.int64),
        mask=torch.ones(n, 1, dtype=torch.bool),
        labels=nothing if labels is None else labels,
        index=index,
        is_padded=False,
        inputs=inputs,
    )


def _first(batch: Batch, n: int) -> Batch:
    """The first `n` examples: every tensor that has one row an example is cut."""
    whole = batch.n_examples

    def cut(tensor: Tensor) -> Tensor:
        return tensor[:n] if tensor.dim() and tensor.shape[0] == whole else tensor

    parts: dict[str, Any] = {
        name: cut(value)
        for name in ("tokens", "mask", "labels", "index", "difficulty", "segments")
        if (value := getattr(batch, name)) is not None
    }
    return replace(batch, **parts, inputs=None if batch.inputs is None else batch.inputs.map(cut))
