"""Where models and meters meet: batches go in, outputs and routings come out."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from effaudit import route_logging
from effaudit.errors import EffauditError

Task = Literal["classification", "causal_lm"]
Split = Literal["train", "calibration", "test"]
Execution = Literal["skip", "masked", "auto", "dense", "best"]

IGNORED_LABEL = -100  # as in torch.nn.functional.cross_entropy
MPS_HINT = "set PYTORCH_ENABLE_MPS_FALLBACK=1: it then runs on the CPU, and the record says `mps+cpu_fallback`"

_have_run: WeakSet[nn.Module] = WeakSet()


@dataclass(frozen=True)
class Inputs:
    """What a model is called with where its input is no tokens: images, sound, or whatever its factory brings."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in tree_leaves((self.args, dict(self.kwargs))) if isinstance(leaf, Tensor)]

    def map(self, change: Callable[[Tensor], Tensor]) -> Inputs:
        """The same with every tensor changed."""

        def changed(leaf: Any) -> Any:
            return change(leaf) if isinstance(leaf, Tensor) else leaf

        return Inputs(tree_map(changed, self.args), tree_map(changed, dict(self.kwargs)))


@dataclass(frozen=True)
class Batch:
    """Examples of one forward pass.

    `labels` is (B,) class indices for classification, (B, T) next tokens for causal_lm with
    IGNORED_LABEL where nothing is asked. `is_padded` says on the host whether `mask` has a False,
    so that no forward has to ask the device. With `inputs`, `tokens` and `mask` are (B, 1) and stand
    for the examples themselves.
    """

    tokens: Tensor  # (B, T) int64
    mask: Tensor  # (B, T) bool, True on real tokens
    labels: Tensor
    index: Tensor  # (B,) int64, position of the example in its split
    is_padded: bool
    difficulty: Tensor | None = None  # (B,) float32
    segments: Tensor | None = None  # (B, T) int64, which text of a pair a token is from, for models that ask
    inputs: Inputs | None = None

    @property
    def n_examples(self) -> int:
        return self.tokens.shape[0]

    @property
    def has_tokens(self) -> bool:
        return self.inputs is None

    @property
    def padding_mask(self) -> Tensor | None:
        """`mask`, or None where nothing is padded."""
        return self.mask if self.is_padded else None

    @property
    def shape(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the input: batches of one shape run the same kernels."""
        tensors = (self.tokens,) if self.inputs is None else self.inputs.tensors()
        return tuple(tuple(tensor.shape) for tensor in tensors)

    @property
    def n_positions(self) -> int:
        """B x T, padding included, or the elements of other inputs: what a batch costs before anything is skipped."""
        return self.tokens.numel() if self.inputs is None else sum(t.numel() for t in self.inputs.tensors())

    def to(self, device: torch.device) -> Batch:
        moved: dict[str, Any] = {
            name: value.to(device)
            for name in ("tokens", "mask", "labels", "index", "difficulty", "segments")
            if (value := getattr(self, name)) is not None
        }
        if self.inputs is not None:
            moved["inputs"] = self.inputs.map(lambda tensor: tensor.to(device))
        return replace(self, **moved)


def real_positions(batch: Batch, n_positions: int) -> Tensor:
    """(B, T) bool: the batch's own mask where positions are its tokens, else all."""
    if batch.mask.shape[1] == n_positions:
        return batch.mask
    return torch.ones(batch.n_examples, n_positions, dtype=torch.bool, device=batch.mask.device)


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
    masked: Tensor | None = None  # (B, L) bool, under `auto`: the layer computed everything, as skipping did not pay
    gated: tuple[int, ...] | None = None  # layers, from 0, that decide about tokens; None is all but the first


@dataclass(frozen=True)
class Output:
    """Logits (B, C) or (B, T, V), with the routing that made them.

    `no_quality` says why the logits answer nothing that the batch asks, where they do not.
    """

    logits: Tensor
    routing: Routing
    no_quality: str = ""


@dataclass(frozen=True)
class AttentionFlops:
    """FLOPs of all layers of attention over a batch: scores and mix, and these with the projections."""

    core: int
    layer: int


@runtime_checkable
class HasDenseAttention(Protocol):
    """A model that has a closed formula of its attention with every head, layer and token on."""

    def dense_attention(self, batch: Batch) -> AttentionFlops: ...


@runtime_checkable
class HasInner(Protocol):
    """A model that is but a shell around the user's: module paths are told from `inner_path` on."""

    inner_path: str


@dataclass(frozen=True)
class Workload:
    """One model on one stream of batches: all that a meter sees.

    `batches()` starts the same stream anew, on `device`. `flops(batch, routing, execution)` is the
    variant's closed formula as (B,) int64 FLOPs per example, padding included wherever it is computed;
    `execution` names the one that `run` performs ("auto": by `routing.masked`, layer by layer), "best" the
    cheapest that the decisions allow, "dense" every head, layer and token without routers or exit heads.
    """

    name: str
    model: nn.Module
    task: Task
    n_layers: int  # 0 where nobody said, then those that are logged count
    device: torch.device
    execution: Execution
    is_skipping_tokens: bool  # halted or exited tokens really leave computation in `execution`
    is_characters: bool  # tokens are characters, so that bits per character mean something
    batches: Callable[[], Iterator[Batch]]
    flops: Callable[[Batch, Routing, Execution], Tensor]
    scratch: Path | None = None  # where meters spill what does not fit in memory; None is the system's own folder
    dtype: str = "float32"
    pieces: Callable[[Sequence[int]], tuple[str, ...]] | None = None  # the texts of tokens
    is_quotable: bool = False  # whether they may stand in records

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

    def routed(self, batch: Batch) -> Output:
        """`run` with the decisions that the model only logs; not for passes that are timed."""
        with route_logging.listening() as log, _uncompiled():
            output = self.run(batch)
        if not log.routes:
            return output
        from effaudit.logged_routes import routing_of  # which builds on this module

        with torch.inference_mode():
            return replace(output, routing=routing_of(log, batch, self.n_layers))


@contextmanager
def _uncompiled() -> Iterator[None]:
    """Compiled code was made while nobody listened, so it logs nothing: run the Python code."""
    if "torch._dynamo" not in sys.modules:  # importing the compiler takes seconds
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
