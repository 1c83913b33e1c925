"""Verdicts on records made by hand: what the gates of each say, skip and answer is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from effaudit.claims import budgetformer, carbon, tsa_characters, tsa_tasks
from effaudit.claims.evidence import Evidence, soft, untrained
from effaudit.claims.verdict import Finding
from effaudit.example_table import ExampleTable
from effaudit.record import AuditRecord, Control, TokenClassRow
from tests import fakes_records as fakes

SEEDS = (0, 1, 2)
Numbers = Mapping[str, float]

UNITS = {"flops.executed": "FLOP", "energy.gross": "J", "latency.p50": "s"}


def model(name: str, variant: str = "tsa", **numbers: float) -> AuditRecord:
    """A record with these measurements, a `_` in their names for each dot but the last words' own."""
    known = {
        "accuracy": "quality.accuracy",
        "loss": "quality.loss",
        "alpha_soft": "routing.alpha_soft",
        "alpha_hard": "routing.alpha_hard",
        "saved": "routing.tlops_saved",
        "flops": "flops.executed",
        "time": "latency.p50",
        "energy": "energy.gross",
        "s": "routing.budget",
        "heads": "routing.head_fraction",
        "core": "flops.attention_core",
        "dense_core": "flops.dense_attention_core",
        "layer": "flops.attention_layer",
        "dense_layer": "flops.dense_attention_layer",
        "dense_flops": "flops.dense",
    }
    figures = [
        fakes.figure(known[key], number, UNITS.get(known[key], "1"), "higher" if key == "accuracy" else "lower")
        for key, number in numbers.items()
    ]
    return fakes.record(name, variant, figures, profile={"size": {"n_layers": 6}})


def evidence(of_seed: Callable[[int], list[AuditRecord]]) -> Evidence:
    return Evidence({seed: {record.model.name: record for record in of_seed(seed)} for seed in SEEDS})


def row(found: list[Finding], claim: str, subject: str = "") -> Finding:
    (match,) = [f for f in found if claim in f.claim and f.subject.endswith(subject)]
    return match


def tsa(name: str, alpha_soft: float, alpha_hard: float, accuracy: float = 1.0) -> AuditRecord:
    saved = 5 / 6 * (1 - alpha_hard)
    return model(name, alpha_soft=alpha_soft, alpha_hard=alpha_hard, saved=saved, accuracy=accuracy)


def synthetic(hard: float, alpha_soft: float, born: float = 0.73, accuracy: float = 1.0) -> Evidence:
    """Every lambda and bias alike, but for a little of its own in each seed."""
    names = dict.fromkeys((*tsa_tasks.LAMBDAS, *tsa_tasks.BIASES["0"], *tsa_tasks.BIASES["0.01"]))

    def of_seed(seed: int) -> list[AuditRecord]:
        wobble = 0.001 * seed
        records = [model("dense", "dense", accuracy=1.0)]
        for name in names:
            records.append(tsa(name, alpha_soft + wobble, hard, accuracy - wobble))
            records.append(tsa(soft(name), alpha_soft, 1.0, 1.0))
            records.append(tsa(untrained(name), born, 1.0, 0.0))
        return records

    return evidence(of_seed)


def test_a_soft_claim_that_no_hard_gate_keeps_does_not_hold() -> None:
    found = tsa_tasks.findings(synthetic(hard=1.0, alpha_soft=0.341), synthetic(hard=1.0, alpha_soft=0.73))
    skips = row(found, "54.9 %", "copy")
    assert skips.verdict == "does not hold"
    assert skips.ours == "skipped by the hard rule: 0.0 % [0.0, 0.0]"
    assert skips.theirs is not None
    assert skips.theirs.startswith("claimed by soft gates: 54.8 %")


