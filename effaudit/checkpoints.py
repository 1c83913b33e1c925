"""The file that an interrupted training goes on from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

from effaudit.errors import EffauditError


@dataclass
class Run:
    """The state of one training, all that a checkpoint keeps."""

    step: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    evaluations: list[tuple[int, float, float]] = field(default_factory=list)
    best: dict[str, Tensor] | None = None
    best_step: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True)
class Checkpoint:
    """The file that an interrupted training goes on from; `identity` tells all that the result depends on."""

    path: Path
    identity: str

    def save(self, model: nn.Module, optimizer: torch.optim.Optimizer, run: Run) -> None:
        state = {
            "identity": self.identity,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "rng": torch.get_rng_state(),
            "device_rng": own.get_rng_state() if (own := _accelerator(model)) else None,
            "run": vars(run),
        }
        temporary = self.path.with_suffix(".part")
        try:
            torch.save(state, temporary)
            os.replace(temporary, self.path)
        except (OSError, RuntimeError) as error:
            temporary.unlink(missing_ok=True)
            raise EffauditError(f"cannot write checkpoint `{self.path}`: {error}", "free some space") from error

    def load(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Run:
        """The state to go on from; a checkpoint of another identity is ignored.

        Raises EffauditError when the file is damaged.
        """
        if not self.path.is_file():
            return Run()
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:  # whatever the unpickler stumbles over
            hint = "delete it, and the training starts anew"
            raise EffauditError(f"checkpoint `{self.path}` is damaged", hint) from error
        if state["identity"] != self.identity:
            return Run()
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        if (own := _accelerator(model)) and state.get("device_rng") is not None:
            own.set_rng_state(state["device_rng"])
        return Run(**state["run"])


def _accelerator(model: nn.Module) -> ModuleType | None:
    """`torch.cuda` or `torch.mps`, whose random numbers are its own; None on the CPU."""
    kind = next(model.parameters()).device.type
    return None if kind == "cpu" else getattr(torch, kind)
