"""How an audit is repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import yaml

from effaudit.errors import EffauditError
from effaudit.profile_spec import AuditProfile, load_profile, validated
from effaudit.record import AuditRecord
from effaudit.renderers._layout import printable


@dataclass(frozen=True)
class Reproduction:
    """The command that repeats an audit, and the file it needs where its profile is not built in."""

    command: str
    file_name: str
    text: str


def reproductions(records: Sequence[AuditRecord]) -> tuple[Reproduction, ...]:
    """One a profile: the models of an audit share theirs."""
    apart: list[AuditRecord] = []
    for record in records:
        if not any(record.profile == other.profile for other in apart):
            apart.append(record)
    return tuple(dict.fromkeys(_reproduction(record) for record in apart))


def _reproduction(record: AuditRecord) -> Reproduction:
    """By the profile's name where it is built in and unchanged, else by the resolved profile of the record."""
    name = printable(str(record.profile.get("name", "audit")))
    try:
        if load_profile(name) == validated(AuditProfile, record.profile, name):
            return Reproduction(f"effaudit compare {name}", "", "")
    except EffauditError:
        pass  # not built in, or of another version: the record's own profile is what was run
    profile = record.model_dump(mode="json")["profile"]
    text = yaml.safe_dump(profile, sort_keys=False, allow_unicode=True, width=100)
    return Reproduction(f"effaudit compare {name}.yaml", f"{name}.yaml", text)
