"""BudgetFormer on real text: is it better than dense, do its budgets mean anything, does it save what it says."""

from __future__ import annotations

from effaudit import denominators, difficulty, units
from effaudit.claims.evidence import Estimate, Evidence, Records, claimed, soft, value
from effaudit.claims.points import against_dense, measured, points_table
from effaudit.claims.verdict import NOT_AUDITED, Bounds, Finding, finding
from effaudit.renderers._cells import Table

PAPER = "BudgetFormer v1"
SAVES = {"AG News": 0.027, "SNLI": 0.021}  # of a model's FLOPs, as published
SLACK = 0.005  # by which these may be missed
AS_S = 0.05  # within which the cost ratio is "about s"
COLLAPSE = -0.1  # of accuracy: with all heads the paper's falls to chance
IDENTICAL = 1e-5  # by which losses of one and the same function may differ, nats

PUBLISHED, HELD = "published", "target"  # the hinge of the paper; budgets held near 0.3, matched to `static`
FIXED = ("fixed_0.1", "fixed_0.25", "fixed_0.5", "fixed_1")
WHOLES = {"attention core": "scores and mix", "attention": "the attention layer", "whole model": "the model"}
ACCURACY, HEADS = "quality.accuracy", "routing.head_fraction"


def findings(evidence: Evidence, name: str) -> list[Finding]:
    """What one data set says of the paper's claims."""
    subject = f"BudgetFormer, {name}"
    held = f"{subject}, k/H held at a quarter"
    return [
        _more_accurate(evidence, subject),
        _against(evidence, held, "random", "the choice of heads is learned: random ones are worse", "ablation 2"),
        _against(evidence, held, "static", "better than pruned heads at equal k/H", "the audit's question"),
        _follows_difficulty(evidence, subject),
        *(_cost_is_s(evidence, subject, of) for of in ("attention", "whole model")),
        _saves_flops(evidence, subject, SAVES[name]),
        _saves_energy(evidence, subject),
        *_all_heads(evidence, subject),
    ]


def _more_accurate(evidence: Evidence, subject: str) -> Finding:
    return finding(
        subject,
        "more accurate than dense",
        f"{PAPER}, table II",
        Bounds(low=0.0),
        ours=("the k best heads, against dense", evidence.paired("dense", PUBLISHED, ACCURACY, "points")),
        theirs=("all heads, weighed", evidence.paired("dense", soft(PUBLISHED), ACCURACY, "points")),
        note="dense got the same steps from the same start",
    )


def _against(evidence: Evidence, subject: str, other: str, claim: str, source: str) -> Finding:
    def at_inference(records: Records) -> float | None:
        controls = records[HELD].controls if HELD in records else ()
        found = next((c.difference for c in controls if c.kind == "random"), None)
        return None if found is None else -found

    heads = [evidence.over_seeds(lambda r, m=m: value(r, m, HEADS), "share") for m in (HELD, other)]  # type: ignore[misc]
    drawn = ("drawn anew at inference", evidence.over_seeds(at_inference, "points"))
    return finding(
        subject,
        claim,
        f"{PAPER}, {source}" if other == "random" else source,
        Bounds(low=0.0),
        ours=(f"chosen by input, against `{other}` trained as such", evidence.paired(other, HELD, ACCURACY, "points")),
        theirs=drawn if other == "random" else None,
        note=f"k/H {heads[0]} and {heads[1]}" if all(heads) else "",
    )


def _follows_difficulty(evidence: Evidence, subject: str) -> Finding:
    def rho(effort: str, is_given_length: bool) -> Estimate | None:
        def figure(records: Records) -> float | None:
            table = records[PUBLISHED].table if PUBLISHED in records else None
            dense = records["dense"].table if "dense" in records else None
            hard = None if table is None else difficulty.difficulty_of(table, difficulty.DENSE_LOSS, dense)
            rows = difficulty.follows(table, hard) if table is not None and hard is not None else ()
            found = next((row for row in rows if row.effort == effort), None)
            given = found and (found.given_length if is_given_length else found.rho)
            return given.value if given else None

        return evidence.over_seeds(figure, "plain")

    return finding(
        subject,
        "the budget rises with difficulty",
        f"{PAPER}, analysis",
        Bounds(low=0.0),
        ours=("rho of heads run and dense loss, length held fixed", rho("heads", True)),
        theirs=("rho of s and dense loss", rho("budget", False)),
        missing="heads run do not vary with the input" if rho("budget", False) else NOT_AUDITED,
    )


