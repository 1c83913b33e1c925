"""effaudit tells whether adaptive transformers really save compute.

    count = effaudit.count_flops(model, *inputs)         # FLOPs of one call, exact, by module and by op
    records = effaudit.audit("demo", limit=64)           # what `effaudit compare demo --limit 64` finds
    record = effaudit.load_record("reports/runs/…/tsa.json")
    deltas = effaudit.compare(before, after)             # records, measurement by measurement
    effaudit.log_routing(layer=i, tokens=mask)           # inside a forward of yours: what it leaves out
    result = effaudit.gate(record, "profiles/baselines/demo.json")  # true where nothing got costlier
    effaudit.assert_flops(model, inputs, at_most=2e9)    # for test suites; pytest has a fixture `effaudit` too

Importing this package imports no torch: what is named here is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from effaudit.assertions import assert_flops
    from effaudit.comparison import compare
    from effaudit.errors import EffauditError
    from effaudit.flop_counting import count_flops
    from effaudit.gating import gate
    from effaudit.profile_spec import AuditProfile
    from effaudit.record import AuditRecord, load_record
    from effaudit.route_logging import log_routing
    from effaudit.version import VERSION as __version__

__all__ = [
    "EffauditError",
    "__version__",
    "assert_flops",
    "audit",
    "compare",
    "count_flops",
    "gate",
    "load_record",
    "log_routing",
]

_HOMES = {
    "EffauditError": ("errors", "EffauditError"),
    "__version__": ("version", "VERSION"),
    "assert_flops": ("assertions", "assert_flops"),
    "compare": ("comparison", "compare"),
    "count_flops": ("flop_counting", "count_flops"),
    "gate": ("gating", "gate"),
    "load_record": ("record", "load_record"),
    "log_routing": ("route_logging", "log_routing"),
}


def audit(target: str | Path | AuditProfile, out: str | Path | None = None, **overrides: Any) -> list[AuditRecord]:
    """Audits every model of a profile, a YAML file or the name of a built-in profile; prints nothing.

    `overrides` are the fields of `effaudit.overrides.Overrides` (models, data, weights, device, limit, …). Records
    are saved under `out`, or in a new folder under reports/runs.
    Raises EffauditError for everything that the caller can mend.
    """
    from effaudit.auditing import run_audit
    from effaudit.overrides import Overrides, apply
    from effaudit.profile_spec import AuditProfile, load_profile

    profile = target if isinstance(target, AuditProfile) else load_profile(target)
    return run_audit(apply(profile, Overrides(**overrides)), Path(out) if out is not None else None, is_quiet=True)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module `effaudit` has no `{name}`")
    module, attribute = _HOMES[name]
    found = globals()[name] = getattr(import_module(f"effaudit.{module}"), attribute)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
