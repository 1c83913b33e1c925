"""How a Hugging Face checkpoint that was looked through becomes a model in memory, if there is room for it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
from torch import nn

from effaudit import units
from effaudit.errors import EffauditError, is_out_of_memory
from effaudit.record import Caution
from effaudit.variants._hf_library import quiet, transformers
from effaudit.variants._own import Order
from effaudit.variants._user_code import told

Head = Literal["encoder", "classification", "masked_lm", "causal_lm"]
CLASSES: dict[Head, str] = {
    "encoder": "AutoModel",
    "classification": "AutoModelForSequenceClassification",
    "masked_lm": "AutoModelForMaskedLM",
    "causal_lm": "AutoModelForCausalLM",
}
MOST_BUILT = 250  # layers: no known model has more, and even empty ones take milliseconds each
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
    cautions: tuple[Caution, ...] = ()  # of the folder itself

    @property
    def auto_class(self) -> Any:
        return getattr(transformers(), CLASSES[self.head])


def refuse_too_large(checkpoint: Checkpoint, dtype: torch.dtype, device: torch.device) -> None:
    """From the config alone, before anything is read: an out-of-memory kill would take the whole audit with it."""
    n_bytes = int(_n_parameters(checkpoint) * dtype.itemsize * ROOM)
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


def _n_parameters(checkpoint: Checkpoint) -> int:
    """Of the model without memory for its tensors; of very many layers each as the second."""
    n_layers = getattr(checkpoint.config, "num_hidden_layers", None) or 0
    if n_layers <= MOST_BUILT:
        return _of_skeleton(checkpoint, checkpoint.config)
    counts = []
    for n in (1, 2):
        config = deepcopy(checkpoint.config)
        config.num_hidden_layers = n
        counts.append(_of_skeleton(checkpoint, config))
    return int(counts[0] + (n_layers - 1) * (counts[1] - counts[0]))


def _of_skeleton(checkpoint: Checkpoint, config: Any) -> int:
    with torch.device("meta"), quiet(), _refusals(checkpoint.name):
        skeleton = checkpoint.auto_class.from_config(config, trust_remote_code=False)
    return sum(p.numel() for p in skeleton.parameters())


def built(checkpoint: Checkpoint, order: Order) -> tuple[nn.Module, tuple[Caution, ...]]:
    """The model, random where it must be under the profile's seed."""
    how: dict[str, Any] = {"dtype": order.dtype, "trust_remote_code": False}
    if checkpoint.attention is not None:
        how["attn_implementation"] = checkpoint.attention
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(order.profile.seed)
        try:
            with _refusals(checkpoint.name):
                if not checkpoint.files:
                    return checkpoint.auto_class.from_config(checkpoint.config, **how), (_random(),)
                model, info = checkpoint.auto_class.from_pretrained(
                    checkpoint.folder,
                    config=checkpoint.config,
                    local_files_only=True,
                    use_safetensors=True,
                    ignore_mismatched_sizes=True,  # whether that may be is judged below, with the names
                    output_loading_info=True,
                    **how,
                )
        finally:
            gc.collect()
    mismatched = sorted(info["mismatched_keys"])
    if mismatched and not checkpoint.may_resize:
        key, stored, wanted = mismatched[0]
        raise EffauditError(
            f"`{checkpoint.name}`: `{key}` is {list(stored)} in the weights, {list(wanted)} by the config",
            "they are not of one model: copy the folder again",
        )
    fresh = [*info["missing_keys"], *(key for key, *_ in mismatched)]
    if len(fresh) >= sum(1 for _ in model.named_parameters()) > 0:
        raise EffauditError(
            f"`{checkpoint.name}`: none of its {len(fresh)} tensors is in the weights",
            "they are of another model; `?no_weights=true` audits random ones",
        )
    return model, _fresh(fresh)


@contextmanager
def _refusals(name: str) -> Iterator[None]:
    """Whatever transformers stumbles over when it builds a model, as a line.

    Raises EffauditError; a lack of memory stays one.
    """
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise
        hint = "check its config.json, `?head=…` and `?attention=…`"
        raise EffauditError(f"`{name}`: transformers refuses it: {told(error)}", hint) from error


def _random() -> Caution:
    return Caution(
        code="untrained",
        text="random weights (no_weights): quality and routing mean nothing",
        hint="FLOPs, time, memory and energy are those of trained weights of this size",
    )


def _fresh(keys: list[str]) -> tuple[Caution, ...]:
    if not keys:
        return ()
    shown = ", ".join(sorted(keys)[:3]) + (", …" if len(keys) > 3 else "")
    text = f"{len(keys)} tensors are not in the weights and random: {shown}"
    return (Caution(code="fresh_weights", text=text, hint="its quality means something only once they are trained"),)
