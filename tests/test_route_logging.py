"""Routing that a model logs: nothing happens while none listens, and every shape becomes the meters' one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import effaudit
from effaudit import route_logging
from effaudit.errors import EffauditError
from effaudit.logged_routes import routing_of
from effaudit.route_logging import RouteLog, listening, log_routing
from effaudit.workload import Routing
from tests import makers

BATCH = makers.batch("classification", (4, 2, 3))  # B 3, T 4, padded
B, T = BATCH.tokens.shape


class Untouchable:
    """Fails as soon as anything is asked of it."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"`{name}` was asked for")


def logged(n_layers: int = 0, *calls: dict[str, Any]) -> Routing:
    with listening() as log:
        for call in calls:
            log_routing(**call)
    return routing_of(log, BATCH, n_layers)


def mask(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5


def test_it_is_public_and_found_without_a_lookup() -> None:
    assert effaudit.log_routing is log_routing
    assert vars(effaudit)["log_routing"] is log_routing  # later calls find a plain attribute


def test_nothing_is_touched_while_none_listens() -> None:
    thing: Any = Untouchable()
    log_routing(layer=thing, tokens=thing, heads=thing, exits=thing, gate=thing)


def test_listening_ends_with_its_block_also_when_it_raises() -> None:
    def fails() -> None:
        with listening() as log:
            logs.append(log)
            log_routing(layer=0, tokens=mask(B, T))
            raise RuntimeError

    logs: list[RouteLog] = []
    with pytest.raises(RuntimeError):
        fails()
    log_routing(layer=0, tokens=mask(B, T))
    assert len(logs[0].routes) == 1
    assert route_logging._log is None


def test_what_is_logged_stands_as_it_was() -> None:
    tokens = torch.ones(B, T, dtype=torch.bool)
    with listening() as log:
        log_routing(layer=0, tokens=tokens)
        tokens.zero_()
    assert routing_of(log, BATCH, 0).tokens.all()  # type: ignore[union-attr]


@pytest.mark.parametrize("flat", [False, True])
def test_token_masks_by_layer(flat: bool) -> None:
    masks = [mask(B, T, seed=i) for i in range(2)]
    routing = logged(3, *({"layer": i + 1, "tokens": m.flatten() if flat else m} for i, m in enumerate(masks)))
    assert routing.tokens is not None
    assert routing.gated == (1, 2)
    assert routing.gate is None
    assert routing.tokens.shape == (B, T, 3)
    assert routing.tokens[:, :, 0].all()  # a layer that logs nothing runs everything
    for i, expected in enumerate(masks):
        assert torch.equal(routing.tokens[:, :, i + 1], expected)
    assert routing.path == ("full", "logged", "logged")


def test_whole_examples_skip_a_layer() -> None:
    skipped = torch.tensor([True, False, True])
    routing = logged(2, {"layer": 0, "tokens": mask(B, T)}, {"layer": 1, "tokens": skipped})
    assert routing.tokens is not None
    assert torch.equal(routing.tokens[:, :, 1], skipped[:, None].expand(B, T))


def test_maps_of_positions_are_flattened_and_lost_positions_are_skipped() -> None:
    routing = logged(2, {"layer": 0, "tokens": mask(B, 3, 3)}, {"layer": 1, "tokens": torch.ones(B, 5).bool()})
    assert routing.tokens is not None
    assert routing.tokens.shape == (B, 9, 2)
    assert routing.tokens[:, :5, 1].all()
    assert not routing.tokens[:, 5:, 1].any()


def test_parts_of_a_batch_logged_one_after_another_are_one() -> None:
    whole = mask(B, T)
    parts = [{"layer": 0, "tokens": part} for part in whole.split(2)]
    routing = logged(1, *parts)
    assert routing.tokens is not None
    assert torch.equal(routing.tokens[:, :, 0], whole)


def test_gates_go_with_masks_and_skip_nothing_alone() -> None:
    gate = torch.rand(B, T)
    routing = logged(2, {"layer": 0, "tokens": gate > 0.5, "gate": gate}, {"layer": 1, "gate": gate})
    assert routing.gate is not None
    assert routing.tokens is not None
    assert torch.equal(routing.gate[:, :, 0], gate)
    assert torch.equal(routing.gate[:, :, 1], gate)
    assert torch.equal(routing.tokens[:, :, 0], gate > 0.5)
    assert routing.tokens[:, :, 1].all()


def test_heads_by_example_for_all_alike_and_by_token() -> None:
    each, alike, experts = mask(B, 4), mask(4, seed=1), mask(B, T, 4, seed=2)
    routing = logged(
        4, {"layer": 0, "heads": each}, {"layer": 1, "heads": alike}, {"layer": 2, "heads": experts.flatten(0, 1)}
    )
    assert routing.heads is not None
    assert routing.heads.shape == (B, 4, 4)
    assert torch.equal(routing.heads[:, 0], each.float())
    assert torch.equal(routing.heads[:, 1], alike.float().expand(B, 4))
    real = BATCH.mask
    for example in range(B):  # padding takes no part
        expected = experts[example][real[example]].float().mean(dim=0)
        torch.testing.assert_close(routing.heads[example, 2], expected)
    assert routing.heads[:, 3].eq(1).all()
    assert routing.tokens is None


def test_layers_of_different_width_keep_their_shares() -> None:
    routing = logged(2, {"layer": 0, "heads": mask(B, 4)}, {"layer": 1, "heads": mask(B, 6)})
    assert routing.heads is not None
    assert routing.heads.shape == (B, 2, 1)
    torch.testing.assert_close(routing.heads[:, 1, 0], mask(B, 6).float().mean(dim=1))


def test_gate_of_heads_is_the_budget() -> None:
    s, gates = torch.rand(B), torch.rand(B, 4)
    routing = logged(3, {"layer": 0, "heads": mask(B, 4), "gate": s}, {"layer": 1, "heads": mask(B, 4), "gate": gates})
    assert routing.budget is not None
    torch.testing.assert_close(routing.budget, torch.stack([s, gates.mean(dim=1), torch.ones(B)], dim=1))


@pytest.mark.parametrize("per_token", [False, True])
def test_exits(per_token: bool) -> None:
    exits = torch.tensor([1, 3, 2]) if not per_token else torch.randint(1, 4, (B, T))
    routing = logged(3, {"layer": 2, "exits": exits.flatten()})
    assert routing.exits is not None
    assert torch.equal(routing.exits, exits)
    assert logged(0, {"layer": 0, "exits": torch.tensor([1, 5, 2])}).path == ("logged", *["full"] * 4)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ([{"layer": 3, "tokens": mask(B, T)}], "the model has 3 layers"),
        ([{"layer": 0, "tokens": mask(B * T - 1)}], "do not divide among the 3 examples"),
        ([{"layer": 0, "heads": mask(B * T - 1, 4)}], "do not divide among the 3 examples"),
        ([{"layer": 0, "exits": torch.tensor([1, 2])}], "do not divide among the 3 examples"),
        ([{"layer": 0, "exits": torch.tensor([1, 2, 4])}], "4 layers run, of 3"),
        ([{"layer": 0, "exits": torch.tensor([1, 0, 2])}], "0 layers run, of 3"),
        ([{"layer": 0, "tokens": mask(B, T), "heads": mask(B, 4)}], "takes one of"),
        ([{"layer": 0}], "takes one of"),
        ([{"layer": -1, "tokens": mask(B, T)}], "`layer` is -1"),
        ([{"layer": True, "tokens": mask(B, T)}], "`layer` is True"),
        ([{"layer": 0, "tokens": [True] * B}], "a list is no tensor"),
        ([{"layer": 0, "heads": torch.tensor(True)}], "a single value is no mask"),
        ([{"layer": 2, "tokens": mask(B, T), "gate": torch.full((B, T), 1.5)}], r"layer=2, gate=…\): values outside"),
        ([{"layer": 0, "gate": torch.full((B, T), float("nan"))}], r"values outside \[0, 1\]"),
        ([{"layer": 0, "tokens": torch.full((B, T), 0.5)}], "other values than 0 and 1"),
        ([{"layer": 0, "heads": torch.full((B, 4), 2)}], "other values than 0 and 1"),
    ],
)
def test_what_does_not_fit_is_refused(calls: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(EffauditError, match=message):
        logged(3, *calls)


def test_what_takes_work_is_asked_for_only_where_an_audit_listens() -> None:
    asked: list[int] = []

    def tokens() -> Tensor:
        asked.append(1)
        return mask(B, T)

    log_routing(layer=0, tokens=tokens)
    assert asked == []
    routing = logged(1, {"layer": 0, "tokens": tokens})
    assert asked == [1]
    assert routing.tokens is not None
    assert torch.equal(routing.tokens[:, :, 0], mask(B, T))


def test_inference_mode_and_devices_without_a_host_copy() -> None:
    with torch.inference_mode(), listening() as log:
        log_routing(layer=0, tokens=torch.ones(B, T, dtype=torch.bool, device="meta"))
    (route,) = log.routes
    assert route.tokens is not None
    assert route.tokens.device.type == "meta"  # where a copy to the host would have failed
