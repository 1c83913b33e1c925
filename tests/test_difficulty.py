import pytest

from effaudit.difficulty import by_difficulty
from tests.fakes_records import examples, table


def test_levels_with_their_means() -> None:
    levels = by_difficulty(examples()["tsa"])
    assert [(row.level, row.n_examples) for row in levels] == [("1", 250), ("2", 250), ("3", 250), ("4", 250)]
    assert [row.alpha_hard for row in levels] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert [row.accuracy for row in levels] == [1.0, 1.0, 1.0, 0.0]
    assert levels[0].exit_layer is None


def test_many_difficulties_are_shown_as_quartiles() -> None:
    levels = by_difficulty(table(difficulty=list(range(100)), loss=list(range(100))))
    assert [row.level for row in levels] == ["0 to 24", "25 to 49", "50 to 74", "75 to 99"]
    assert [row.loss for row in levels] == [12.0, 37.0, 62.0, 87.0]


def test_no_difficulty_no_levels() -> None:
    assert by_difficulty(table(loss=[0.5])) == ()
    assert by_difficulty(None) == ()