def test_what_is_really_skipped_holds() -> None:
    found = tsa_tasks.findings(synthetic(hard=0.3, alpha_soft=0.3), synthetic(hard=0.72, alpha_soft=0.72))
    assert row(found, "54.9 %", "copy").verdict == "holds"
    assert row(found, "22.5 %", "sort").verdict == "holds"
    assert row(found, "harder task", "lambda 0.01").verdict == "holds"
    assert row(found, "no accuracy", "sort").verdict == "holds"


def test_gates_that_stay_as_they_were_born_have_learned_nothing() -> None:
    found = tsa_tasks.findings(synthetic(1.0, 0.755), synthetic(1.0, 0.755))
    emerges = row(found, "emerges", "copy, lambda 0")
    assert emerges.verdict == "does not hold"
    assert emerges.ours is not None
    assert emerges.ours.startswith("claimed by soft gates, gained in training: -2.2 points")
    assert "skipped by the hard rule: 0.0 %" in emerges.reason


def test_accuracy_that_hard_gates_lose_is_told() -> None:
    found = tsa_tasks.findings(synthetic(0.3, 0.3, accuracy=0.97), synthetic(0.7, 0.7))
    lost = row(found, "no accuracy", "copy")
    assert lost.verdict == "does not hold"
    assert lost.theirs == "soft gates, against dense: 0.0 points [0.0, 0.0]"


def test_the_points_have_what_gates_said_before_training() -> None:
    table = tsa_tasks.points("copy", synthetic(0.3, 0.34))
    place = table.heads.index("alpha soft, untrained")
    cells = {cells[0].text: cells for cells in table.rows}
    assert cells["lambda_0.01"][place].text == "73.0 % [73.0, 73.0]"
    assert cells["dense"][place].text == "–"
    assert {row[1].text for row in table.rows} == {"3"}


def characters(tsa_loss: float, saved: float = 0.25, soft_loss: float = 1.0) -> Evidence:
    """Early exit loses 0.4 of a loss of 1 for all it skips, on a line; the recipe loses as asked."""

    def of_seed(seed: int) -> list[AuditRecord]:
        wobble = 1e-4 * seed
        records = [model("dense", "dense", loss=1.0, flops=100.0, time=1.0)]
        for i, name in enumerate(tsa_characters.EXITS):
            skipped = 0.6 - 0.1 * i
            flops = 100 * (1 - 0.9 * skipped)
            records.append(model(name, "early_exit", loss=1 + 0.4 * skipped, saved=skipped, flops=flops, time=1.0))
        for i, name in enumerate(tsa_characters.RECIPE):
            skipped = saved * (i + 1)
            figures = {"alpha_soft": 1 - 1.2 * skipped, "saved": skipped, "flops": 100 * (1 - 0.9 * skipped)}
            records.append(model(name, loss=tsa_loss + wobble + 0.2 * i, time=1.1, **figures))
            records.append(model(soft(name), loss=soft_loss, alpha_soft=1 - 1.2 * skipped, saved=0.0))
        for name in tsa_characters.ANNEALED:
            records.append(model(name, loss=1.04 + wobble, saved=0.25, flops=78.0, time=0.9))
        return records

    return evidence(of_seed)


def test_the_loss_at_equal_skipped_operations_is_read_off_the_exits() -> None:
    """Early exit loses 0.1 at a quarter skipped: 1.05 is 4.5 % better, 1.2 is 9 % worse."""
    better = tsa_characters.findings(characters(1.05))
    claim = row(better, "better than early exit", "Shakespeare")
    assert claim.verdict == "holds"
    assert claim.ours is not None
    assert "-4.5 %" in claim.ours
    assert "at equal executed FLOPs: -4.5 %" in claim.reason
    assert (
        row(tsa_characters.findings(characters(1.2)), "better than early exit", "Shakespeare").verdict
        == "does not hold"
    )


def test_a_share_that_no_early_exit_has_is_not_compared() -> None:
    found = tsa_characters.findings(characters(1.05, saved=0.3))
    stronger = row(found, "better than early exit", "0.05")  # skips 0.9
    assert (stronger.verdict, stronger.ours) == ("cannot be told", None)
    assert stronger.reason.startswith("no early exit skips")


