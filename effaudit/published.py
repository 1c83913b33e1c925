"""What the two papers published, as steps of the ladder, with the source of each figure and why the rest is missing.

Of secondary summaries where the text itself was not to be had. Figures that were never published are None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from effaudit.errors import unknown_name
from effaudit.ladder import STEPS, Step

TSA = "TSA paper, arXiv 2605.05222"
BUDGETFORMER = "BudgetFormer paper, arXiv 2604.22583 v1, from two published summaries"

NO_HARD_RATE = "the hard rate was never published: alpha is the mean of soft gates"
NO_K = "k/H was never published: s is the mean of a continuous budget"
NO_TIME = "no wall-clock time was published"
NO_ENERGY = "no energy was published"


@dataclass(frozen=True)
class PublishedStep:
    """One step as a change against the paper's dense model: -0.228 is 22.8 % less; None with the reason."""

    step: Step
    change: float | None
    source: str


@dataclass(frozen=True)
class Published:
    """One row of a paper: a model on a data set."""

    method: str  # the variant that it is about
    name: str
    dataset: str  # as it is called here
    steps: tuple[PublishedStep, ...]  # in the order of STEPS

    def __getitem__(self, step: Step) -> PublishedStep:
        return self.steps[STEPS.index(step)]


def _row(method: str, name: str, dataset: str, reasons: Mapping[Step, str], **changes: tuple[float, str]) -> Published:
    def step(name: Step) -> PublishedStep:
        change, source = changes.get(name, (None, reasons.get(name, "")))
        return PublishedStep(name, change, source)

    return Published(method, name, dataset, tuple(step(name) for name in STEPS))


def _tsa(name: str, dataset: str, alpha: float, latency: tuple[float, str] | None = None) -> Published:
    """alpha over five gated blocks of six: saved is 5/6 (1 - alpha), all of it soft."""
    reasons: dict[Step, str] = {
        "skipped": NO_HARD_RATE,
        "FLOPs": "no FLOPs were published, only token-layer operations",
        "latency": NO_TIME,
        "energy": NO_ENERGY,
    }
    timed = {} if latency is None else {"latency": latency}
    return _row("tsa", name, dataset, reasons, claimed=(-5 / 6 * (1 - alpha), f"{TSA}, tables 2 and 3"), **timed)


def _budgetformer(name: str, dataset: str, s: float, flops: float) -> Published:
    reasons: dict[Step, str] = {
        "skipped": NO_K,
        "latency": NO_TIME,
        "energy": "CO2 was published, but as FLOPs times a constant: it is no measurement",
    }
    source = f"{BUDGETFORMER}, table II"
    return _row("budgetformer", name, dataset, reasons, claimed=(s - 1, source), FLOPs=(-flops, source))


TIMED = f"{TSA}, table 5: random weights and a synthetic router"
PUBLISHED: tuple[Published, ...] = (
    _tsa("TSA, Tiny-Shakespeare", "tiny_shakespeare", 0.726, (1 / 1.023 - 1, TIMED)),
    _tsa("TSA, enwik8", "enwik8", 0.833, (0.0, TIMED)),
    _budgetformer("BudgetFormer, DBpedia", "dbpedia14", 0.085, 0.032),
    _budgetformer("BudgetFormer, AG News", "ag_news", 0.212, 0.027),
    _budgetformer("BudgetFormer, IMDB", "imdb", 0.601, 0.100),
    _budgetformer("BudgetFormer, SNLI", "snli", 0.364, 0.021),
    _budgetformer("BudgetFormer, Yelp Full", "yelp_full", 0.198, 0.201),
)
METHODS = tuple(dict.fromkeys(row.method for row in PUBLISHED))


def published(methods: tuple[str, ...]) -> tuple[Published, ...]:
    """The rows of these methods.

    Raises EffauditError when there is no such method.
    """
    for method in methods:
        if method not in METHODS:
            raise unknown_name("published methods", method, METHODS)
    return tuple(row for row in PUBLISHED if row.method in methods)
