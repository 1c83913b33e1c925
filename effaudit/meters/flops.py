"""Parameters and FLOPs: what ran in one pass over the workload, what its routing could cost, what dense would.

The attention's share stands beside the whole in what ran and in dense: a saving is stated of its core (scores and
mix), of its layers, or of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import nn

from effaudit.example_table import Spill
from effaudit.flop_counting import ELEMENT_CONVENTION, GATHERED, FlopCount, attention_of, counted_pass
from effaudit.flop_counting.module_tree import ElementCount, ModuleCount, from_path
from effaudit.parameters import count_parameters
from effaudit.profile_spec import AuditSpec
from effaudit.record import Better, Caution, Findings, Measurement, ModuleRow, unavailable
from effaudit.workload import Batch, Execution, HasDenseAttention, HasInner, Routing, Workload


@dataclass
class _Formula:
    """Sums of a variant's closed formula over one pass; `reason` says why there are none."""

    examples: Spill
    routed: int = 0
    dense: int = 0
    dense_attention_core: int = 0
    dense_attention_layer: int = 0
    executed: int = 0
    reason: str | None = None

    def add(self, work: Workload, batch: Batch, routing: Routing) -> None:
        executions: tuple[Execution, ...] = ("best", "dense", work.execution)
        try:
            routed, dense, executed = (work.flops(batch, routing, execution).tolist() for execution in executions)
        except NotImplementedError as error:
            self.reason = str(error) or f"`{work.name}` has no closed formula"
            return
        self.routed += sum(routed)
        self.dense += sum(dense)
        self.executed += sum(executed)
        if isinstance(work.model, HasDenseAttention):
            attention = work.model.dense_attention(batch)
            self.dense_attention_core += attention.core
            self.dense_attention_layer += attention.layer
        self.examples.add(batch.index.tolist(), {"flops_routed": routed})


def measure(works: Sequence[Workload], settings: AuditSpec) -> list[Findings]:
    """One counted pass of each workload."""
    return [_measure_one(work, settings.elementwise) for work in works]


def _measure_one(work: Workload, has_elements: bool) -> Findings:
    formula = _Formula(Spill(work.scratch))
    with counted_pass(work.model, has_elements) as counter:
        for batch in work.batches():
            with counter:
                output = work.routed(batch)
            if formula.reason is None:
                formula.add(work, batch, output.routing)
    count = counter.count()
    shell = work.model.inner_path if isinstance(work.model, HasInner) else ""
    by_module = from_path(shell, count.by_module) if shell else count.by_module
    return Findings(
        measurements=(
            _params(work.model),
            *_executed(count),
            *_by_formula(formula),
            *_attention(by_module),
            *_dense_attention(formula, work),
            *_elements(count),
        ),
        modules=_modules(by_module, shell, count.elements),
        examples=formula.examples if formula.reason is None else None,
        cautions=_cautions(count, formula, work.execution),
    )


def _params(model: nn.Module) -> Measurement:
    return _counted("params", "1", "lower", "shared tensors once, without buffers", count_parameters(model))


def _executed(count: FlopCount) -> tuple[Measurement, ...]:
    method = f"ops seen at dispatch; {count.convention}"
    return (
        _counted("flops.executed", "FLOP", "lower", method, count.total),
        _counted("macs.executed", "MAC", "lower", f"half of flops.executed: {method}", count.macs),
    )


def _by_formula(formula: _Formula) -> tuple[Measurement, ...]:
    if formula.reason is not None:
        return (
            unavailable("flops.routed", "FLOP", "lower", formula.reason),
            unavailable("flops.dense", "FLOP", "neither", formula.reason),
        )
    routed = "closed formula at the variant's best execution of the routing taken"
    dense = "closed formula with every head, layer and token on, without routers and exit heads"
    return (
        _counted("flops.routed", "FLOP", "lower", routed, formula.routed),
        _counted("flops.dense", "FLOP", "neither", dense, formula.dense),
    )


def _attention(by_module: Mapping[str, ModuleCount]) -> tuple[Measurement, ...]:
    attention = attention_of(by_module)
    core, layer = "flops.attention_core", "flops.attention_layer"
    if attention.core is None or attention.layer is None:
        return (
            unavailable(core, "FLOP", "lower", attention.reason),
            unavailable(layer, "FLOP", "lower", attention.reason),
        )
    ran = "the part of flops.executed in modules named as attention"
    return (
        _counted(core, "FLOP", "lower", f"{ran}: scores and mix", attention.core),
        _counted(layer, "FLOP", "lower", f"{ran}: projections, scores and mix", attention.layer),
    )


def _dense_attention(formula: _Formula, work: Workload) -> tuple[Measurement, ...]:
    core, layer = "flops.dense_attention_core", "flops.dense_attention_layer"
    if formula.reason is not None or not isinstance(work.model, HasDenseAttention):
        reason = formula.reason or f"`{work.name}` has no closed formula of its attention"
        return unavailable(core, "FLOP", "neither", reason), unavailable(layer, "FLOP", "neither", reason)
    part = "the part of flops.dense in attention"
    return (
        _counted(core, "FLOP", "neither", f"{part}: scores and mix", formula.dense_attention_core),
        _counted(layer, "FLOP", "neither", f"{part}: projections, scores and mix", formula.dense_attention_layer),
    )


def _elements(count: FlopCount) -> tuple[Measurement, ...]:
    """Figures of their own, which flops.executed has no part of."""
    if count.elements is None:
        return ()
    root = count.elements[""]
    return (
        _counted("flops.elementwise", "FLOP", "lower", f"not in flops.executed; {ELEMENT_CONVENTION}", root.flops),
        _counted("bytes.gathered", "B", "lower", GATHERED, root.moved),
    )


def _modules(
    by_module: Mapping[str, ModuleCount], shell: str, elements: Mapping[str, ElementCount] | None
) -> tuple[ModuleRow, ...]:
    """`elements` has the paths as they are with the `shell` around the user's model."""
    rows = []
    for path, row in by_module.items():
        element = elements[f"{shell}.{path}" if shell and path else path] if elements is not None else None
        rows.append(
            ModuleRow(
                path=path,
                flops=row.flops,
                calls=row.calls,
                ops=dict(row.own_by_op),
                elementwise=element.flops if element else None,
                gathered=element.moved if element else None,
            )
        )
    return tuple(rows)


def _counted(name: str, unit: str, better: Better, method: str, value: int | float) -> Measurement:
    return Measurement(name=name, unit=unit, better=better, source="counted", method=method, value=value)


def _cautions(count: FlopCount, formula: _Formula, execution: Execution) -> tuple[Caution, ...]:
    cautions = []
    if not count.complete:
        ops = ", ".join(f"{op} ({calls}x)" for op, calls in sorted(count.uncounted.items()))
        cautions.append(
            Caution(
                code="count_incomplete",
                text=f"count incomplete: no FLOP formula for {ops}",
                hint="flops.executed is a lower bound: read it without these ops",
            )
        )
    if formula.reason is None and formula.executed != count.total:
        cautions.append(
            Caution(
                code="formula_mismatch",
                text=f"{count.total} FLOPs ran, the closed formula for `{execution}` says {formula.executed}",
                hint="one of them is wrong: please report it with the profile",
            )
        )
    return tuple(cautions)
