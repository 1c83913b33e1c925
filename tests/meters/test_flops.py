"""The FLOPs meter on tiny workloads whose formulas are known."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from effaudit import plugins
from effaudit.meters import flops
from effaudit.profile_spec import AuditSpec
from effaudit.record import Findings
from effaudit.workload import Batch, Execution, Output, Routing, Workload
from tests import makers

T, D, C = 4, 8, 2
LAYER, HEAD = 2 * T * D * D, 2 * D * C  # FLOPs of one example


class Exiting(nn.Module):
    """Examples whose first token is 1 take both layers, the others leave after the first."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2, D)
        self.layers = nn.ModuleList(nn.Linear(D, D) for _ in range(2))
        self.head = nn.Linear(D, C)
        self.head.weight = nn.Parameter(self.table.weight.detach())  # same storage as the table's

    def forward(self, batch: Batch, routing: Routing | None = None) -> Output:
        x = self.layers[0](self.table(batch.tokens))  # (B, T, D)
        stays = batch.tokens[:, 0] == 1
        if stays.any():
            x[stays] = self.layers[1](x[stays])
        return Output(self.head(x.mean(1)), Routing(exits=1 + stays.long()))


def _formula(batch: Batch, routing: Routing, execution: Execution) -> Tensor:
    n = batch.n_examples
    if execution == "dense":
        return torch.full((n,), 2 * LAYER + HEAD)
    assert routing.exits is not None
    return routing.exits * LAYER + HEAD


def _batch(first: int, *leading: int) -> Batch:
    tokens = torch.zeros(len(leading), T, dtype=torch.long)
    tokens[:, 0] = torch.tensor(leading)
    index = torch.arange(first, first + len(leading))
    return Batch(tokens, torch.ones_like(tokens, dtype=torch.bool), torch.zeros(len(leading)), index, is_padded=False)


def _batches() -> Iterator[Batch]:
    yield _batch(0, 1, 0)
    yield _batch(2, 0, 0, 1)


def _work(model: nn.Module | None = None) -> Workload:
    return Workload(
        name="exiting",
        model=model or Exiting(),
        task="classification",
        n_layers=2,
        device=torch.device("cpu"),
        execution="skip",
        is_skipping_tokens=True,
        is_characters=False,
        batches=_batches,
        flops=_formula,
    )


def _measure(work: Workload, settings: AuditSpec | None = None) -> Findings:
    (found,) = flops.measure([work], settings or AuditSpec())
    return found


def test_counts_of_one_pass() -> None:
    found = _measure(_work())
    values = {m.name: m.value for m in found.measurements}
    executed = (5 + 2) * LAYER + 5 * HEAD
    assert {name: value for name, value in values.items() if "attention" not in name} == {
        "params": 2 * D + 2 * (D * D + D) + C,
        "flops.executed": executed,
        "macs.executed": executed // 2,
        "flops.routed": executed,
        "flops.dense": 5 * (2 * LAYER + HEAD),
    }
    assert {m.source for m in found.measurements if "attention" not in m.name} == {"counted"}
    assert not found.cautions


@pytest.mark.parametrize(("variant", "share_kept"), [("dense", 1), ("static_heads", 2)])
def test_attention_is_stated_in_what_ran_and_in_dense(variant: str, share_kept: int) -> None:
    config = makers.config(variant, options={"head_fraction": 0.5} if variant == "static_heads" else {})
    formula = plugins.load("variants", variant).flops
    work = replace(
        _work(makers.build(config)),
        batches=lambda: iter([makers.batch(lengths=(T,)), makers.batch(lengths=(T, T))]),
        flops=lambda batch, routing, execution: formula(config, batch, routing, execution),
    )
    values = {m.name: m.value for m in _measure(work).measurements}
    core = 3 * makers.LAYERS * 4 * T * T * makers.D_MODEL
    layer = core + 3 * makers.LAYERS * 8 * T * makers.D_MODEL**2
    assert (values["flops.dense_attention_core"], values["flops.dense_attention_layer"]) == (core, layer)
    assert (values["flops.attention_core"], values["flops.attention_layer"]) == (core / share_kept, layer / share_kept)