def test_slower_is_not_faster_whatever_is_skipped() -> None:
    claim = row(tsa_characters.findings(characters(1.05)), "faster")
    assert claim.verdict == "does not hold"
    assert claim.ours == "latency.p50 against dense, routers run: +10.0 % [10.0, 10.0]"


def test_the_annealed_gate_is_held_against_both_curves_of_the_recipe() -> None:
    claim = row(tsa_characters.findings(characters(1.1, soft_loss=1.0)), "closing the gap", "0.01")
    assert claim.verdict == "holds"  # 1.04 beside the recipe's 1.1
    assert claim.theirs is not None
    assert "+4.0 %" in claim.theirs  # beside its soft gates' 1.0


def test_classes_that_are_skipped_first() -> None:
    classes = (
        TokenClassRow(name="punctuation", n_tokens=100, alpha_soft=0.5, alpha_hard=0.4),
        TokenClassRow(name="first of a word", n_tokens=100, alpha_soft=0.7, alpha_hard=0.9),
        TokenClassRow(name="rest of a word", n_tokens=300, alpha_soft=0.7, alpha_hard=0.8),
        TokenClassRow(name="frequent word", n_tokens=200, alpha_soft=0.8, alpha_hard=0.9),
        TokenClassRow(name="rare word", n_tokens=200, alpha_soft=0.6, alpha_hard=0.8),
    )
    there = characters(1.05).by_seed
    records = {
        seed: {
            n: r.model_copy(update={"token_classes": classes}) if r.model.variant == "tsa" else r for n, r in of.items()
        }
        for seed, of in there.items()
    }
    found = tsa_characters.findings(Evidence(records))
    first = row(found, "punctuation skipped before words", "Tiny-Shakespeare")
    assert first.ours is not None
    assert "+42.5 points" in first.ours
    assert first.verdict == "holds"
    assert (
        row(found, "frequent words skipped before rare words", "TSA, Tiny-Shakespeare, annealed").verdict
        == "does not hold"
    )


