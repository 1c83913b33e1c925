"""What happens at each op of one counted thread: counted by a formula, taken apart, free, or noted as uncounted."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from effaudit.flop_counting.attention_formulas import Part, encoder_layer_parts, native_mha_parts
from effaudit.flop_counting.element_work import ELEMENT_NAMESPACES, element_flops, moved_bytes
from effaudit.flop_counting.formulas import FORMULAS, HIGHER_ORDER_FORMULAS, NESTED_FORMULAS
from effaudit.flop_counting.free_ops import is_free
from effaudit.flop_counting.layer_formulas import Formula
from effaudit.flop_counting.quantized_formulas import is_integer

CORE = " (scores and mix)"  # ends the name of the part of a fused op that is no projection


@dataclass
class Tally:
    """Counts of one thread: FLOPs by module path and op, calls by module path, what has no formula.

    Work per element and bytes moved stay empty unless they are asked for.
    """

    own: dict[str, dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))
    calls: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    integer: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    elements: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # FLOPs by module path
    moved: dict[str, int] = field(default_factory=lambda: defaultdict(int))  # bytes by module path
    uncounted: dict[str, int] = field(default_factory=lambda: defaultdict(int))


@dataclass(frozen=True)
class _Plan:
    """How one op overload is treated; all flags false and no formula means uncounted."""

    name: str
    key: str = ""  # with its namespace, without the underscore of in-place forms
    is_in_place: bool = False
    is_free: bool = False
    is_composite: bool = False
    formula: Formula | None = None
    nested_formula: Formula | None = None
    parts: Callable[..., Sequence[Part]] | None = None  # of a fused op


def _torch_formula(op: OpOverload) -> Formula | None:
    formula = flop_registry.get(op._overloadpacket)
    return None if formula is None else lambda out, /, *args, **kwargs: formula(*args, **kwargs, out_val=out)


def _is_composite(op: OpOverload) -> bool:
    """Whether the op is made of other ops; TorchScript's own (`prim::…`) are unknown to the dispatcher."""
    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")
    except RuntimeError:
        return False


def _planned(op: OpOverload) -> _Plan:
    """Formula before decomposition before freedom: an op is treated in one way only, so never counted twice."""
    key = op._schema.name.removesuffix("_")
    return _Plan(
        name=str(op._overloadpacket),
        formula=FORMULAS.get(key) or _torch_formula(op),
        nested_formula=NESTED_FORMULAS.get(key),
        is_free=is_free(op),
        is_composite=_is_composite(op),
        key=key,
        is_in_place=op._schema.name.endswith("_"),
        parts=_PARTS.get(key),
    )


_PARTS: dict[str, Callable[..., Sequence[Part]]] = {
    "aten::_native_multi_head_attention": native_mha_parts,
    "aten::_triton_multi_head_attention": native_mha_parts,
    "aten::_transformer_encoder_layer_fwd": encoder_layer_parts,
}
_PLANS: dict[OpOverload, _Plan] = {}
_COMPILER = "torch._dynamo"


@cache
def _is_unwrapping(kind: type) -> bool:
    """Tensor subclasses that turn an op into ops on what they hold, which then come by on their own."""
    is_plain = kind.__torch_dispatch__ is Tensor.__torch_dispatch__  # type: ignore[attr-defined]
    return not is_plain and not issubclass(kind, FakeTensor)


