"""Where models and meters meet: batches go in, outputs and routings come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable
from weakref import WeakSet

import torch
from torch import Tensor, nn

from effaudit.errors import EffauditError

Task = Literal["classification", "causal_lm"]
Split = Literal["train", "calibration", "test"]
Execution = Literal["skip", "masked", "dense", "best"]

IGNORED_LABEL = -100  # as in torch.nn.functional.cross_entropy
MPS_HINT = "set PYTORCH_ENABLE_MPS_FALLBACK=1: it then runs on the CPU, and the record says `mps+cpu_fallback`"

_have_run: WeakSet[nn.Module] = WeakSet()


@dataclass(frozen=True)
class Batch:
    """Examples of one forward pass.

    `labels` is (B,) class indices for classification, (B, T) next tokens for causal_lm with
    IGNORED_LABEL where nothing is asked. `is_padded` says on the host whether `mask` has a False,
    so that no forward has to ask the device.
    """

    tokens: Tensor  # (B, T) int64
    mask: Tensor  # (B, T) bool, True on real tokens
    labels: Tensor
    index: Tensor  # (B,) int64, position of the example in its split
    is_padded: bool
    difficulty: Tensor | None = None  # (B,) float32

    @property
    def n_examples(self) -> int:
        return self.tokens.shape[0]

    def to(self, device: torch.device) -> Batch:
        moved = {
            name: value.to(device)
            for name in ("tokens", "mask", "labels", "index", "difficulty")
            if (value := getattr(self, name)) is not None
        }
        return replace(self, **moved)


@dataclass(frozen=True)
class Routing:
    """The decisions of one forward pass, on its device; None where the variant makes no such choice."""

    path: tuple[str, ...] = ()  # per layer, what ran: "full", "skip", "masked", "left"
    heads: Tensor | None = None  # (B, L, H) bool, head ran
    budget: Tensor | None = None  # (B, L) the continuous s
    head_gate: Tensor | None = None  # (B, L, H) factor on each head's output
    tokens: Tensor | None = None  # (B, T, L) bool, the hard rule keeps the token in the block
    gate: Tensor | None = None  # (B, T, L) the continuous 1 - p
    exits: Tensor | None = None  # (B,) or (B, T) layers run before leaving, 1-based


@dataclass(frozen=True)
class Output:
    """Logits (B, C) or (B, T, V), with the routing that made them."""

    logits: Tensor
    routing: Routing


@dataclass(frozen=True)
class AttentionFlops:
    """FLOPs of all layers of attention over a batch: scores and mix, and these with the projections."""

    core: int
    layer: int


@runtime_checkable
class HasDenseAttention(Protocol):
    """A model that has a closed formula of its attention with every head, layer and token on."""

    def dense_attention(self, batch: Batch) -> AttentionFlops: ...


@dataclass(frozen=True)
class Workload:
    """One model on one stream of batches: all that a meter sees.

    `batches()` starts the same stream anew, on `device`. `flops(batch, routing, execution)` is the
    variant's closed formula as (B,) int64 FLOPs per example, padding included wherever it is computed;
    `execution` names the one that `run` performs, "best" the cheapest that the decisions allow, "dense"
    every head, layer and token without routers or exit heads.
    """

    name: str
    model: nn.Module
    task: Task
    n_layers: int
    device: torch.device
    execution: Execution
    is_skipping_tokens: bool  # halted or exited tokens really leave computation in `execution`
    is_characters: bool  # tokens are characters, so that bits per character mean something
    batches: Callable[[], Iterator[Batch]]
    flops: Callable[[Batch, Routing, Execution], Tensor]

    @property
    def is_cold(self) -> bool:
        """Whether no workload of this model has run it yet."""
        return self.model not in _have_run

    def run(self, batch: Batch, routing: Routing | None = None) -> Output:
        """One forward pass under inference_mode; a routing given replaces the model's own decisions.

        Raises EffauditError for an operation that MPS lacks.
        """
        _have_run.add(self.model)
        try:
            with torch.inference_mode():
                output: Output = self.model(batch, routing)
        except NotImplementedError as error:
            if self.device.type != "mps":
                raise
            missing = str(error).partition(". ")[0] or "an operation is missing"
            raise EffauditError(f"`{self.name}` cannot run on mps: {missing}", MPS_HINT) from error
        return output