def texts(accuracy: Numbers, core: float = 0.5, layer: float = 0.7) -> Evidence:
    def table(right: float) -> ExampleTable:
        return fakes.table(
            loss=[0.1 * (i % 40) for i in range(400)],
            n_tokens=[10 + i * i % 7 for i in range(400)],
            budget=[0.3 + 0.01 * (i % 40) for i in range(400)],
            heads=[0.25 + 0.01 * (i % 40 // 10) for i in range(400)],
            correct=[float(i < 400 * right) for i in range(400)],
            n_asked=[1] * 400,
        )

    def of_seed(seed: int) -> list[AuditRecord]:
        names = ("dense", "published", "target", "random", "static", "fixed_1", "forced_1", "identity")
        records = []
        for name in names:
            costs = {
                "core": core,
                "dense_core": 1.0,
                "layer": layer,
                "dense_layer": 1.0,
                "flops": 0.95,
                "dense_flops": 1.0,
            }
            figures = {"accuracy": accuracy.get(name, 0.9) + 1e-4 * seed, "s": 0.5, "heads": 0.25, **costs}
            records.append(model(name, "budgetformer", time=1.2, energy=1.2, **figures))
        records.append(model(soft("published"), "budgetformer", accuracy=0.9))
        records[0] = model("dense", "dense", accuracy=0.9, flops=1.0, time=1.0, energy=1.0)
        workload = fakes.WORKLOAD.model_copy(update={"n_examples": 400})
        drawn = Control(
            kind="random",
            measurement="quality.accuracy",
            n_draws=3,
            value=0.5,
            difference=-0.4,
            interval=None,
            flops_ratio=1.0,
        )
        return [
            r.model_copy(update={"workload": workload, "controls": (drawn,)}).with_table(
                table(accuracy.get(r.model.name, 0.9))
            )
            for r in records
        ]

    return evidence(of_seed)


def test_heads_that_are_no_better_than_random_ones_trained_as_such() -> None:
    found = budgetformer.findings(texts({"random": 0.92}), "SNLI")
    claim = row(found, "choice of heads is learned")
    assert claim.verdict == "does not hold"
    assert claim.theirs == "drawn anew at inference: +40.0 points [40.0, 40.0]"


def test_budgets_that_follow_difficulty_at_equal_length() -> None:
    claim = row(budgetformer.findings(texts({}), "AG News"), "rises with difficulty")
    assert claim.verdict == "holds"
    assert claim.theirs is not None
    assert claim.theirs.startswith("rho of s and dense loss: 1")


def test_the_cost_of_the_whole_is_not_s_where_that_of_a_part_is() -> None:
    found = budgetformer.findings(texts({}), "AG News")
    (attention, whole) = [f for f in found if "about s" in f.claim]
    assert (attention.verdict, whole.verdict) == ("does not hold", "does not hold")
    assert attention.theirs is not None
    assert attention.theirs.startswith("of the attention core, less s: 0.0 points")


def test_savings_of_flops_that_cost_energy() -> None:
    found = budgetformer.findings(texts({}), "AG News")
    assert row(found, "2.7 % of the FLOPs").verdict == "holds"
    assert row(found, "saves CO2").verdict == "does not hold"


def test_all_heads_are_dense_and_do_not_collapse() -> None:
    found = budgetformer.findings(texts({"forced_1": 0.3}), "SNLI")
    collapse = row(found, "collapses")
    assert collapse.verdict == "does not hold"
    assert collapse.theirs is not None
    assert "-60.0 points" in collapse.theirs
    assert row(found, "multi-head attention").verdict == "holds"


def modelled(source: str) -> Evidence:
    def of_seed(seed: int) -> list[AuditRecord]:
        found = []
        for name, energy, time, flops in (("dense", 1.0, 1.0, 1.0), ("tsa", 1.1, 1.1, 0.7), ("exit", 0.9, 0.9, 0.6)):
            figures = [
                fakes.figure(
                    "energy.gross", energy + 1e-3 * seed, "J", source="measured" if source == "measured" else "modelled"
                ),
                fakes.figure("latency.p50", time, "s", source="measured"),
                fakes.figure("flops.executed", flops, "FLOP"),
            ]
            found.append(fakes.record(name, name if name == "dense" else "tsa", figures))
        return found

    return evidence(of_seed)


def test_measured_energy_that_is_nearer_to_time_than_to_flops() -> None:
    (claim,) = carbon.findings({"any": modelled("measured")})
    assert claim.verdict == "does not hold"
    assert claim.ours is not None
    assert claim.ours.startswith("energy's distance from time less that from FLOPs: -4")


def test_energy_that_was_modelled_from_time_tells_nothing() -> None:
    (claim,) = carbon.findings({"any": modelled("modelled")})
    assert (claim.verdict, claim.reason) == ("cannot be told", carbon.MODELLED)


def test_energy_that_was_modelled_in_part_tells_nothing_either() -> None:
    (claim,) = carbon.findings({"one": modelled("measured"), "other": modelled("modelled")})
    assert (claim.verdict, claim.reason) == ("cannot be told", carbon.MODELLED)


def test_without_any_audit_every_claim_says_so() -> None:
    nothing = Evidence({})
    found = [
        *tsa_tasks.findings(nothing, nothing),
        *tsa_characters.findings(nothing),
        *budgetformer.findings(nothing, "SNLI"),
        *carbon.findings({}),
    ]
    assert {f.verdict for f in found} == {"cannot be told"}
    assert {f.reason for f in found} <= {
        "not audited yet",
        "not audited yet; dense got the same steps from the same start",
    }


@pytest.mark.parametrize("name", ["copy", "sort"])
def test_points_without_any_audit_are_empty(name: str) -> None:
    table = tsa_tasks.points(name, Evidence({}))
    assert {cell.text for cells in table.rows for cell in cells[2:]} == {"–"}
