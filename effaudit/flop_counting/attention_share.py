"""How much of a count is attention: its core (scores and mix), and its layers with their projections."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from effaudit.flop_counting.mode import CORE
from effaudit.flop_counting.module_tree import ModuleCount

# Names that models give to a layer of attention: attn, self_attn, attention, SelfAttention, mha; in brackets where
# its caller holds it without registering it. Norms and dropouts named after attention end otherwise.
_LAYER_NAME = re.compile(r".*(attn|attention|mha)(#\d+)?\)?", re.IGNORECASE)

# Inside a layer of attention, batched products are scores and mix: projections meet one matrix for all examples.
_BATCHED = frozenset({"aten.bmm", "aten.baddbmm", "aten.matmul"})


@dataclass(frozen=True)
class AttentionCount:
    """FLOPs of all layers of attention together; None with the reason where they cannot be told from the rest."""

    core: int | None
    layer: int | None
    reason: str = ""


def attention_of(by_module: Mapping[str, ModuleCount]) -> AttentionCount:
    """The attention in a count, told by the names of module paths and of ops."""
    layers = {path: row for path, row in by_module.items() if _is_in_layer(path)}
    if not layers:
        return AttentionCount(None, None, "no module is named as attention (attn, attention, mha)")
    for path, row in by_module.items():
        if path not in layers and any(map(_is_attention, row.own_by_op)):
            return AttentionCount(None, None, f"attention runs outside modules named so, in `{path}`")
    core = sum(
        flops for row in layers.values() for op, flops in row.own_by_op.items() if _is_attention(op) or op in _BATCHED
    )
    return AttentionCount(core, sum(row.own for row in layers.values()))


def _is_in_layer(path: str) -> bool:
    return any(map(_LAYER_NAME.fullmatch, path.split(".")))


def _is_attention(op: str) -> bool:
    """Whether all FLOPs of the op are scores and mix; fused layers list those apart from their projections."""
    return op.endswith(CORE) or ("attention" in op and not op.endswith("multi_head_attention"))
