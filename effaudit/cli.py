"""The `effaudit` command: parse, call one function, print, exit."""

import dataclasses
import errno
import io
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from effaudit import cli_claims, cli_gate
from effaudit.cli_options import AuditOptions, Data, Device, Quiet, Seed, with_audit_options
from effaudit.errors import EffauditError, is_out_of_memory
from effaudit.streams import closed_pipe_ignored, note, say

# No `from __future__ import annotations`: typer reads the annotations below as they are.
# All that takes time to import (pydantic, rich, numpy, torch) is imported by the command that needs it, so that
# `--help` answers at once.

DEFAULT = "demo"  # the profile of an audit without a target
USER_ERROR, BUG, INTERRUPTED = 2, 70, 130  # exit codes; 1 is a regression and nothing else

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
baseline_app = typer.Typer(rich_markup_mode=None, help="Keeps the accepted records of the gate.")
app.add_typer(baseline_app, name="baseline")

Target = Annotated[str, typer.Argument(metavar="TARGET", help="A profile: a YAML file or a built-in name.")]


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from effaudit.version import VERSION

        say(f"effaudit {VERSION}")
        raise typer.Exit


@app.callback()
def _effaudit(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Audits whether adaptive transformers really save compute: claims, skipping, FLOPs, time, memory, energy.

    Results go to stdout, everything else to stderr. Exit codes: 0 done, 1 regressed (gate only), 2 a mistake in what
    was given or undecided, 130 interrupted, 70 a bug.
    """


@app.command()
@with_audit_options
def profile(
    options: AuditOptions,
    target: Annotated[
        str | None, typer.Argument(metavar="TARGET", help="A profile: a YAML file or a built-in name.")
    ] = None,
    modules: Annotated[bool, typer.Option("--modules", help="The whole tree of modules, and FLOPs by op.")] = False,
    depth: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="With --modules: levels below the model.")
    ] = None,
) -> None:
    """Audits one model in depth.

    Totals, FLOPs by module, routing by layer, latency, memory, energy, emissions.
    --model picks among the profile's models, or names a variant; without a TARGET, on the data of `demo`.
    """
    from effaudit.cli_results import audited, show
    from effaudit.overrides import apply
    from effaudit.profile_spec import load_profile
    from effaudit.renderers import console
    from effaudit.renderers._module_tree import module_tree

    if depth is not None and not modules:
        raise EffauditError("--depth is of the tree that --modules shows", "say both, or neither")
    base, wanted = load_profile(target or DEFAULT), options.overrides()
    if len(wanted.models) > 1:
        raise EffauditError(f"`profile` audits one model, --model names {len(wanted.models)}", "use `effaudit compare`")
    if not wanted.models:
        names = [spec.name for spec in base.audited_models]
        wanted = dataclasses.replace(wanted, models=names[:1])
        if len(names) > 1:
            note(f"auditing `{names[0]}`; --model picks another: {', '.join(names[1:])}", options.quiet)
    found = audited(apply(base, wanted), options)
    record = found[0].record
    tree = module_tree(record.modules, depth) if modules else None
    show(found, options, console.render_profile(record, tree))


@app.command()
@with_audit_options
def compare(
    options: AuditOptions,
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="TARGET|RECORD", help="A profile (default: `demo`), or saved records and run folders."),
    ] = None,
) -> None:
    """Audits a profile's models and shows them side by side.

    Or compares saved records. --model picks among the profile's models, or names a variant; it may be repeated.
    """
    from effaudit import runs
    from effaudit.cli_results import audited, show
    from effaudit.overrides import apply
    from effaudit.profile_spec import load_profile
    from effaudit.renderers import console

    targets = targets or [DEFAULT]
    if all(map(runs.is_saved, targets)):
        options.refuse_with_records()
        found = runs.one_task(runs.saved_records(targets))
    elif len(targets) == 1:
        found = audited(apply(load_profile(targets[0]), options.overrides()), options)
    else:
        other = next(target for target in targets if not runs.is_saved(target))
        raise EffauditError(f"`{other}` is no saved record", "compare one profile, or any number of records")
    shown = runs.told_apart(found)
    records = [saved.record for saved in shown]
    show(found, options, console.render(records, runs.examples_of(shown), console.columns()))


@app.command()
def report(
    targets: Annotated[
        list[str] | None,
        typer.Argument(metavar="RECORD|DIR", help="Records or run folders (default: the newest run)."),
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Write report.html (also without any of these flags).")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write report.md.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Write report.csv.")] = False,
    figures: Annotated[bool, typer.Option("--figures", help="Write figures/, as SVG and PNG.")] = False,
    format: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Any other renderer, see `effaudit list`. Repeatable.")
    ] = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Where to, else the run's folder.")] = None,
) -> None:
    """Renders saved records as files and prints their paths."""
    from effaudit import runs
    from effaudit.reporting import write_report

    found = runs.one_task(runs.saved_records(targets or [runs.newest_run()]))
    asked = {"html": html, "markdown": markdown, "csv": csv, "figures": figures}
    kinds = [*(kind for kind, is_asked in asked.items() if is_asked), *(format or ())] or ["html"]
    shown = runs.told_apart(found)
    folder = Path(out) if out is not None else found[0].folder
    for path in write_report([saved.record for saved in shown], runs.examples_of(shown), folder, kinds):
        say(str(path))


app.command()(cli_gate.gate)
app.command()(cli_claims.claims)
baseline_app.command("update")(cli_gate.baseline_update)


@app.command()
def train(
    target: Target,
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this model of the profile. Repeatable.")
    ] = None,
    data: Data = None,
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Else reports/weights/<profile>.")] = None,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, help="Models trained at once, a process each.")] = 1,
    device: Device = None,
    seed: Seed = None,
    quiet: Quiet = False,
) -> None:
    """Trains the models of a profile.

    Prints where their weights are. Goes on from the last checkpoint where a training was interrupted; models that are
    trained already stay as they are.
    """
    from effaudit.assembly import TRAINED
    from effaudit.auditing import prepare_folder
    from effaudit.overrides import Overrides, apply
    from effaudit.profile_spec import load_profile
    from effaudit.training import train as train_models
    from effaudit.training_jobs import AUDIT_WITH, train_at_once

    spec = apply(load_profile(target), Overrides(data=data, device=device, seed=seed))
    folder = prepare_folder(Path(out) if out is not None else TRAINED / spec.name)
    only = tuple(model or ())
    said = [word for option, value in (("--data", data), ("--device", device)) if value for word in (option, value)]
    try:
        if jobs == 1:
            paths = train_models(spec, folder, only, is_quiet=quiet, device=spec.audit.device)
        else:
            seeded = [*said, *(("--seed", str(seed)) if seed is not None else ()), *(["--quiet"] if quiet else ())]
            if code := train_at_once(spec, only, jobs, [target, "--out", str(folder), *seeded]):
                raise typer.Exit(code)
            paths = [folder / f"{name}.safetensors" for name in only or (m.name for m in spec.models)]
    except KeyboardInterrupt:
        note("the same command goes on from the last checkpoint", quiet)
        raise
    for path in paths:
        say(str(path))
    picked = [word for name in only for word in ("--model", name)]
    command = ["effaudit", "compare", target, *picked, *said, "--weights", str(folder)]
    note(f"{AUDIT_WITH}{shlex.join(command)}", quiet)


@app.command("list")
def list_choices() -> None:
    """Shows what there is to choose from.

    Variants with their tasks, datasets, meters, renderers and built-in profiles.
    """
    from effaudit import catalogue, plugins
    from effaudit.renderers._layout import wrap

    groups = {group: catalogue.plugin_entries(group) for group in plugins.GROUPS}
    for group, entries in {**groups, "built-in profiles": catalogue.profile_entries()}.items():
        say(group)
        for entry in entries:
            tasks = f" ({', '.join(entry.tasks)})" if entry.tasks else ""
            say("\n".join(wrap(f"{entry.summary}{tasks}", f"  {entry.name:<17} ")))


@app.command()
def doctor() -> None:
    """Shows what this machine can measure.

    By which method, how finely, and what would give a better figure.
    """
    from effaudit.doctor import survey
    from effaudit.renderers._layout import wrap

    for finding in survey():
        told = "; ".join(part for part in (finding.method, finding.reason) if part)
        say("\n".join(wrap(f"{finding.what}: {told}", "yes  " if finding.is_available else "no   ")))
        if finding.resolution:
            say("\n".join(wrap(finding.resolution, "     resolution: ")))
        if finding.remedy:
            say("\n".join(wrap(finding.remedy, "     hint: ")))


# typer's own copy of click or click itself, as its version has it
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a path may hold what the terminal cannot show
    try:
        command = typer.main.get_command(app)
        with closed_pipe_ignored(), command.make_context("effaudit", given) as context:
            command.invoke(context)
    except typer.Exit as exit:
        return exit.exit_code
    except EffauditError as error:
        return _complain(error.message, error.hint)
    except _UsageError as error:
        return _complain_of_usage(error)
    except KeyboardInterrupt:
        note("interrupted")
        return INTERRUPTED
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return _confess()
        return _complain(f"cannot write: {error.strerror}", "free some space, or choose another --out")
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            return _confess()
        return _complain("out of memory", "choose a smaller --batch-size or a smaller model")
    except Exception:
        return _confess()
    return 0


def _complain(message: str, hint: str) -> int:
    from effaudit.renderers._layout import printable

    note(f"error: {printable(message)}\n\nhint: {printable(hint) or 'see `effaudit --help`'}")
    return USER_ERROR


def _complain_of_usage(error: Exception) -> int:
    message: str = error.format_message()  # type: ignore[attr-defined]
    possible = getattr(error, "possibilities", None)
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "effaudit"
    hint = f"did you mean `{possible[0]}`?" if possible else f"see `{path} --help`"
    return _complain(message.partition(" (Possible options")[0].rstrip("."), hint)


def _confess() -> int:
    traceback.print_exc()
    note("error: this is a bug in effaudit: please report it with the lines above")
    return BUG
