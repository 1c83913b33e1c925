"""How commands come by records, and where they show them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from effaudit import runs
from effaudit.cli_options import AuditOptions
from effaudit.errors import EffauditError
from effaudit.files import write_atomically
from effaudit.overrides import Overrides, apply
from effaudit.profile_spec import AuditProfile, load_profile
from effaudit.record import AuditRecord, to_json
from effaudit.runs import Saved
from effaudit.streams import closed_pipe_ignored, note, say_json


def audited(profile: AuditProfile, options: AuditOptions) -> list[Saved]:
    """Runs the audit, its records saved; says where what was finished is when it is interrupted."""
    from effaudit.auditing import run_audit

    if options.json not in (None, "-"):
        check_writable(Path(options.json))
    folder = Path(options.out) if options.out is not None else runs.new_run_folder(profile.name)
    try:
        with contextlib.redirect_stdout(sys.stderr):  # whatever a library prints is no result
            records = run_audit(profile, folder, is_quiet=options.quiet)
    except KeyboardInterrupt:
        if any(folder.glob("*.json")):
            note(f"interrupted: what was finished is kept in `{folder}`")
        raise
    finally:
        if options.out is None:
            with contextlib.suppress(OSError):
                folder.rmdir()  # which works only where nothing came to lie in it
    note(f"records: {folder}", options.quiet)
    return [Saved(record, folder) for record in records]


def current_records(target: str, is_quiet: bool) -> list[AuditRecord]:
    if runs.is_saved(target):
        found = runs.saved_records([target])
    else:
        found = audited(apply(load_profile(target), Overrides()), AuditOptions(quiet=is_quiet))
    return [saved.record for saved in found]


def show(found: Sequence[Saved], options: AuditOptions, text: str) -> None:
    """The text, or the records as JSON, on stdout; files that were asked for, their paths on stderr."""
    from effaudit.renderers import console
    from effaudit.renderers._in_depth import notes
    from effaudit.renderers._words import cautions

    records = [saved.record for saved in found]
    if options.json == "-":
        say_json(to_json(records))
        note("\n".join(notes("Cautions", cautions(records))), options.quiet)
    else:
        with closed_pipe_ignored():
            console.show(text)
    if options.json not in (None, "-"):
        write_atomically(Path(options.json), to_json(records) + "\n")
        note(f"JSON: {options.json}", options.quiet)
    if options.html:
        from effaudit.reporting import write_report

        shown = runs.told_apart(found)
        folder = Path(options.out) if options.out is not None else found[0].folder
        paths = write_report([saved.record for saved in shown], runs.examples_of(shown), folder, ["html"])
        note(f"report: {paths[0]}", options.quiet)


def check_writable(file: Path) -> None:
    """Raises EffauditError when the file could not be written, before the work whose result it is to hold."""
    from effaudit.auditing import prepare_folder

    if file.is_dir():
        raise EffauditError(f"cannot write `{file}`: it is a folder", "name a file")
    prepare_folder(file.parent)
