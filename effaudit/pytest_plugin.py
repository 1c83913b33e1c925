"""The pytest fixture `effaudit`: assertions on FLOPs and on records against a baseline.

pytest loads this at its start, so it imports nothing that takes time: torch comes with the first count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from effaudit.baselines import Baseline
    from effaudit.flop_counting import FlopCount
    from effaudit.gate_rows import GateResult
    from effaudit.record import AuditRecord


class Assertions:
    """What the fixture offers; all else of the package too, whose name it hides in a test."""

    def __getattr__(self, name: str) -> object:
        import effaudit

        return getattr(effaudit, name)

    def assert_flops(self, model: Callable[..., object], inputs: object, *, at_most: float) -> FlopCount:
        """As `effaudit.assert_flops`."""
        from effaudit.assertions import assert_flops

        return assert_flops(model, inputs, at_most=at_most)

    def gate(
        self,
        record: AuditRecord | Sequence[AuditRecord],
        baseline: AuditRecord | Sequence[AuditRecord] | Baseline | str | Path,
        tolerances: Mapping[str, float] | None = None,
    ) -> GateResult:
        """As `effaudit.gate`, but fails the test with the table of verdicts unless it passes."""
        from effaudit.gating import gate
        from effaudit.renderers._verdicts import render_gate

        __tracebackhide__ = True
        result = gate(record, baseline, tolerances)
        if not result:
            raise AssertionError(f"\n{render_gate(result)}")
        return result


@pytest.fixture(scope="session")
def effaudit() -> Assertions:
    """Assertions on what a model costs."""
    return Assertions()
