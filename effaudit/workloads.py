"""From a profile's models and data to what meters see: streams of batches that are shared, and a workload a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import torch

from effaudit.assembly import Assembled
from effaudit.datasets._dataset import Dataset
from effaudit.errors import EffauditError
from effaudit.profile_spec import AuditProfile, validated
from effaudit.record import WorkloadInfo
from effaudit.workload import Batch, Split, Workload

CACHED_TOKENS = 4_000_000  # 8-byte tokens kept between passes; longer streams are read again for each pass


@dataclass(eq=False)  # meters tell streams apart by identity
class Stream:
    """The batches that all models of one dataset see, kept in memory up to CACHED_TOKENS."""

    open: Callable[[], Iterator[Batch]]
    device: torch.device
    _kept: list[Batch] = field(default_factory=list)
    _is_whole: bool = False

    def __call__(self) -> Iterator[Batch]:
        if self._is_whole:
            yield from self._kept
            return
        kept, n_tokens = [], 0
        for batch in self.open():
            n_tokens += batch.n_positions
            moved = batch.to(self.device)
            if n_tokens <= CACHED_TOKENS:
                kept.append(moved)
            else:
                kept.clear()
            yield moved
        if n_tokens <= CACHED_TOKENS:
            self._kept, self._is_whole = kept, True


@dataclass
class Bench:
    """The streams of an audit, one for each dataset, split and number of examples, and the models on them."""

    profile: AuditProfile
    device: torch.device
    scratch: Path
    _streams: dict[tuple[int, Split, int | None], Stream] = field(default_factory=dict)

    def stream(self, dataset: Dataset, split: Split | None = None, limit: int | None = None) -> Stream:
        """The profile's split, or another; at most `limit` examples, never more than the profile takes."""
        data = self.profile.data
        chosen = split or data.split
        most = min((n for n in (limit, data.limit) if n is not None), default=None)
        key = (id(dataset), chosen, most)
        if key not in self._streams:
            self._streams[key] = Stream(lambda: dataset.batches(chosen, data.batch_size, most), self.device)
        return self._streams[key]

    def work(self, model: Assembled, split: Split | None = None, limit: int | None = None) -> Workload:
        options = validated(model.variant.Options, model.config.options, f"options of `{model.spec.name}`")
        dataset, dtype = model.dataset, model.spec.run.dtype or self.profile.audit.dtype
        return Workload(
            name=model.spec.name,
            model=model.model.to(device=self.device, dtype=getattr(torch, dtype)),
            task=dataset.task,
            n_layers=model.config.n_layers,
            device=self.device,
            dtype=dtype,
            execution=options.execution,
            is_skipping_tokens=options.is_skipping_tokens,
            is_characters=dataset.is_characters,
            batches=self.stream(dataset, split, limit),
            flops=model.flops,
            scratch=self.scratch,
            pieces=dataset.pieces,
            is_quotable=dataset.is_quotable,
        )

    def describe(self, dataset: Dataset) -> WorkloadInfo:
        """What the audited split holds.

        Raises EffauditError when it is empty.
        """
        data = self.profile.data
        n_examples = n_tokens = n_padding = 0
        has_tokens = True
        for batch in self.stream(dataset)():
            n_examples += batch.n_examples
            has_tokens &= batch.has_tokens
            n_real = int(batch.mask.sum())
            n_tokens += n_real
            n_padding += batch.mask.numel() - n_real
        if n_examples == 0:
            raise EffauditError(f"the {data.split} split of `{data.dataset}` is empty", "give it examples")
        return WorkloadInfo(
            dataset=dataset.title or data.dataset,
            split=data.split,
            task=dataset.task,
            n_examples=n_examples,
            n_tokens=n_tokens if has_tokens else None,
            n_padding=n_padding if has_tokens else None,
            batch_size=dataset.own_batch_size or data.batch_size,
            sha256=dataset.sha256(data.split),
            class_names=dataset.class_names,
            tokenizer=dataset.own_tokenizer,
        )
