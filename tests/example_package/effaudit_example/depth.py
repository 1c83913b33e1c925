"""How many modules deep a model is."""

from __future__ import annotations

from collections.abc import Sequence

from effaudit.profile_spec import AuditSpec
from effaudit.record import Findings, Measurement
from effaudit.workload import Workload


def measure(works: Sequence[Workload], settings: AuditSpec) -> list[Findings]:
    return [Findings(measurements=(_depth(work),)) for work in works]


def _depth(work: Workload) -> Measurement:
    deepest = max(path.count(".") + 1 if path else 0 for path, _ in work.model.named_modules())
    return Measurement(
        name="depth", unit="1", better="lower", source="counted", method="levels of named modules", value=deepest
    )
