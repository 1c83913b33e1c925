"""TSA on characters: loss against skipped work, as published, annealed, and beside early exit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from effaudit import units
from effaudit.claims.evidence import Estimate, Evidence, Records, change, claimed, interpolated, soft, value
from effaudit.claims.points import against_dense, measured, points_table
from effaudit.claims.verdict import NOT_AUDITED, Bounds, Finding, finding
from effaudit.renderers._cells import Table

PUBLISHED_SKIPS, PUBLISHED_LOSS = 0.228, 0.004
SHARE_SLACK, LOSS_SLACK = 0.02, 0.002  # by which figures may miss published ones: the last digits, another seed
BETTER_THAN_EXITS = 0.0071
NO_COST = 0.005  # of loss, relative: what 0.5 % of re-evaluation noise in the paper's own sweep amounts to

PUBLISHED = "published_0.001"  # the published lambda for language
STRONGER = "published_0.05"
RECIPE = (PUBLISHED, "published_0.01", STRONGER)
ANNEALED = ("annealed_0.003", "annealed_0.01", "annealed_0.03")
EXITS = ("exit_0.5", "exit_0.65", "exit_0.8", "exit_0.9", "exit_0.95", "exit_0.99", "exit_1")
WORDS = ("first of a word", "rest of a word")
LOSS, SAVED, FLOPS = "quality.loss", "routing.tlops_saved", "flops.executed"

Share = Callable[[Records, str], float | None]


def findings(evidence: Evidence, subject: str = "TSA, Tiny-Shakespeare") -> list[Finding]:
    """What the characters say of the paper's claims, and of our own about the annealed gate."""
    stronger = f"{subject}, lambda {STRONGER.removeprefix('published_')}"
    annealed = f"{subject}, annealed"
    return [
        _skips(evidence, subject),
        _loss(evidence, subject),
        *(_beats_exits(evidence, name, model) for name, model in ((subject, PUBLISHED), (stronger, STRONGER))),
        *(
            _class_first(evidence, name, model, first, later)
            for name, model in ((subject, PUBLISHED), (annealed, ANNEALED[1]))
            for first, later in (("punctuation", WORDS), ("frequent word", ("rare word",)))
        ),
        _faster(evidence, subject),
        *(_annealed(evidence, f"{annealed}, lambda {model.removeprefix('annealed_')}", model) for model in ANNEALED),
    ]


def _skips(evidence: Evidence, subject: str) -> Finding:
    return finding(
        subject,
        f"skips {units.percent(PUBLISHED_SKIPS)} of the token-layer operations",
        "TSA, table 2",
        Bounds(low=PUBLISHED_SKIPS - SHARE_SLACK),
        ours=("skipped by the hard rule", evidence.over_seeds(lambda r: value(r, PUBLISHED, SAVED), "share")),
        theirs=("claimed by soft gates", evidence.over_seeds(lambda r: claimed(r, PUBLISHED), "share")),
    )


def _loss(evidence: Evidence, subject: str) -> Finding:
    return finding(
        subject,
        f"at {units.signed_percent(PUBLISHED_LOSS)} loss",
        "TSA, table 2",
        Bounds(high=PUBLISHED_LOSS + LOSS_SLACK),
        ours=("loss of hard gates, against dense", evidence.paired("dense", PUBLISHED, LOSS, "change")),
        theirs=("loss of soft gates, against dense", evidence.paired("dense", soft(PUBLISHED), LOSS, "change")),
    )


def _beats_exits(evidence: Evidence, subject: str, model: str) -> Finding:
    """Early exit with copied states; its loss at the TSA model's share is read off the line through its thresholds."""

    def hard(records: Records, name: str) -> float | None:
        return value(records, name, SAVED)

    def flops(records: Records, name: str) -> float | None:
        return change(records, "dense", name, FLOPS)

    ours = _beside_curve(evidence, model, EXITS, hard)
    by_flops = _beside_curve(evidence, model, EXITS, flops)
    return finding(
        subject,
        f"{units.percent(BETTER_THAN_EXITS, 2)} better than early exit at matched alpha",
        "TSA, table 4",
        Bounds(high=0.0),
        ours=("loss of hard gates against early exit at equal skipped operations", ours),
        theirs=(
            "loss of soft gates against early exit at what they claim",
            _beside_curve(evidence, model, EXITS, hard, claimed, soft),
        ),
        note=f"at equal executed FLOPs: {by_flops}" if by_flops else "",
        missing=_why_missing(evidence, model, "no early exit skips as little or as much"),
    )


