"""A modelled power draw where no counter can be read: codecarbon's tables, without its tracker.

The tracker would take a lock file, threads, sudo and the network; its tables of processors and its RAM
model need none of them. As codecarbon's process mode does it, CPU power is TDP x the share of all CPU
time that this process and its children take, RAM a constant. Looking up the tables once takes seconds,
before anything is measured.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module, metadata

import psutil

from effaudit import device
from effaudit.meters import _load
from effaudit.meters._sources import Part, Sources
from effaudit.record import Caution

ASSUMED_W_PER_CPU = 4  # codecarbon's DEFAULT_POWER_PER_CORE, for processors that its table lacks
NAMELESS = (None, "", "Unknown")  # what codecarbon calls a processor to which the system gives no name
LIKELY_W_PER_CPU = (1, 8)  # TDP by logical CPU, from many small cores (Ampere Altra: 2) to few fast ones (i9: 8)

NO_RAM = Caution(
    code="no_ram_model",
    text="codecarbon has no power for the RAM of this machine: energy.gross is that of the processor alone",
    hint="compare it only with figures of the same domains",
)


@dataclass(frozen=True)
class Processor:
    """J of the CPU: TDP x CPU time of this process and its children / number of CPUs."""

    tdp_w: float
    n_cpus: int
    method: str
    cpu_time: Callable[[], float] = _load.own_cpu_s
    domain: str = "cpu"
    part: Part = "cpu"
    is_modelled: bool = True
    tick_s: float = 0.0

    def read(self) -> float:
        return self.tdp_w * self.cpu_time() / self.n_cpus


@dataclass(frozen=True)
class Ram:
    """J of the memory: a constant power, whatever runs."""

    power_w: float
    method: str
    clock: Callable[[], float] = time.perf_counter
    domain: str = "ram"
    part: Part = "ram"
    is_modelled: bool = True
    tick_s: float = 0.0

    def read(self) -> float:
        return self.power_w * self.clock()


def find_model(clock: Callable[[], float] = time.perf_counter) -> Sources:
    """CPU and RAM as codecarbon models them."""
    try:
        with _silence():
            tdp = import_module("codecarbon.core.cpu").TDP()
            ram = import_module("codecarbon.external.ram").RAM(tracking_mode="machine")
            ram_w = float(ram.total_power().W)
    except Exception as error:  # whatever breaks inside codecarbon must not end an audit
        return Sources(reason=f"codecarbon's power model failed: {type(error).__name__}: {error}")
    n_cpus = psutil.cpu_count() or 1
    model = "this processor" if tdp.model in NAMELESS else tdp.model
    is_assumed = not tdp.tdp or float(tdp.tdp) in {ASSUMED_W_PER_CPU * n for n in (n_cpus, _n_given())}
    tdp_w = float(ASSUMED_W_PER_CPU * n_cpus if is_assumed else tdp.tdp * device.n_sockets())
    origin = f"{ASSUMED_W_PER_CPU} W per CPU assumed, {model} unknown" if is_assumed else model
    version = f"codecarbon {metadata.version('codecarbon')}"
    cpu = Processor(tdp_w, n_cpus, f"{version}: TDP {tdp_w:g} W ({origin}) x this process's share of CPU time")
    cautions = (_assumed(model, n_cpus),) if is_assumed else (_shared(tdp_w, n_cpus),) if device.is_virtual() else ()
    if ram_w <= 0:  # codecarbon's answer where it fails
        return Sources(found=(cpu,), cautions=(*cautions, NO_RAM))
    return Sources(found=(cpu, Ram(ram_w, f"{version}: {ram_w:g} W constant", clock)), cautions=cautions)


def _n_given() -> int:
    """The CPUs by which codecarbon assumes a power: those of the batch system's job, where there is one."""
    with _silence(), suppress(OSError):
        return int(import_module("codecarbon.core.util").count_cpus() or 0)
    return 0


def _assumed(model: str, n_cpus: int) -> Caution:
    low, high = (watts * n_cpus for watts in LIKELY_W_PER_CPU)
    assumed = ASSUMED_W_PER_CPU * n_cpus
    text = f"codecarbon's table lacks {model}: a TDP of {assumed} W is assumed, {low} to {high} W likely"
    return Caution(code="assumed_tdp", text=text, hint="compare models on this machine, do not quote the joules")


def _shared(tdp_w: float, n_cpus: int) -> Caution:
    text = (
        f"the TDP of {tdp_w:g} W is of a whole processor, of which a virtual machine with {n_cpus} CPUs may have a part"
    )
    return Caution(code="assumed_tdp", text=text, hint="compare models on this machine, do not quote the joules")


@contextmanager
def _silence() -> Iterator[None]:
    """Keeps codecarbon's log lines off stderr and leaves its logger as it was."""
    logger = logging.getLogger("codecarbon")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