def _child(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _has_nested(args: tuple[Any, ...]) -> bool:
    return any(isinstance(a, Tensor) and a.is_nested for a in args)


class CountingMode(TorchDispatchMode):
    """Sees every op of the thread that enters it; keeps the stack of modules that are running there."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch would import its compiler (seconds) to keep it away from this mode; the counter sees to that itself."""
        return False

    def __init__(self, tally: Tally, path: str, has_elements: bool = False) -> None:
        super().__init__()
        self._tally = tally
        self._has_elements = has_elements
        self.path = path  # of the module that is running
        self._running: list[tuple[nn.Module, str]] = []  # with the path to go back to
        self._own = tally.own[path]
        self._may_import_compiler = _COMPILER not in sys.modules

    def __enter__(self) -> CountingMode:
        if not hasattr(TorchDispatchMode, "supports_higher_order_operators"):
            _answer_for_each_operator()
        super().__enter__()
        return self

    def begin(self, module: nn.Module, path: str | None) -> None:
        """`module` starts; None for a wrapper that is no level of the model."""
        self._running.append((module, self.path))
        if path is not None:
            self._tally.calls[path] += 1
            self._go_to(path)

    def end(self, module: nn.Module) -> None:
        """`module` ended, and with it all that it called, even what ended by an exception caught inside."""
        while self._running:
            ended, caller = self._running.pop()
            if ended is module:
                return self._go_to(caller)
        return None

    def add(self, op: str, flops: int) -> None:
        """FLOPs of the running module that dispatch does not show."""
        self._own[op] += flops

    def _go_to(self, path: str) -> None:
        self.path = path
        self._own = self._tally.own[path]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._may_import_compiler and self._is_importing_compiler():
            return func(*args, **kwargs)
        if isinstance(func, HigherOrderOperator):
            return self._run_higher_order(func, args, kwargs)
        if types and any(map(_is_unwrapping, types)):
            return NotImplemented
        plan = _PLANS.get(func)
        if plan is None:
            plan = _PLANS[func] = _planned(func)
        if plan.formula is None and not plan.is_free:
            return self._run_other(func, plan, args, kwargs)
        out = func(*args, **kwargs)
        flops = 0 if plan.formula is None else self._count(plan, plan.formula, out, args, kwargs)
        if self._has_elements:
            self._count_elements(plan, out, args, kwargs, flops)
        return out

    def _is_importing_compiler(self) -> bool:
        """Importing torch's compiler, which some functions do when first called, runs ops that are not the model's."""
        compiler = sys.modules.get(_COMPILER)
        if compiler is None:
            return False
        self._may_import_compiler = getattr(compiler.__spec__, "_initializing", False)
        return self._may_import_compiler

    def _run_other(self, func: OpOverload, plan: _Plan, args: Any, kwargs: Any) -> Any:
        if plan.nested_formula is not None and _has_nested(args):
            out = func(*args, **kwargs)
            self._count(plan, plan.nested_formula, out, args, kwargs)
            return out
        if plan.is_composite:
            with self:
                return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        self._tally.uncounted[plan.name] += 1
        return func(*args, **kwargs)

    def _count(self, plan: _Plan, formula: Formula, out: Any, args: Any, kwargs: Any) -> int:
        try:
            flops = formula(out, *args, **kwargs)
        except Exception:  # a layout that the formula does not know must not stop the model: it is reported
            self._tally.uncounted[plan.name] += 1
            return 0
        if plan.parts is not None:
            self._count_parts(plan.name, plan.parts(*args, **kwargs))
        elif flops:
            self._own[plan.name] += flops
        if is_integer(plan.key, args) or (type(out) is Tensor and not (out.is_floating_point() or out.is_complex())):
            self._tally.integer[plan.name] += flops
        return flops

    def _count_elements(self, plan: _Plan, out: Any, args: Any, kwargs: Any, flops: int) -> None:
        namespace, _, bare = plan.key.partition("::")
        name = bare if namespace in ELEMENT_NAMESPACES else plan.key
        try:
            self._tally.elements[self.path] += element_flops(name, out, args, kwargs, flops)
            self._tally.moved[self.path] += moved_bytes(name, out, args, plan.is_in_place)
        except Exception:  # as above: a figure that is said to lack something is better than no audit
            self._tally.uncounted[f"{plan.name}, its work per element"] += 1

    def _count_parts(self, op: str, parts: Sequence[Part]) -> None:
        """Parts are the submodules' where their module runs, the caller's own where a function was called."""
        has_modules = bool(self._running) and isinstance(self._running[-1][0], nn.TransformerEncoderLayer)
        for module in dict.fromkeys(part.module for part in parts if part.module and has_modules):
            self._tally.calls[_child(self.path, module)] += 1
        for part in parts:
            path = _child(self.path, part.module) if has_modules and part.module else self.path
            self._tally.own[path][f"{op}{CORE}" if part.is_core else op] += part.flops

    def _run_higher_order(self, func: HigherOrderOperator, args: Any, kwargs: Any) -> Any:
        """Runs the plain implementation and counts in the functions that it calls: of a `cond`, the branch taken."""
        name, formula = func.name(), HIGHER_ORDER_FORMULAS.get(func.name())
        if formula is not None:
            out = func(*args, **kwargs)
            flops = self._count(_Plan(name), formula, out, args, kwargs)
            if self._has_elements:
                self._count_elements(_Plan(name, key=name), out, args, kwargs, flops)
            return out
        plain: Callable[..., Any] | None = func.py_kernels.get(DispatchKey.CompositeExplicitAutograd)
        if plain is None or name.startswith("triton"):
            self._tally.uncounted[name] += 1
            return func(*args, **kwargs)
        return plain(*(self._counted_within(a) if callable(a) else a for a in args), **kwargs)

    def _counted_within(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return counted


def _answer_for_each_operator() -> None:
    """Older versions of torch look up in a table of each higher-order operator what a mode does with it."""
    for operator in torch._ops._higher_order_ops.values():
        operator.python_key_table.setdefault(CountingMode, partial(_answer, operator))


def _answer(operator: HigherOrderOperator, mode: CountingMode, /, *args: Any, **kwargs: Any) -> Any:
    return mode._run_higher_order(operator, args, kwargs)