def _cost_is_s(evidence: Evidence, subject: str, of: denominators.Whole) -> Finding:
    def ratio(records: Records, whole: denominators.Whole) -> float | None:
        cuts = denominators.cuts(records[PUBLISHED]) if PUBLISHED in records else ()
        found = next((cut.change for cut in cuts if cut.of == whole), None)
        s = value(records, PUBLISHED, "routing.budget")
        return None if found is None or s is None else 1 + found - s

    s = evidence.over_seeds(lambda r: value(r, PUBLISHED, "routing.budget"), "share")
    return finding(
        subject,
        f"the cost ratio of {WHOLES[of]} is about s",
        f"{PAPER}, complexity",
        Bounds(-AS_S, AS_S),
        ours=(f"FLOPs ratio of {of}, less s", evidence.over_seeds(lambda r: ratio(r, of), "points")),
        theirs=("of the attention core, less s", evidence.over_seeds(lambda r: ratio(r, "attention core"), "points")),
        note=f"s is {s}" if s else "",
    )


def _saves_flops(evidence: Evidence, subject: str, share: float) -> Finding:
    return finding(
        subject,
        f"saves {units.percent(share)} of the FLOPs",
        f"{PAPER}, table II",
        Bounds(high=SLACK - share),
        ours=("executed, against dense", against_dense(evidence, "flops.executed")(PUBLISHED)),
        theirs=("heads that s claims are off", evidence.over_seeds(lambda r: claimed(r, PUBLISHED), "share")),
    )


def _saves_energy(evidence: Evidence, subject: str) -> Finding:
    times = against_dense(evidence, "latency.p50")(PUBLISHED)
    return finding(
        subject,
        "saves CO2",
        f"{PAPER}, table II: FLOPs times a constant",
        Bounds(high=0.0),
        ours=("energy.gross against dense", against_dense(evidence, "energy.gross")(PUBLISHED)),
        theirs=("as FLOPs", against_dense(evidence, "flops.executed")(PUBLISHED)),
        note=f"latency: {times}" if times else "",
    )


def _all_heads(evidence: Evidence, subject: str) -> list[Finding]:
    """The ablation in which more heads were noise, and what it must be if the module is what it says."""

    def apart(records: Records) -> float | None:
        tables = [records[name].table for name in ("dense", "identity") if name in records]
        if len(tables) < 2 or tables[0] is None or tables[1] is None:
            return None
        return float(abs(tables[0]["loss"] - tables[1]["loss"]).max())

    def kept(model: str) -> Estimate | None:
        return evidence.paired("dense", model, ACCURACY, "points")

    return [
        finding(
            subject,
            "with a budget of 1 accuracy collapses: more heads are noise",
            f"{PAPER}, ablation 1",
            Bounds(high=COLLAPSE),
            ours=("trained with s held at 1, against dense", kept("fixed_1")),
            theirs=("s forced to 1 on what was trained to choose", kept("forced_1")),
        ),
        finding(
            subject,
            "with all heads at unit gates it is multi-head attention",
            f"{PAPER}, method",
            Bounds(high=IDENTICAL),
            ours=("greatest difference of an example's loss from dense, nats", evidence.over_seeds(apart, "plain")),
        ),
    ]


def points(evidence: Evidence, name: str) -> Table:
    """Every model: what it answers, the budget it says, the heads it runs, what that costs."""
    columns = {
        "accuracy": measured(evidence, ACCURACY),
        "all heads, weighed": measured(evidence, ACCURACY, of=soft),
        "s": measured(evidence, "routing.budget"),
        "k/H": measured(evidence, HEADS),
        "FLOPs": against_dense(evidence, "flops.executed"),
        "latency": against_dense(evidence, "latency.p50"),
        "energy": against_dense(evidence, "energy.gross"),
    }
    models = ("dense", PUBLISHED, HELD, "random", "static", *FIXED, "identity", "forced_1")
    return points_table(f"BudgetFormer on {name}", evidence, models, columns)
