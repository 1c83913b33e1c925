import pytest
import torch
from torch import nn

import effaudit


def test_the_count_comes_back_when_it_is_within_the_limit() -> None:
    model = nn.Linear(8, 4)
    assert effaudit.assert_flops(model, torch.zeros(3, 8), at_most=192).total == 2 * 3 * 8 * 4
    assert effaudit.assert_flops(torch.mm, (torch.zeros(2, 3), torch.zeros(3, 4)), at_most=48).total == 48
    assert effaudit.assert_flops(torch.mm, {"input": torch.zeros(2, 3), "mat2": torch.zeros(3, 4)}, at_most=48)


def test_more_than_allowed_names_what_costs() -> None:
    model = nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 2))
    with pytest.raises(AssertionError) as caught:
        effaudit.assert_flops(model, torch.zeros(1, 8), at_most=1_000)
    assert str(caught.value).splitlines() == [
        "1,280 FLOPs ran, at most 1,000 FLOPs may (+28.0 %)",
        "  0: 1,024 FLOPs",
        "  1: 256 FLOPs",
    ]
    with pytest.raises(AssertionError, match="at most 0 FLOPs may"):
        effaudit.assert_flops(model, torch.zeros(1, 8), at_most=0)


def test_an_op_without_a_formula_leaves_it_open() -> None:
    @torch.library.custom_op("effaudit_tests::silent_work", mutates_args=())
    def silent_work(x: torch.Tensor) -> torch.Tensor:
        return x @ x

    with pytest.raises(AssertionError, match=r"no formula for effaudit_tests.silent_work"):
        effaudit.assert_flops(silent_work, torch.zeros(2, 2), at_most=10**9)
