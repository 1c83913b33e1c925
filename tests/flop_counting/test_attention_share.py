"""Attention's part of a count: told by the names of modules and ops, the same on fused and plain paths."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from effaudit.bench._flop_rows import B, Calls, D, T
from effaudit.flop_counting import attention_of, count_flops

CORE = 4 * B * T * T * D
LAYER = CORE + 8 * B * T * D * D


def encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(D, 4, 64, batch_first=True).eval()


class Eager(nn.Module):
    """Attention of one head written with matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.out((q @ k.transpose(1, 2)).softmax(-1) @ v)


@pytest.mark.parametrize("is_grad", [False, True])
@pytest.mark.parametrize("name", ["self_attn", "attn", "SelfAttention", "mha"])
def test_core_and_layer_on_every_path(name: str, is_grad: bool) -> None:
    x = torch.rand(B, T, D)
    attention = nn.MultiheadAttention(D, 4, batch_first=True).eval()
    parts = {name: attention, "norm_after_attention_of_all": nn.LayerNorm(D), "fc": nn.Linear(D, D)}
    multihead = Calls(lambda m, x: m.fc(getattr(m, name)(x, x, x)[0]), **parts)
    eager = Calls(lambda m, x: m.fc(getattr(m, name)(x)), **{name: Eager(), "fc": nn.Linear(D, D)})
    for model in (multihead, encoder_layer(), eager, nn.Sequential(encoder_layer())):
        with torch.set_grad_enabled(is_grad):
            count = count_flops(model, x)
        attention_share = attention_of(count.by_module)
        assert (attention_share.core, attention_share.layer) == (CORE, LAYER)
        assert sum(count.by_op.values()) == count.total > LAYER


def test_backward_pass_runs_outside_the_modules() -> None:
    layer, x = encoder_layer(), torch.rand(B, T, D, requires_grad=True)
    count = count_flops(lambda: layer(x).sum().backward())
    found = attention_of(count.by_module)
    assert found.core is None
    assert "outside modules named so" in found.reason


def test_without_named_modules_there_is_a_reason() -> None:
    x = torch.rand(1, 4, T, 8)
    inner = Calls(lambda m, x: F.scaled_dot_product_attention(x, x, x))
    nameless = attention_of(count_flops(nn.Sequential(inner), x).by_module)
    assert (nameless.core, nameless.layer) == (None, None)
    assert nameless.reason == "no module is named as attention (attn, attention, mha)"
    both = Calls(lambda m, x: m.attn(x) + m.mixer(x), attn=inner, mixer=Calls(inner.function))
    assert attention_of(count_flops(both, x).by_module).reason == "attention runs outside modules named so, in `mixer`"


def test_module_that_is_held_without_a_name_goes_by_its_class() -> None:
    attention = nn.MultiheadAttention(D, 4, batch_first=True)
    found = attention_of(count_flops(lambda x: [attention(x, x, x), attention(x, x, x)], torch.rand(B, T, D)).by_module)
    assert (found.core, found.layer) == (2 * CORE, 2 * LAYER)
