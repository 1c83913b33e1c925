"""Models of one's own that log their routing, audited: the same ladder, layers and example tables as any variant's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import effaudit
from effaudit.ladder import ladder
from effaudit.record import AuditRecord
from effaudit.renderers.console import render_profile
from effaudit.workload import Batch, Execution, Routing
from tests.own_models import TEXTS, audit, profile, table

WIDTH, LAYERS = 4, 4


class Blocks(nn.Module):
    """Linear layers over embedded tokens; subclasses decide who runs them."""

    def __init__(self, vocab_size: int, n_classes: int) -> None:
        super().__init__()
        self.n_layers = LAYERS
        self.embed = nn.Embedding(vocab_size, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Linear(WIDTH, n_classes)

    def answer(self, h: Tensor, mask: Tensor) -> Tensor:
        return self.head((h * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True))


class DepthMixing(Blocks):
    """Every second block, the first too, runs only tokens with an even id."""

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        h = self.embed(tokens)
        for i, block in enumerate(self.blocks):
            if i % 2:
                h = h + block(h)
                continue
            runs = (tokens % 2 == 0) & mask
            h = h.clone()
            h[runs] = h[runs] + block(h[runs])
            effaudit.log_routing(layer=i, tokens=runs, gate=0.5 * runs)
        return self.answer(h, mask)

    def flops(self, batch: Batch, routing: Routing, execution: Execution) -> Tensor:
        per_token = 2 * WIDTH * WIDTH
        n_positions = batch.tokens.shape[1]
        dense = torch.full((batch.n_examples,), LAYERS * n_positions * per_token + 2 * WIDTH * self.head.out_features)
        if execution == "dense":
            return dense
        assert routing.tokens is not None
        return dense - (~routing.tokens).sum(dim=(1, 2)) * per_token


class Leaving(Blocks):
    """An example with n words leaves after min(n, 4) blocks."""

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        h, exits = self.embed(tokens), mask.sum(dim=1).clamp(max=LAYERS)
        for i, block in enumerate(self.blocks):
            here = exits > i
            h = h.clone()
            h[here] = h[here] + block(h[here])
        effaudit.log_routing(layer=0, exits=exits)
        return self.answer(h, mask)


class Experts(Blocks):
    """One of two experts a token, in every block."""

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        h = self.embed(tokens)
        for i, block in enumerate(self.blocks):
            first = (tokens % 2 == 0)[..., None]
            h = h + block(h) * first
            effaudit.log_routing(layer=i, heads=torch.cat([first, ~first], dim=-1).flatten(0, 1))
        return self.answer(h, mask)


class Patches(nn.Module):
    """An image of nine patches of which the second layer sees four."""

    n_layers = 2

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, patches: Tensor) -> Tensor:
        h = self.first(patches)
        effaudit.log_routing(layer=1, tokens=torch.arange(9).expand(len(h), 9) < 4)
        return self.second(h[:, :4]).mean(dim=1)

    def batches(self) -> Any:
        return [(torch.ones(n, 9, 4), torch.zeros(n).long()) for n in (3, 1)]


def audited(tmp_path: Path, name: str, **changes: Any) -> AuditRecord:
    (record,) = audit(profile(table(tmp_path / "data"), f"python:{__name__}:{name}", **changes), tmp_path)
    return record


def test_tokens_that_skip_layers(tmp_path: Path) -> None:
    record = audited(tmp_path, "DepthMixing")
    alpha = record["routing.alpha_hard"].value
    assert alpha is not None
    assert 0 < alpha < 1
    assert record["routing.alpha_soft"].value == pytest.approx(alpha / 2)
    assert record["routing.tlops_saved"].value == pytest.approx(2 / 4 * (1 - alpha))
    assert [row.alpha_hard is None for row in record.layers] == [False, True, False, True]
    assert record.layers[0].alpha_hard == record.layers[2].alpha_hard == pytest.approx(alpha)
    steps = ladder(record, [record])
    assert steps["claimed"].change == pytest.approx(-2 / 4 * (1 - alpha / 2))
    assert steps["skipped"].change == pytest.approx(-2 / 4 * (1 - alpha))
    assert record["flops.routed"].value == record["flops.executed"].value
    assert record["flops.dense"].value > record["flops.routed"].value
    assert "formula_mismatch" not in {caution.code for caution in record.cautions}
    assert record.table is not None
    n_tokens = record.table["n_tokens"]
    assert (record.table["alpha_hard"] * n_tokens).sum() == pytest.approx(alpha * n_tokens.sum())


def test_masked_execution_skips_nothing(tmp_path: Path) -> None:
    record = audited(tmp_path, "DepthMixing?execution=masked")
    assert record["routing.tlops_saved"].value == 0


def test_examples_that_leave_early(tmp_path: Path) -> None:
    record = audited(tmp_path, "Leaving")
    n_words = np.array([len(text.split()) for text, _ in TEXTS])
    exits = np.minimum(n_words, LAYERS)
    assert record["routing.exit_layer"].value == pytest.approx(exits.mean())
    assert [row.exit_share for row in record.layers] == pytest.approx([(exits == i + 1).mean() for i in range(LAYERS)])
    assert record.table is not None
    assert record.table["exit_layer"].tolist() == exits.tolist()
    weighted = (np.arange(1, LAYERS) < exits[:, None]) * n_words[:, None]
    alpha = weighted.sum() / n_words.sum() / (LAYERS - 1)
    assert record["routing.alpha_hard"].value == pytest.approx(alpha)
    steps = ladder(record, [record])
    expected = pytest.approx(-(LAYERS - 1) / LAYERS * (1 - alpha))
    assert (steps["claimed"].change, steps["skipped"].change) == (expected, expected)


def test_experts_are_shares_of_a_layer(tmp_path: Path) -> None:
    record = audited(tmp_path, "Experts")
    assert record["routing.head_fraction"].value == pytest.approx(0.5)
    assert [row.head_fraction for row in record.layers] == pytest.approx([0.5] * LAYERS)
    for row in record.layers:
        assert sum(row.head_use) == pytest.approx(1)  # each token takes one of two
    assert "least used" in render_profile(record)
    assert ladder(record, [record])["claimed"].change == pytest.approx(-0.5)
    assert record["flops.routed"].value is None
    assert "offers no closed formula" in record["flops.routed"].method


def test_positions_of_images(tmp_path: Path) -> None:
    record = audited(tmp_path, "Patches")
    assert record["routing.alpha_hard"].value == pytest.approx(4 / 9)
    assert record["routing.tlops_saved"].value == pytest.approx(1 / 2 * (1 - 4 / 9))
    assert record.workload.n_tokens is None


def test_layers_are_counted_where_nobody_says_how_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Patches, "n_layers", None)
    record = audited(tmp_path, "Patches")
    assert len(record.layers) == 2


def test_timed_passes_do_not_listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from effaudit import route_logging

    heard: list[bool] = []
    plain = Patches.forward

    def forward(self: Patches, patches: Tensor) -> Tensor:
        heard.append(route_logging._log is not None)
        return plain(self, patches)

    monkeypatch.setattr(Patches, "forward", forward)
    audited(tmp_path, "Patches", audit={"meters": ("quality", "latency", "memory"), "rounds": 2, "max_seconds": 0.1})
    assert heard
    assert not any(heard)
