import numpy as np
import pytest

from effaudit.difficulty import Difficulty, by_difficulty, difficulty_of, follows
from effaudit.example_table import ExampleTable
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


def test_difficulty_is_level_else_dense_loss_else_length() -> None:
    level, length, loss = [1.0, 2.0], [5.0, 6.0], [0.3, 0.1]
    dense = table(loss=loss)
    full = table(difficulty=level, n_tokens=length)
    bare = table(n_tokens=length)
    cases = [(full, dense, "level", level), (bare, dense, "dense_loss", loss), (bare, None, "length", length)]
    for own, other, name, values in cases:
        found = difficulty_of(own, None, other)
        assert found is not None
        assert (found.name, found.values.tolist()) == (name, values)
    asked = difficulty_of(full, "n_tokens", None)
    assert asked is not None
    assert asked.values.tolist() == length
    assert difficulty_of(full, "no such column", dense) is None
    assert difficulty_of(table(loss=[1.0]), "dense_loss", None) is None


def test_dense_loss_is_joined_by_index() -> None:
    dense = ExampleTable(None, {"index": [1, 0], "loss": [0.1, 0.2]})
    found = difficulty_of(table(n_tokens=[3, 4, 5]), None, dense)
    assert found is not None
    assert found.values[:2].tolist() == [0.2, 0.1]
    assert np.isnan(found.values[2])
    assert sum(row.n_examples for row in by_difficulty(table(n_tokens=[3, 4, 5]), found.values)) == 2


def test_effort_that_follows_length_alone_follows_nothing_else() -> None:
    random = np.random.default_rng(0)
    length = random.integers(10, 60, 400).astype(float)
    hard = length + random.normal(0, 8, 400)  # longer texts are harder
    by_length = table(n_tokens=length.tolist(), exit_layer=(length + random.normal(0, 4, 400)).tolist())
    (found,) = follows(by_length, Difficulty("level", hard))
    assert (found.effort, found.difficulty, found.n_examples) == ("exit_layer", "level", 400)
    assert found.rho.value > 0.8
    assert found.given_length is not None
    assert abs(found.given_length.value) < 0.15
    assert found.of_length is not None
    assert found.of_length.value > 0.9


def test_nothing_is_said_of_what_does_not_vary() -> None:
    same = table(n_tokens=[7.0] * 50, heads=[0.5] * 50, exit_layer=[float(i % 4) for i in range(50)])
    (found,) = follows(same, Difficulty("level", np.arange(50.0)))
    assert (found.effort, found.given_length) == ("exit_layer", None)
