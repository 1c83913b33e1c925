"""What a saving in FLOPs is a share of: attention's core, attention with its projections, or the whole model.

One and the same cut reads as three figures, and papers differ in which they quote.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from effaudit.comparison import ratio_of
from effaudit.record import AuditRecord

Whole = Literal["attention core", "attention", "whole model"]

# What ran, and what would have run with every head, layer and token on, without routers and exit heads.
_FIGURES: tuple[tuple[Whole, str, str], ...] = (
    ("attention core", "flops.attention_core", "flops.dense_attention_core"),
    ("attention", "flops.attention_layer", "flops.dense_attention_layer"),
    ("whole model", "flops.executed", "flops.dense"),
)


@dataclass(frozen=True)
class Cut:
    """The change of FLOPs within one whole: -0.3 is 30 % less. None with the reason where it cannot be had."""

    of: Whole
    change: float | None
    reason: str


def cuts(record: AuditRecord) -> tuple[Cut, ...]:
    """By each denominator, the smallest first."""
    return tuple(_cut(record, of, executed, dense) for of, executed, dense in _FIGURES)


def _cut(record: AuditRecord, of: Whole, executed: str, dense: str) -> Cut:
    for name in (executed, dense):
        measurement = record.get(name)
        if measurement is None or measurement.value is None:
            return Cut(of, None, f"{name}: {measurement.method if measurement else 'not measured'}")
    ran, full = record.value(executed), record.value(dense)
    assert ran is not None
    assert full is not None
    ratio = ratio_of(full, ran)
    if ratio is None:
        return Cut(of, None, f"{dense} is zero")
    return Cut(of, ratio - 1, f"{executed} / {dense}")
