"""The process that one revision is timed in: it loads a profile, then runs the batches that it is told to.

It is run by its path, with the `effaudit` and the models of the revision that PYTHONPATH names, so it uses only
what revisions have in common: `run_audit`, the interface of a meter, `Workload.run`, `device.synchronize`.
Questions come as lines of JSON on stdin, answers go to stdout as such.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from torch import Tensor

    from effaudit.workload import Batch, Workload

SCHEDSTAT = Path("/proc/thread-self/schedstat")  # ns on a CPU, ns waiting for one, time slices
MAX_BATCHES = 8  # held a model
WARMUP_RUNS = 2  # of each batch, before anything is timed


@dataclass(frozen=True)
class Timed:
    """A model with the batches that it is timed on."""

    work: Workload
    batches: tuple[Batch, ...]
    threads: int

    def run(self, index: int) -> None:
        from effaudit import device

        self.work.run(self.batches[index])
        device.synchronize(self.work.device)


def main(target: str, folder: str) -> int:
    """Answers until stdin is closed."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # whatever a library prints is no answer
        models = load(target, Path(folder))
        for model in models:
            for index in range(len(model.batches)):
                for _ in range(WARMUP_RUNS):
                    model.run(index)
        gc.collect()
        gc.disable()
        _say(answers, [_described(model) for model in models])
        for line in sys.stdin:
            question = json.loads(line)
            _say(answers, turn(models[question["model"]], question["batch"], question["n"], question["cpu"]))
    return 0


def load(target: str, folder: Path) -> list[Timed]:
    """The models of a profile, in its order; the audit is run with a meter that hands them over."""
    from effaudit import plugins
    from effaudit.auditing import run_audit
    from effaudit.overrides import Overrides, apply
    from effaudit.profile_spec import load_profile
    from effaudit.record import Findings

    profile = apply(load_profile(target), Overrides())
    audit = profile.audit.model_copy(update={"meters": ("latency",)})
    found: dict[str, Timed] = {}

    def hand_over(works: Sequence[Workload], settings: Any) -> list[Findings]:
        for work in works:
            found[work.name] = Timed(work, spread(work.batches()), settings.threads)
        return [Findings(measurements=()) for _ in works]

    plugins.load("meters", "latency").measure = hand_over  # type: ignore[attr-defined]
    run_audit(profile.model_copy(update={"audit": audit}), folder, is_quiet=True)
    return [found[spec.name] for spec in profile.audited_models]


def spread(batches: Iterator[Batch]) -> tuple[Batch, ...]:
    """At most MAX_BATCHES of a stream, spread evenly over it."""
    held: list[Batch] = []
    stride = 1
    for i, batch in enumerate(batches):
        if i % stride == 0:
            held.append(batch)
        if len(held) > MAX_BATCHES:
            held, stride = held[::2], stride * 2
    return tuple(held)


def turn(model: Timed, batch: int, n: int, cpu: int | None) -> dict[str, list[float]]:
    """Seconds of `n` runs of a batch, and how long each waited for a CPU; a run before them warms the caches up.

    `cpu` is the one to run on, so that both revisions of a round run on the same.
    """
    import torch

    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    torch.set_num_threads(model.threads)
    model.run(batch)
    seconds, waited = [], []
    with waiting_clock() as wait_s:
        for _ in range(n):
            before, start = wait_s(), time.perf_counter()
            model.run(batch)
            seconds.append(time.perf_counter() - start)
            waited.append(wait_s() - before)
    return {"seconds": seconds, "waited": waited}


@contextmanager
def waiting_clock() -> Iterator[Callable[[], float]]:
    """Seconds that this thread was ready to run while others had the CPU; always 0 where the kernel does not tell."""
    try:
        file = SCHEDSTAT.open("rb", buffering=0)
    except OSError:
        yield lambda: 0.0
        return

    def read() -> float:
        file.seek(0)
        return int(file.read().split()[1]) * 1e-9

    with file:
        yield read


def _described(model: Timed) -> dict[str, Any]:
    start = time.perf_counter()
    model.run(0)
    seconds = time.perf_counter() - start
    is_cpu = model.work.device.type == "cpu"
    return {
        "name": model.work.name,
        "batches": [digest(batch) for batch in model.batches],
        "run_s": seconds,
        "is_one_thread": is_cpu and model.threads == 1,
    }


def digest(value: object) -> str:
    """A hash of every tensor in a batch, so that revisions can be seen to time the same work."""
    import torch

    sha = hashlib.sha256()
    for path, tensor in _tensors(value, ""):
        sha.update(f"{path} {tuple(tensor.shape)} {tensor.dtype}".encode())
        sha.update(tensor.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())
    return sha.hexdigest()[:16]


def _tensors(value: object, path: str) -> Iterator[tuple[str, Tensor]]:
    """With the way to each; fields that hold none are left out, as another revision may not have them."""
    import torch

    if isinstance(value, torch.Tensor):
        yield path, value
        return
    parts: Mapping[object, object] = {}
    if isinstance(value, Mapping):
        parts = value
    elif isinstance(value, list | tuple):
        parts = dict(enumerate(value))
    elif hasattr(value, "__dataclass_fields__"):
        parts = {name: getattr(value, name) for name in value.__dataclass_fields__}
    for key, part in parts.items():
        yield from _tensors(part, f"{path}.{key}")


def _say(answers: TextIO, what: object) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


if __name__ == "__main__":
    from effaudit.errors import EffauditError

    try:
        sys.exit(main(*sys.argv[1:]))
    except EffauditError as error:
        sys.exit(f"{error.message}; {error.hint}" if error.hint else error.message)
