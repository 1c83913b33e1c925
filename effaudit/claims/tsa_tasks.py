"""TSA on its synthetic tasks: what is skipped, where it comes from, what lambda and the initial bias decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from effaudit import units
from effaudit.claims.evidence import (
    Estimate,
    Evidence,
    Records,
    claimed,
    mean_of,
    soft,
    untrained,
    value,
)
from effaudit.claims.points import measured, points_table
from effaudit.claims.verdict import Bounds, Finding, finding
from effaudit.renderers._cells import Table

PUBLISHED_SKIPS = {"copy": 0.549, "sort": 0.225}  # of the token-layer operations
SLACK = 0.02  # by which a share may miss a published one: its last figure, and another seed
NO_LOSS = 0.005  # of accuracy; the paper's own sort lost 0.4 points
STEADY = 0.01  # within which accuracies over lambda are one
SAME_SHARE = 0.05  # within which shares from different initial biases are one

# Models by lambda at the published bias of -1, and by bias at two lambdas.
LAMBDAS = ("lambda_0", "lambda_0.001", "lambda_0.01", "lambda_0.05", "lambda_0.1")
PUBLISHED, FREE = "lambda_0.01", "lambda_0"
BIASES = {
    "0": ("bias_-3_lambda_0", FREE, "bias_+1_lambda_0"),
    "0.01": ("bias_-3_lambda_0.01", PUBLISHED, "bias_+1_lambda_0.01"),
}
ACCURACY, SAVED = "quality.accuracy", "routing.tlops_saved"
SOFT_ALPHA, HARD_ALPHA = "routing.alpha_soft", "routing.alpha_hard"


@dataclass(frozen=True)
class Task:
    """A synthetic task and what its audits found."""

    name: str
    evidence: Evidence

    def share(self, model: str, name: str) -> Estimate | None:
        return self.evidence.over_seeds(lambda records: value(records, model, name), "share")

    def claimed(self, model: str) -> Estimate | None:
        return self.evidence.over_seeds(lambda records: claimed(records, model), "share")

    def spread(self, models: Sequence[str], name: str) -> Estimate | None:
        """The greatest less the least of the models' figures, over the seeds that have all of them."""

        def figure(records: Records) -> float | None:
            found = [v for model in models if (v := value(records, model, name)) is not None]
            return max(found) - min(found) if len(found) == len(models) else None

        return self.evidence.over_seeds(figure, "points")


def findings(copy: Evidence, sort: Evidence) -> list[Finding]:
    """What both tasks say of the paper's claims."""
    tasks = (Task("copy", copy), Task("sort", sort))
    found: list[Finding] = []
    for task in tasks:
        found += [_skips(task), _accuracy(task), _emerges(task), _robust(task)]
        found += [_unbiased(task, weight) for weight in BIASES]
    return [*found, *(_harder(*tasks, model) for model in (PUBLISHED, FREE))]


def _skips(task: Task) -> Finding:
    share = PUBLISHED_SKIPS[task.name]
    return finding(
        f"TSA, {task.name}",
        f"skips {units.percent(share)} of the token-layer operations",
        "TSA, table 1",
        Bounds(low=share - SLACK),
        ours=("skipped by the hard rule", task.share(PUBLISHED, SAVED)),
        theirs=("claimed by soft gates", task.claimed(PUBLISHED)),
    )


def _accuracy(task: Task) -> Finding:
    return finding(
        f"TSA, {task.name}",
        "loses no accuracy by it",
        "TSA, table 1",
        Bounds(low=-NO_LOSS),
        ours=("hard gates, against dense", task.evidence.paired("dense", PUBLISHED, ACCURACY, "points")),
        theirs=("soft gates, against dense", task.evidence.paired("dense", soft(PUBLISHED), ACCURACY, "points")),
    )


def _emerges(task: Task) -> Finding:
    def gained(records: Records) -> float | None:
        before, after = claimed(records, untrained(FREE)), claimed(records, FREE)
        return None if before is None or after is None else after - before

    skipped = task.share(FREE, SAVED)
    return finding(
        f"TSA, {task.name}, lambda 0",
        "routing emerges from the task gradient alone",
        "TSA, abstract",
        Bounds(low=SLACK),
        ours=("claimed by soft gates, gained in training", task.evidence.over_seeds(gained, "points")),
        theirs=("claimed by soft gates", task.claimed(FREE)),
        note=f"skipped by the hard rule: {skipped}" if skipped else "",
    )


def _robust(task: Task) -> Finding:
    saved = task.spread(LAMBDAS, SAVED)
    return finding(
        f"TSA, {task.name}",
        "robust to lambda from 0 to 0.1",
        "TSA, table 6",
        Bounds(high=STEADY),
        ours=("accuracy of hard gates, best less worst", task.spread(LAMBDAS, ACCURACY)),
        theirs=("accuracy of soft gates, best less worst", task.spread([soft(m) for m in LAMBDAS], ACCURACY)),
        note=f"what is skipped differs by {saved}" if saved else "",
    )


def _unbiased(task: Task, weight: str) -> Finding:
    return finding(
        f"TSA, {task.name}, lambda {weight}",
        "alpha is learned, not what routers are born with",
        "TSA, abstract; initial biases -3, -1 and +1 are ours",
        Bounds(high=SAME_SHARE),
        ours=("alpha of the hard rule over biases, greatest less least", task.spread(BIASES[weight], HARD_ALPHA)),
        theirs=("alpha of soft gates", task.spread(BIASES[weight], SOFT_ALPHA)),
    )


def _harder(copy: Task, sort: Task, model: str) -> Finding:
    def more(figure: Callable[[Records], float | None]) -> Estimate | None:
        common = copy.evidence.by_seed.keys() & sort.evidence.by_seed.keys()
        pairs = ((figure(copy.evidence.by_seed[s]), figure(sort.evidence.by_seed[s])) for s in sorted(common))
        return mean_of((a - b if a is not None and b is not None else None for a, b in pairs), "points")

    return finding(
        f"TSA, copy and sort, lambda {model.removeprefix('lambda_')}",
        "the harder task gets more compute",
        "TSA, table 1",
        Bounds(low=SLACK),
        ours=("skipped on copy more than on sort", more(lambda records: value(records, model, SAVED))),
        theirs=("claimed on copy more than on sort", more(lambda records: claimed(records, model))),
    )


def points(name: str, evidence: Evidence) -> Table:
    """Every lambda and bias: what it answers, and how much it claims and skips."""
    task = Task(name, evidence)
    columns = {
        "accuracy, soft gates": measured(evidence, ACCURACY, of=soft),
        "accuracy, hard gates": measured(evidence, ACCURACY),
        "alpha soft, untrained": measured(evidence, SOFT_ALPHA, of=untrained),
        "alpha soft": measured(evidence, SOFT_ALPHA),
        "alpha hard": measured(evidence, HARD_ALPHA),
        "claimed": task.claimed,
        "skipped": measured(evidence, SAVED),
    }
    models = tuple(dict.fromkeys(("dense", *LAMBDAS, *BIASES["0"], *BIASES["0.01"])))
    return points_table(f"TSA on {name}: every lambda and initial bias", evidence, models, columns)
