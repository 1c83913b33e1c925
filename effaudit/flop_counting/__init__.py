"""FLOPs as they are executed: start at `counter`; `formulas` has what an op costs, `free_ops` what costs nothing."""

from effaudit.flop_counting.attention_share import AttentionCount, attention_of
from effaudit.flop_counting.counter import (
    CONVENTION,
    FlopCount,
    FlopCounter,
    count_flops,
    counted_pass,
)
from effaudit.flop_counting.element_work import ELEMENT_CONVENTION, GATHERED
from effaudit.flop_counting.module_tree import ElementCount, ModuleCount

__all__ = [
    "CONVENTION",
    "ELEMENT_CONVENTION",
    "GATHERED",
    "AttentionCount",
    "ElementCount",
    "FlopCount",
    "FlopCounter",
    "ModuleCount",
    "attention_of",
    "count_flops",
    "counted_pass",
]