def _beside_curve(
    evidence: Evidence,
    model: str,
    curve: Sequence[str],
    share: Share,
    at: Share | None = None,
    answers: Callable[[str], str] = str,
) -> Estimate | None:
    """The loss of a model against the line through those of `curve` at the model's own share, as a ratio less one.

    `share` places the models of the curve, `at` the model (by default as they); `answers` names the record that has
    the model's loss.
    """

    def ratio(records: Records) -> float | None:
        line = [(x, value(records, name, LOSS)) for name in curve if (x := share(records, name)) is not None]
        return _ratio_to_line(line, (at or share)(records, model), value(records, answers(model), LOSS))

    return evidence.over_seeds(ratio, "change")


def _ratio_to_line(line: Sequence[tuple[float, float | None]], at: float | None, own: float | None) -> float | None:
    if at is None or own is None:
        return None
    other = interpolated([(x, y) for x, y in line if y is not None], at)
    return None if other is None else own / other - 1


def _class_first(evidence: Evidence, subject: str, model: str, first: str, later: Sequence[str]) -> Finding:
    def more(kept: str) -> Estimate | None:
        def figure(records: Records) -> float | None:
            one, other = _skipped_of(records, model, (first,), kept), _skipped_of(records, model, later, kept)
            return None if one is None or other is None else one - other

        return evidence.over_seeds(figure, "points")

    than = "words" if later == WORDS else later[0] + "s"
    return finding(
        subject,
        f"{first if first == 'punctuation' else first + 's'} skipped before {than}",
        "TSA, section 4",
        Bounds(low=0.0),
        ours=(f"skipped by the hard rule, more than {than}", more("alpha_hard")),
        theirs=("by soft gates", more("alpha_soft")),
    )


def _skipped_of(records: Records, model: str, classes: Sequence[str], kept: str) -> float | None:
    """The share of the gated blocks that tokens of these classes are left out of."""
    rows = [row for row in records[model].token_classes if row.name in classes] if model in records else []
    known = [(row.n_tokens, share) for row in rows if (share := getattr(row, kept)) is not None]
    total = sum(n for n, _ in known)
    return 1 - sum(n * share for n, share in known) / total if total else None


def _faster(evidence: Evidence, subject: str) -> Finding:
    times = evidence.over_seeds(lambda r: change(r, "dense", PUBLISHED, "latency.p50"), "change")
    flops = evidence.over_seeds(lambda r: change(r, "dense", PUBLISHED, FLOPS), "change")
    return finding(
        subject,
        "2.3 % faster",
        "TSA, table 5: random weights, a synthetic router, none timed",
        Bounds(high=0.0),
        ours=("latency.p50 against dense, routers run", times),
        note=f"executed FLOPs: {flops}" if flops else "",
    )


def _annealed(evidence: Evidence, subject: str, model: str) -> Finding:
    """Beside the lines through the published recipe's lambdas: of hard gates, and of what soft gates promise."""

    def skipped(records: Records, name: str) -> float | None:
        return 0.0 if name == "dense" else value(records, name, SAVED)

    def promised(records: Records) -> float | None:
        line = [(0.0, value(records, "dense", LOSS))]
        line += [(x, value(records, soft(m), LOSS)) for m in RECIPE if (x := claimed(records, m)) is not None]
        return _ratio_to_line(line, value(records, model, SAVED), value(records, model, LOSS))

    return finding(
        subject,
        "closing the gap between soft and hard gates costs no quality",
        "ours",
        Bounds(high=NO_COST),
        ours=(
            "loss against the published recipe's hard gates at equal skipped operations",
            _beside_curve(evidence, model, ("dense", *RECIPE), skipped),
        ),
        theirs=("against its soft gates at equal claimed operations", evidence.over_seeds(promised, "change")),
        missing=_why_missing(evidence, model, "the published recipe skips as little or as much at no lambda"),
    )


def _why_missing(evidence: Evidence, model: str, no_share: str) -> str:
    return no_share if any(model in records for records in evidence.by_seed.values()) else NOT_AUDITED


def points(evidence: Evidence) -> Table:
    """The curves: loss against what is claimed, skipped, executed and timed."""
    columns = {
        "loss, soft gates, against dense": against_dense(evidence, LOSS, of=soft),
        "loss against dense": against_dense(evidence, LOSS),
        "claimed": lambda model: evidence.over_seeds(lambda r: claimed(r, model), "share"),
        "skipped": measured(evidence, SAVED),
        "FLOPs": against_dense(evidence, FLOPS),
        "latency": against_dense(evidence, "latency.p50"),
        "energy": against_dense(evidence, "energy.gross"),
    }
    return points_table("Characters: loss against skipped work", evidence, (*RECIPE, *ANNEALED, *EXITS), columns)
