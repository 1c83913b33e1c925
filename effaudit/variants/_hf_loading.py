"""How a Hugging Face checkpoint that was looked through becomes a model in memory, if there is room for it."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from torch import nn

from effaudit import units
from effaudit.errors import EffauditError
from effaudit.record import Caution
from effaudit.variants._hf_library import quiet, transformers
from effaudit.variants._own import Order

Head = Literal["encoder", "classification", "masked_lm", "causal_lm"]
CLASSES: dict[Head, str] = {
    "encoder": "AutoModel",
    "classification": "AutoModelForSequenceClassification",
    "masked_lm": "AutoModelForMaskedLM",
    "causal_lm": "AutoModelForCausalLM",
}
ROOM = 1.1  # of the weights' own size: what loading holds beside them for a moment


@dataclass(frozen=True)
class Checkpoint:
    """A folder that was looked through, before anything large is read."""

    folder: Path
    name: str
    config: Any  # transformers' own
    head: Head
    files: tuple[Path, ...]  # of weights; none where they are to be random
    attention: str | None = None
    may_resize: bool = False  # a head of another size than that of the weights was asked for

    @property
    def auto_class(self) -> Any:
        return getattr(transformers(), CLASSES[self.head])


def refuse_too_large(checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> None:
    """From the config alone, before anything is read: an out-of-memory kill would take the whole audit with it."""
    with torch.device("meta"), quiet():
        skeleton = checkpoint.auto_class.from_config(checkpoint.config, trust_remote_code=False)
    n_bytes = int(sum(p.numel() for p in skeleton.parameters()) * dtype.itemsize * ROOM)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else psutil.virtual_memory().available
    if n_bytes <= free:
        return
    size, left = units.quantity(n_bytes, "B"), units.quantity(free, "B")
    hint = "a smaller model, or a machine with more memory"
    if dtype.itemsize > 2:
        hint = f"`?dtype=bfloat16` takes {dtype.itemsize // 2} times less; else {hint}"
    raise EffauditError(
        f"`{checkpoint.name}` needs {size} for its weights alone, {left} are free on {device.type}", hint
    )


def built(checkpoint: Checkpoint, order: Order) -> tuple[nn.Module, tuple[Caution, ...]]:
    """The model, random where it must be under the profile's seed."""
    how: dict[str, Any] = {"dtype": order.dtype, "trust_remote_code": False}
    if checkpoint.attention is not None:
        how["attn_implementation"] = checkpoint.attention
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(order.profile.seed)
        try:
            if not checkpoint.files:
                return checkpoint.auto_class.from_config(checkpoint.config, **how), (_random(),)
            model, info = checkpoint.auto_class.from_pretrained(
                checkpoint.folder,
                config=checkpoint.config,
                local_files_only=True,
                use_safetensors=True,
                ignore_mismatched_sizes=checkpoint.may_resize,
                output_loading_info=True,
                **how,
            )
        except (ValueError, ImportError, RuntimeError, OSError) as error:
            reason = " ".join(str(error).split())[:300]
            raise EffauditError(
                f"`{checkpoint.name}`: transformers refuses it: {reason}", "see `?attention=…`, `?head=…`"
            ) from error
        finally:
            gc.collect()
    return model, _fresh(checkpoint, [*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])])


def _random() -> Caution:
    return Caution(
        code="untrained",
        text="random weights (no_weights): quality and routing mean nothing",
        hint="FLOPs, time, memory and energy are those of trained weights of this size",
    )


def _fresh(checkpoint: Checkpoint, keys: list[str]) -> tuple[Caution, ...]:
    if not keys:
        return ()
    shown = ", ".join(sorted(keys)[:3]) + (", …" if len(keys) > 3 else "")
    text = f"{len(keys)} tensors are not in the weights and random: {shown}"
    return (Caution(code="fresh_weights", text=text, hint="its quality means something only once they are trained"),)
