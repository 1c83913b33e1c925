"""The options that `profile` and `compare` share, declared once."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from effaudit.errors import EffauditError

if TYPE_CHECKING:
    from effaudit.overrides import Overrides

# No `from __future__ import annotations`: typer reads the annotations below as they are.

Model = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[:KEY=VALUE,...]|hf:FOLDER[?KEY=VALUE&...]|python:MODULE:FACTORY[?...]",
        help="A model of the profile, a variant, or a model of your own.",
    ),
]
Data = Annotated[
    str | None, typer.Option(metavar="NAME|PATH", help="A dataset, `chars:FILE`, `table:FILE`, a file or a folder.")
]
Device = Annotated[str | None, typer.Option(metavar="auto|cpu|cuda|mps", help="Where the models run.")]
Seed = Annotated[int | None, typer.Option(metavar="N", help="Seed of everything that is drawn.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress and no notes on stderr.")]


@dataclass(frozen=True)
class AuditOptions:
    """What may be said to an audit; None leaves it to the profile."""

    model: Model = None
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE,...", help="Vary how the models run, or an option of theirs. Repeatable."),
    ] = None
    weights: Annotated[str | None, typer.Option(metavar="FILE|DIR", help="Where the trained weights are.")] = None
    data: Data = None
    device: Device = None
    dtype: Annotated[str | None, typer.Option(metavar="DTYPE", help="float32, bfloat16, float16 or float64.")] = None
    batch_size: Annotated[int | None, typer.Option(metavar="N", help="Examples in a batch.")] = None
    limit: Annotated[int | None, typer.Option(metavar="N", help="Examples, the first of the split.")] = None
    max_tokens: Annotated[int | None, typer.Option(metavar="N", help="Longer texts are cut.")] = None
    threads: Annotated[int | None, typer.Option(metavar="N", help="CPU threads.")] = None
    match: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=OTHER[:BY[:KNOB]]",
            help="Turn a knob until a model meets another's alpha, tlops, heads, flops (default), latency or quality.",
        ),
    ] = None
    seed: Seed = None
    meters: Annotated[str | None, typer.Option(metavar="A,B", help="Only these meters, see `effaudit list`.")] = None
    max_seconds: Annotated[float | None, typer.Option(metavar="S", help="Time for all timed rounds together.")] = None
    allow_download: Annotated[
        bool | None, typer.Option("--allow-download", help="Fetch a model that is named by its id and not here yet.")
    ] = None
    country: Annotated[
        str | None, typer.Option(metavar="ISO3", help="Country of the grid, for emissions; or `world`.")
    ] = None
    region: Annotated[
        str | None, typer.Option(metavar="NAME", help="State, province or bidding zone within the country.")
    ] = None
    intensity: Annotated[float | None, typer.Option(metavar="G", help="Carbon intensity in gCO2e/kWh.")] = None
    pue: Annotated[
        float | None, typer.Option(metavar="X", help="Power usage effectiveness of the building, 1 or more.")
    ] = None
    elementwise: Annotated[
        bool | None,
        typer.Option("--elementwise", help="Count work per element and gathered bytes too, apart from FLOPs."),
    ] = None
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Where records go, else under reports/runs.")] = None
    json: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="The records as one JSON document; `-` is stdout.")
    ] = None
    html: Annotated[bool, typer.Option("--html", help="Write report.html beside the records.")] = False
    quiet: Quiet = False

    def overrides(self) -> "Overrides":
        """What of this changes the profile.

        Raises EffauditError where the list of meters is empty.
        """
        from effaudit.overrides import Overrides  # imports pydantic

        meters = None if self.meters is None else [name for part in self.meters.split(",") if (name := part.strip())]
        if meters == []:
            raise EffauditError("--meters: none named", "leave it out for all of the profile's, or see `effaudit list`")
        changing = {f.name for f in fields(Overrides)} - {"models", "meters", "match", "sweep"}
        values = {name: getattr(self, name) for name in changing}
        return Overrides(
            models=self.model or (),
            match=self.match or (),
            meters=meters,
            sweep=self.sweep or (),
            **values,
        )

    def refuse_with_records(self) -> None:
        """Raises EffauditError when an option is given that has nothing to act on where nothing is audited."""
        for field in fields(self):
            if field.name not in ("out", "json", "html", "quiet") and getattr(self, field.name) != field.default:
                option = field.name.replace("_", "-")
                raise EffauditError(
                    f"--{option} acts on an audit, not on saved records", "leave it out, or name a profile"
                )


def with_audit_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command, its parameter `options` spread into the options of AuditOptions."""
    kinds = get_type_hints(AuditOptions, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(f.name, keyword, default=f.default, annotation=kinds[f.name]) for f in fields(AuditOptions)
    ]
    signature = inspect.signature(command)
    own = [p for p in signature.parameters.values() if p.name != "options"]

    def spread(**given: Any) -> None:
        options = AuditOptions(**{p.name: given.pop(p.name) for p in shared})
        command(**given, options=options)

    parameters = [p.replace(kind=keyword) for p in own] + shared
    spread.__name__, spread.__doc__ = command.__name__, command.__doc__
    spread.__annotations__ = {p.name: p.annotation for p in parameters}
    spread.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return spread
