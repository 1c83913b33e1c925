"""What models of the user's own share: how a batch becomes a call, how an answer becomes logits."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from effaudit.datasets._dataset import Dataset
from effaudit.datasets._model_tokenizer import ModelTokenizer
from effaudit.errors import EffauditError
from effaudit.profile_spec import AuditProfile, ModelSpec, OwnConfig, Spec
from effaudit.record import Caution
from effaudit.variants._user_code import users_code
from effaudit.workload import Batch, Execution, Inputs, Output, Routing

NO_FORMULA = "the model offers no closed formula: a method `flops(batch, routing, execution)` would give it"


class OwnOptions(Spec):
    """`execution: masked` says that what `log_routing` reports as left out is computed all the same."""

    execution: Literal["skip", "masked"] = "skip"

    @property
    def is_skipping_tokens(self) -> bool:
        return self.execution == "skip"


class DataSource(Protocol):
    """The profile's data; under one tokenizer it is one and the same, so that models can share its batches."""

    def under(self, tokenizer: Tokenizer | ModelTokenizer | None, is_causal: bool = False) -> Dataset: ...


@dataclass(frozen=True)
class Opened:
    """A model of the user's own, ready to run, with what is known of it."""

    model: OwnModel
    config: OwnConfig
    dataset: Dataset
    cautions: tuple[Caution, ...] = ()


@dataclass(frozen=True)
class Order:
    """Which model is wanted, on what."""

    spec: ModelSpec
    profile: AuditProfile
    data: DataSource

    @property
    def dtype(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, self.spec.run.dtype or self.profile.audit.dtype)
        return found


class OwnModel(nn.Module):
    """Takes batches, gives outputs; decisions are those that the model logs."""

    inner_path = "model"  # of the user's module

    def __init__(
        self,
        name: str,
        model: nn.Module,
        n_classes: int | None,
        extra: Mapping[str, Any] | None = None,
        no_quality: str = "",
    ):
        """`extra` goes to every call that takes it; `no_quality` says why its answers are none to the task."""
        super().__init__()
        self.name, self.n_classes, self.no_quality = name, n_classes, no_quality
        self.model = model
        self._arguments = _arguments(model, extra or {})

    def forward(self, batch: Batch, routing: Routing | None = None) -> Output:
        """`routing` is refused: only the model itself could follow it."""
        if routing is not None:
            raise NotImplementedError(f"`{self.name}` decides by itself")
        inputs = self._arguments(batch)
        lacking = (NotImplementedError,) if batch.tokens.is_mps else ()  # an operation that MPS has not
        with users_code(f"`{self.name}`: its forward", lacking):
            answer = self.model(*inputs.args, **inputs.kwargs)
        if isinstance(answer, Output):
            return answer
        logits, why = _logits(answer, self.name)
        return Output(logits, Routing(), self.no_quality or why or _misfit(logits, batch, self.n_classes))

    def compile_inner(self) -> None:
        """Compiles the user's model; what is around it stays Python."""
        self.model = torch.compile(self.model)  # type: ignore[assignment]

    def flops(self, batch: Batch, routing: Routing, execution: Execution) -> Tensor:
        """The model's own closed formula.

        Raises NotImplementedError with the reason where it offers none.
        """
        formula = getattr(getattr(self.model, "_orig_mod", self.model), "flops", None)
        if not callable(formula):
            raise NotImplementedError(NO_FORMULA)
        with users_code(f"`{self.name}`: its flops()", (NotImplementedError,)):
            found = formula(batch, routing, execution)
        if not isinstance(found, Tensor) or found.shape != (batch.n_examples,):
            given = list(found.shape) if isinstance(found, Tensor) else f"a {type(found).__name__}"
            raise EffauditError(
                f"`{self.name}`: its flops() returns {given}, not FLOPs by example",
                f"return a tensor of shape {[batch.n_examples]}",
            )
        return found


def _arguments(model: nn.Module, extra: Mapping[str, Any]) -> Callable[[Batch], Inputs]:
    """How this model is called, told by the names of its forward's parameters."""
    parameters = inspect.signature(model.forward).parameters
    names = [name for name, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    known = {key: value for key, value in extra.items() if key in names}
    mask = next((name for name in ("attention_mask", "mask") if name in names), None)

    def given(batch: Batch) -> Inputs:
        assert batch.inputs is not None
        return batch.inputs.map(lambda t: t.to(_dtype_of(model)) if t.is_floating_point() else t)

    def tokens(batch: Batch) -> Inputs:
        if batch.inputs is not None:
            return given(batch)
        kwargs: dict[str, Any] = dict(known)
        if mask is not None:
            kwargs[mask] = batch.mask if mask == "mask" else batch.mask.long()
        if batch.segments is not None and "token_type_ids" in names:
            kwargs["token_type_ids"] = batch.segments
        if "input_ids" in names:
            return Inputs((), {"input_ids": batch.tokens, **kwargs})
        return Inputs((batch.tokens,), kwargs)

    def whole(batch: Batch) -> Inputs:
        return given(batch) if batch.inputs is not None else Inputs((batch,), known)

    return whole if names[:1] == ["batch"] else tokens


def _dtype_of(model: nn.Module) -> torch.dtype:
    """What floating inputs are to be: the model may have been moved to another type since it was made."""
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _logits(answer: Any, name: str) -> tuple[Tensor, str]:
    """The tensor that answers, and why it is none where it is but a hidden state.

    Raises EffauditError for an answer without a tensor.
    """
    if isinstance(answer, Tensor):
        return answer, ""
    parts = answer if isinstance(answer, Mapping) else vars(answer) if hasattr(answer, "__dict__") else {}
    if isinstance(parts.get("logits"), Tensor):
        return parts["logits"], ""
    if isinstance(parts.get("last_hidden_state"), Tensor):
        return parts["last_hidden_state"], "no head that answers: the model ends with hidden states"
    first = next(iter(answer), None) if isinstance(answer, list | tuple) else None
    if isinstance(first, Tensor):
        return first, ""
    raise EffauditError(
        f"`{name}` returns a {type(answer).__name__}, in which no logits are found",
        "return a tensor, a tuple that starts with one, or an object with `logits`",
    )


def _misfit(logits: Tensor, batch: Batch, n_classes: int | None) -> str:
    if logits.shape[:-1] != batch.labels.shape:
        return f"the output {list(logits.shape)} does not fit labels {list(batch.labels.shape)}: no head for this task"
    if n_classes is not None and logits.shape[-1] < n_classes:
        return f"the head has {logits.shape[-1]} classes, the data {n_classes}"
    return ""
