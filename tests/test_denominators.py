import pytest

from effaudit.denominators import cuts
from effaudit.record import AuditRecord
from tests.fakes_records import figure, record


def counted(**flops: int | None) -> AuditRecord:
    """Attention that skips half of its core of 100, none of its projections of 300, in a model of 1000."""
    known = {
        "attention_core": 50,
        "dense_attention_core": 100,
        "attention_layer": 350,
        "dense_attention_layer": 400,
        "executed": 950,
        "dense": 1000,
    }
    return record("tsa", measurements=[figure(f"flops.{name}", n, "FLOP") for name, n in {**known, **flops}.items()])


def test_one_cut_is_three_shares() -> None:
    found = cuts(counted())
    assert [cut.of for cut in found] == ["attention core", "attention", "whole model"]
    assert [cut.change for cut in found] == pytest.approx([-0.5, -0.125, -0.05])


def test_routers_can_cost_more_than_is_saved() -> None:
    assert cuts(counted(executed=1100))[2].change == pytest.approx(0.1)


def test_what_cannot_be_had_says_why() -> None:
    core, attention, whole = cuts(counted(attention_core=None, dense_attention_layer=0))
    assert (core.change, core.reason) == (None, "flops.attention_core: by hand")
    assert (attention.change, attention.reason) == (None, "flops.dense_attention_layer is zero")
    assert whole.change == pytest.approx(-0.05)
    assert [cut.reason for cut in cuts(record())] == [
        "flops.attention_core: not measured",
        "flops.attention_layer: not measured",
        "flops.executed: not measured",
    ]
