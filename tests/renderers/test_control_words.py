import pytest

from effaudit.record import AuditRecord, Control
from effaudit.renderers._control_words import difference, lines, span, standing, value
from tests.fakes_findings import CONTROLS
from tests.fakes_records import figure, record


def held(control: Control, better: str = "higher") -> AuditRecord:
    measured = figure(control.measurement, 0.9, better="higher" if better == "higher" else "lower")
    return record("tsa", measurements=[measured]).model_copy(update={"controls": (control,)})


def bits(low: float, high: float) -> Control:
    changed = {"measurement": "quality.bpc", "value": 2.5, "difference": (low + high) / 2, "interval": (low, high)}
    return CONTROLS[0].model_copy(update=changed)


@pytest.mark.parametrize(
    ("interval", "better", "said"),
    [
        ((-0.08, -0.06), "higher", "better"),
        ((0.06, 0.08), "higher", "worse"),
        ((-0.01, 0.01), "higher", "not better"),
        ((0.06, 0.08), "lower", "better"),
        ((-0.08, -0.06), "lower", "worse"),
        (None, "lower", "not shown"),
    ],
)
def test_standing_follows_the_interval_and_the_direction(
    interval: tuple[float, float] | None, better: str, said: str
) -> None:
    control = CONTROLS[0].model_copy(update={"interval": interval})
    assert standing(held(control, better), control) == said


def test_shares_are_in_points_and_bits_have_four_decimals() -> None:
    assert (value(CONTROLS[0]), difference(CONTROLS[0]), span(CONTROLS[0])) == ("86.9 %", "-7.00", "[-8.00, -6.00]")
    assert (value(CONTROLS[2]), difference(CONTROLS[2]), span(CONTROLS[2])) == ("–", "–", "")
    assert (value(bits(0.01, 0.03)), difference(bits(0.01, 0.03))) == ("2.500", "+0.0200")
    assert span(bits(0.01, 0.03)) == "[0.0100, 0.0300]"


def test_the_sentence_is_about_the_control_that_decides() -> None:
    model = held(CONTROLS[0]).model_copy(update={"controls": CONTROLS})
    assert lines([record(), model]) == (
        "tsa with random routing at the same rate: accuracy 86.9 %, -7.00 points [-8.00, -6.00]: the learned "
        "routing is better (trained with another routing).",
    )


def test_learning_that_gained_nothing_is_said_in_plain_words() -> None:
    control = CONTROLS[1].model_copy(update={"kind": "random"})
    (said,) = lines([held(control)])
    assert said.endswith("the learned routing is not better, the two are not distinguishable on 512 examples.")


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        ((0.01, 0.03), "that much is lost by the hard rule"),
        ((-0.01, 0.03), "nothing is lost by the hard rule beyond doubt"),
        ((-0.03, -0.01), "the hard rule answers better"),
    ],
)
def test_the_leak_from_soft_gates_to_the_hard_rule_is_named(interval: tuple[float, float], said: str) -> None:
    soft = CONTROLS[1].model_copy(update={"kind": "soft", "interval": interval})
    (told,) = lines([held(soft)])
    assert told.startswith("tsa with soft gates: accuracy 93.8 %, -0.10 points")
    assert said in told