def test_without_attention_its_part_is_unavailable() -> None:
    reasons = {m.name: m.method for m in _measure(_work()).measurements if m.value is None}
    unnamed, unknown = "no module is named as attention (attn, attention, mha)", "no closed formula of its attention"
    assert reasons == {
        "flops.attention_core": unnamed,
        "flops.attention_layer": unnamed,
        "flops.dense_attention_core": f"`exiting` has {unknown}",
        "flops.dense_attention_layer": f"`exiting` has {unknown}",
    }


def test_work_per_element_stands_apart_when_asked_for() -> None:
    plain, found = _measure(_work()), _measure(_work(), AuditSpec(elementwise=True))
    values = {m.name: m.value for m in found.measurements}
    assert {m.name: m.value for m in plain.measurements} == {
        name: value for name, value in values.items() if name not in ("flops.elementwise", "bytes.gathered")
    }
    rows = {row.path: row for row in found.modules}
    assert [(row.path, row.flops, row.ops) for row in plain.modules] == [
        (row.path, row.flops, row.ops) for row in found.modules
    ]
    assert {row.elementwise for row in plain.modules} == {None}
    assert (rows[""].elementwise, rows[""].gathered) == (values["flops.elementwise"], values["bytes.gathered"])
    assert rows["layers.0"].elementwise == 5 * T * D  # the bias
    assert rows["table"].gathered == 5 * T * (2 * D * 4 + 8)


def test_tree_and_examples() -> None:
    found = _measure(_work())
    rows = {row.path: row for row in found.modules}
    assert rows[""].flops == (5 + 2) * LAYER + 5 * HEAD
    assert [rows[p].flops for p in ("layers", "layers.0", "layers.1", "head")] == [
        *(7 * LAYER, 5 * LAYER, 2 * LAYER, 5 * HEAD)
    ]
    assert (rows[""].calls, rows["layers.1"].calls) == (2, 2)
    long, short = 2 * LAYER + HEAD, LAYER + HEAD
    assert makers.columns(found) == {"index": [0, 1, 2, 3, 4], "flops_routed": [long, short, short, short, long]}


def test_formula_that_disagrees_is_a_caution() -> None:
    work = replace(_work(), flops=lambda batch, routing, execution: torch.zeros(batch.n_examples, dtype=torch.long))
    (caution,) = _measure(work).cautions
    assert caution.code == "formula_mismatch"
    assert f"{7 * LAYER + 5 * HEAD} FLOPs" in caution.text
    assert "says 0" in caution.text


def test_without_a_formula_routed_and_dense_are_unavailable() -> None:
    def formula(batch: Batch, routing: Routing, execution: Execution) -> Tensor:
        raise NotImplementedError("a model of the user's own")

    found = _measure(replace(_work(), flops=formula))
    for name in ("flops.routed", "flops.dense"):
        (measurement,) = [m for m in found.measurements if m.name == name]
        assert (measurement.value, measurement.method) == (None, "a model of the user's own")
    assert found.examples is None
    assert not found.cautions


def test_op_without_formula_makes_the_count_incomplete() -> None:
    class Inverting(Exiting):
        def forward(self, batch: Batch, routing: Routing | None = None) -> Output:
            torch.linalg.inv(torch.eye(3))
            return super().forward(batch, routing)

    (caution,) = _measure(_work(Inverting())).cautions
    assert caution.code == "count_incomplete"
    assert caution.text == "count incomplete: no FLOP formula for aten.linalg_inv_ex (2x)"


def test_forward_that_raises_on_the_second_batch_leaves_no_trace() -> None:
    class Failing(Exiting):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, batch: Batch, routing: Routing | None = None) -> Output:
            self.seen += 1
            if self.seen == 2:
                raise ValueError("second")
            return super().forward(batch, routing)

    model = Failing()
    hooks = dict(nn.modules.module._global_forward_hooks)
    with pytest.raises(ValueError, match="second"):
        _measure(_work(model))
    assert model.seen == 0
    assert dict(nn.modules.module._global_forward_hooks) == hooks == {}
