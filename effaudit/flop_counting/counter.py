"""How many FLOPs a model really executes, by module and by op, and which ops could not be counted.

Bias, softmax, norms and activations cost nothing (see CONVENTION). Ops are seen below autograd, where they run, so
input-dependent branches, backward passes and recomputation count as they happen.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from effaudit.flop_counting.broadcast_products import as_called, counted_broadcast_products
from effaudit.flop_counting.mode import CountingMode, Tally
from effaudit.flop_counting.model_state import preserved
from effaudit.flop_counting.module_paths import ModulePaths
from effaudit.flop_counting.module_tree import ElementCount, ModuleCount, add_to, element_rows, module_rows
from effaudit.flop_counting.patching import patched
from effaudit.flop_counting.threads import ThreadFollower
from effaudit.flop_counting.torchscript import unseen_kernels

CONVENTION = "a multiply-add is 2 FLOPs; matrix and convolution products only; attention dense, causal not halved"


@dataclass(frozen=True)
class FlopCount:
    """FLOPs that were executed, exactly, and what they do not include.

    `by_module` has a row for every module path, "" for the root, which is the total. A shared module has a row
    under each caller; brackets mark one that its caller holds without registering it. `integer_ops` is the part
    of `by_op` that multiplied integers. `uncounted` are ops that may do work but have no formula, with their calls.
    `elements` is a count of its own, of work that is no product; None unless it was asked for.
    """

    total: int
    by_module: Mapping[str, ModuleCount]
    by_op: Mapping[str, int]
    integer_ops: Mapping[str, int]
    uncounted: Mapping[str, int]
    elements: Mapping[str, ElementCount] | None = None
    convention: str = CONVENTION

    @property
    def macs(self) -> int | float:
        """Multiply-adds: half of the FLOPs."""
        return self.total // 2 if self.total % 2 == 0 else self.total / 2

    @property
    def complete(self) -> bool:
        """Whether every op that ran is counted or free by convention."""
        return not self.uncounted


# Hooks and thread starts are the process's, so counts take turns; one inside another is fine.
_TURN = threading.RLock()


class FlopCounter:
    """Counts what runs inside `with counter:`, which may be entered many times; `count()` is the sum so far."""

    def __init__(self, model: Callable[..., object], has_elements: bool = False) -> None:
        self._has_elements = has_elements
        self._paths = ModulePaths(model)
        self._tallies: dict[int, Tally] = {}  # by thread, the first that counted first
        self._modes: dict[int, CountingMode] = {}  # of each thread that is followed
        self._threads = ThreadFollower(self._mode_here, self._counting_thread)
        self._open = ExitStack()

    def __enter__(self) -> FlopCounter:
        with ExitStack() as stack:
            stack.enter_context(_TURN)
            stack.enter_context(_uncompiled(self._paths.has_compiled))
            stack.enter_context(self._followed_modules())
            stack.enter_context(self._threads.following())
            stack.enter_context(counted_broadcast_products(self._mode_here))
            stack.enter_context(self._counting_thread(""))
            self._open = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)
        if self._threads.n_unfinished:
            self._first.uncounted["work in threads that outlived the call"] += self._threads.n_unfinished

    @property
    def _first(self) -> Tally:
        return next(iter(self._tallies.values()))

    def _mode_here(self) -> CountingMode | None:
        return self._modes.get(threading.get_ident())

    @contextmanager
    def _counting_thread(self, path: str) -> Iterator[None]:
        """Counts the ops of the calling thread, as work of `path`."""
        thread = threading.get_ident()
        before = self._modes.get(thread)
        mode = CountingMode(self._tallies.setdefault(thread, Tally()), path, self._has_elements)
        try:
            self._modes[thread] = mode
            with mode:
                yield
        finally:
            if before is None:
                del self._modes[thread]
            else:
                self._modes[thread] = before

    @contextmanager
    def _followed_modules(self) -> Iterator[None]:
        handles = [
            register_module_forward_pre_hook(self._module_begins),
            register_module_forward_hook(self._module_ends, always_call=True),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _module_begins(self, module: nn.Module, args: Any) -> None:
        mode = self._mode_here()
        if mode is not None:
            mode.begin(module, self._paths.called(mode.path, module))
            for kernel in unseen_kernels(module):
                self._first.uncounted[kernel] += 1
        elif self._paths.knows(module):
            self._first.uncounted[f"{type(module).__name__} in another thread"] += 1

    def _module_ends(self, module: nn.Module, args: Any, output: Any) -> None:
        mode = self._mode_here()
        if mode is not None:
            mode.end(module)

    def count(self) -> FlopCount:
        """What was counted so far."""
        by_op: dict[str, int] = defaultdict(int)
        integer_ops: dict[str, int] = defaultdict(int)
        uncounted: dict[str, int] = defaultdict(int)
        tallies = list(self._tallies.values())
        for tally in tallies:
            for ops in tally.own.values():
                add_to(by_op, ops)
            add_to(integer_ops, tally.integer)
            add_to(uncounted, tally.uncounted)
        rows = module_rows(self._paths.modules, tallies)
        return FlopCount(
            total=sum(by_op.values()),
            by_module=rows,
            by_op=dict(by_op),
            integer_ops=dict(integer_ops),
            uncounted=dict(uncounted),
            elements=element_rows(rows, tallies) if self._has_elements else None,
        )


def count_flops(model: Callable[..., object], /, *inputs: object, **kwargs: object) -> FlopCount:
    """The FLOPs of one call `model(*inputs, **kwargs)`, in the train and grad mode that it is in.

    Takes any module or callable (one that calls `.backward()` counts the backward pass too) on any device,
    meta included. Leaves no trace: hooks, train flags, buffers, random generators and compiled code are as
    before, also when the call raises, and then its exception is raised unchanged.
    """
    with counted_pass(model) as counter, counter:
        as_called(model)(*inputs, **kwargs)
    return counter.count()


@contextmanager
def counted_pass(model: Callable[..., object], has_elements: bool = False) -> Iterator[FlopCounter]:
    """A counter for many calls of `model`, each inside `with counter:`; what they change is put back at the end.

    With `has_elements` it also counts work that is no product, apart from the rest.
    """
    with preserved(_root(model)):
        yield FlopCounter(_root(model), has_elements)


def _root(model: Callable[..., object]) -> Callable[..., object]:
    """The module behind a bound method or a partial, else the callable itself."""
    while isinstance(model, partial):
        model = model.func
    owner = getattr(model, "__self__", None)
    return owner if isinstance(owner, nn.Module) else model


@contextmanager
def _uncompiled(has_compiled: bool) -> Iterator[None]:
    """Compiled modules run their Python code, op by op; what was compiled stays and is used again afterwards."""
    compile_model = torch.compile
    with ExitStack() as stack:

        def stay_eager() -> None:
            stack.enter_context(torch.compiler.set_stance("force_eager"))

        def compile_later(*args: Any, **kwargs: Any) -> Any:
            stay_eager()
            return compile_model(*args, **kwargs)

        if has_compiled:
            stack.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", message="Using `torch.compile.module.` when there are global hooks")
        if "torch._dynamo" in sys.modules:
            stay_eager()
        else:  # importing the compiler takes seconds: only when the model asks for it
            stack.enter_context(patched(torch, "compile", compile_later))
        yield
