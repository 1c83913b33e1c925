"""The documented mixture of experts, as the README shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from effaudit.ladder import ladder
from tests.own_models import LLAMA, audit, hf_folder, profile, table

pytest.importorskip("transformers", reason="transformers is not installed: pip install 'effaudit[hf]'")


@pytest.mark.parametrize("top_k", [1, 2])
def test_experts_that_tokens_take_are_reported(tmp_path: Path, top_k: int) -> None:
    moe = {**LLAMA, "model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    folder = hf_folder(tmp_path / "moe", {**moe, "num_local_experts": 4, "num_experts_per_tok": top_k})
    spec = {"name": "moe", "variant": "python", "options": {"factory": "tests.moe_example:mixtral"}}
    spec["options"]["keywords"] = {"path": str(folder)}  # type: ignore[index]
    (record,) = audit(profile(table(tmp_path / "data"), spec), tmp_path)
    assert record["routing.head_fraction"].value == pytest.approx(top_k / 4)
    assert len(record.layers) == LLAMA["num_hidden_layers"]
    for row in record.layers:
        assert len(row.head_use) == 4
        assert sum(row.head_use) == pytest.approx(top_k)
    assert ladder(record, [record])["claimed"].change == pytest.approx(top_k / 4 - 1)
    assert record["quality.loss"].value is not None
    assert record["flops.routed"].value is None
