"""The command that trains, audits and judges what the two papers claim."""

from pathlib import Path
from typing import Annotated

import typer

from effaudit.cli_options import Device, Quiet
from effaudit.errors import EffauditError
from effaudit.streams import note, say

# No `from __future__ import annotations`: typer reads the annotations below as they are.


def claims(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="PROFILE", help="Only these of profiles/claims (default: all).")
    ] = None,
    data: Annotated[str | None, typer.Option(metavar="DIR", help="A folder with one for each dataset.")] = None,
    seed: Annotated[list[int] | None, typer.Option(metavar="N", help="Only this seed. Repeatable.")] = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Trainings at once, a process each.")] = 1,
    device: Device = None,
    show: Annotated[bool, typer.Option("--show", help="Train and audit nothing, judge what is there.")] = False,
    out: Annotated[str, typer.Option(metavar="DIR", help="Records, claims.md and report.html.")] = "reports/claims",
    weights: Annotated[str, typer.Option(metavar="DIR", help="Trained weights.")] = "reports/weights/claims",
    quiet: Quiet = False,
) -> None:
    """Judges the two papers' claims by models trained and audited here.

    Goes on where it stopped: what is trained and audited already stays. Writes claims.md and report.html, and says
    what is missing.
    """
    from effaudit.auditing import prepare_folder
    from effaudit.claims import page, text
    from effaudit.claims.results import results
    from effaudit.claims.study import open_study
    from effaudit.files import write_atomically

    root = None if data is None else Path(data).expanduser()
    if root is not None and not root.is_dir():
        raise EffauditError(f"--data: no folder `{data}`", "it is to have one for each dataset, as ag_news")
    folder = prepare_folder(Path(out))
    study = open_study(root, folder, Path(weights), device or "cpu", tuple(names or ()), tuple(seed or ()))

    def write() -> str:
        found = results(study)
        write_atomically(folder / "claims.md", text.markdown(found))
        write_atomically(folder / "report.html", page.render(found))
        return text.console(found)

    try:
        for unit in () if show else study.run(jobs, device or "cpu", quiet):
            note(f"audited: {unit.name}", quiet)
            write()
    except KeyboardInterrupt:
        note("the same command goes on from where this stopped", quiet)
        raise
    say(write())
    note(f"tables: {folder / 'claims.md'}, report: {folder / 'report.html'}", quiet)
