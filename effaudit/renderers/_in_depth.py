"""One model in depth for a terminal of 80 columns: totals, routing by layer, FLOPs by module, what to distrust."""

from __future__ import annotations

from collections.abc import Sequence

from effaudit import stats, units
from effaudit.record import AuditRecord, LayerRow, Measurement, ModuleRow
from effaudit.renderers._layout import left, right, wrap
from effaudit.renderers._module_tree import row_line, total_flops, tree_nodes
from effaudit.renderers._table import MARKS
from effaudit.renderers._words import Note, cautions, missing

MODULE_DEPTH = 3  # `blocks.0.attn`: below that the tree says little that the layer does not
MAX_MODULES = 40

_LAYER_COLUMNS = ("head_fraction", "budget", "alpha_soft", "alpha_hard", "exit_share")


def render_profile(record: AuditRecord, tree: Sequence[str] | None = None) -> str:
    """One record as plain text; `tree` replaces the short one of its modules."""
    blocks = [
        _title(record),
        _totals(record.measurements),
        _layers(record.layers),
        _modules(record.modules) if tree is None else tree,
        _methods(record.measurements),
        notes("Cautions", cautions([record])),
        notes("Not available", missing([record])),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def headers(records: Sequence[AuditRecord]) -> list[str]:
    """What was audited and on which machine, each line once."""
    lines: dict[str, None] = {}
    for record in records:
        work, env = record.workload, record.environment
        name = record.profile.get("name", "audit")
        counts = f"{units.number(work.n_examples)} examples"
        if work.n_tokens is not None:
            counts += f", {units.number(work.n_tokens)} tokens"
        lines[f"{name}: {work.dataset}/{work.split}, {counts}, batches of {work.batch_size}"] = None
        threads = f"{env.threads} thread{'' if env.threads == 1 else 's'}"
        lines[f"{env.device} ({env.device_name}), {threads}, {env.dtype}, torch {env.torch}"] = None
    return [row for line in lines for row in wrap(line, "", "  ")]


def notes(title: str, found: Sequence[Note]) -> list[str]:
    """A titled list of notes, each with its models and its hint; nothing where there are none."""
    lines = [title] if found else []
    for note in found:
        lines += wrap(f"{note.text} ({note.whom})" if note.whom else note.text, "  - ")
        if note.hint:
            lines += wrap(note.hint, "    hint: ")
    return lines


def _title(record: AuditRecord) -> list[str]:
    model = record.model
    options = ", ".join(f"{key}={value}" for key, value in model.options.items())
    lines = wrap(f"{model.name} ({model.variant}{': ' if options else ''}{options})", "", "  ")
    weights = f"weights {model.weights_sha256[:12]}" if model.weights_sha256 else "untrained weights"
    return [*lines, *headers([record]), f"{units.quantity(model.n_params, '1')} parameters, {weights}"]


def _totals(measurements: Sequence[Measurement]) -> list[str]:
    lines = ["Totals"]
    for m in measurements:
        if m.value is not None:
            shown = units.quantity(m.value, m.unit)
            lines.append(f"  {left(m.name, 27)} {right(shown, 14)} {MARKS[m.source]}{_median_span(m)}")
    return lines if len(lines) > 1 else []


def _median_span(m: Measurement) -> str:
    """The 95 % interval of a median; nothing for other figures."""
    span = stats.median_interval(m.samples) if m.name == "latency.p50" else None
    return f"  [{units.quantity(span.low, m.unit)}, {units.quantity(span.high, m.unit)}]" if span else ""


def _layers(layers: Sequence[LayerRow]) -> list[str]:
    """The per-layer table, with the columns that apply to this variant."""
    columns = [c for c in _LAYER_COLUMNS if any(getattr(row, c) is not None for row in layers)]
    if not columns:
        return []
    uses = ("least used", "most used") if any(len(row.head_use) > 1 for row in layers) else ()  # of heads or experts
    lines = ["Routing by layer", "  layer" + "".join(right(c, 15) for c in (*columns, *uses))]
    for row in layers:
        values = [getattr(row, column) for column in columns]
        if uses:
            values += [min(row.head_use, default=None), max(row.head_use, default=None)]
        cells = ("–" if value is None else f"{value:.3f}" for value in values)
        lines.append(f"  {row.layer:>5}" + "".join(right(cell, 15) for cell in cells))
    return lines


def _modules(modules: Sequence[ModuleRow]) -> list[str]:
    """FLOPs by module with bars, as shares of the whole; modules without any are left out."""
    nodes = tree_nodes(modules, MODULE_DEPTH)
    if not nodes:
        return []
    total = total_flops(modules)
    lines = ["FLOPs by module", *(row_line(node, total) for node in nodes[:MAX_MODULES])]
    if len(nodes) > MAX_MODULES:
        lines.append(f"  and {len(nodes) - MAX_MODULES} more: `effaudit profile --modules` shows all")
    return lines


def methods(measurements: Sequence[Measurement]) -> list[tuple[str, str]]:
    """How each figure was obtained: the names of the figures that share a method, and the method."""
    names: dict[str, dict[str, None]] = {}
    for m in measurements:
        if m.value is not None:
            names.setdefault(f"{m.source}, {m.method}" if m.method else m.source, {})[m.name] = None
    return [(", ".join(figures), method) for method, figures in names.items()]


def _methods(measurements: Sequence[Measurement]) -> list[str]:
    lines = [row for names, how in methods(measurements) for row in wrap(f"{names}: {how}", "  - ")]
    return ["Methods (c counted, m measured, ~ modelled)", *lines] if lines else []
