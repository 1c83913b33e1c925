"""The reference: every head, every layer, every token."""

from __future__ import annotations

from torch import Tensor

from effaudit.profile_spec import ModelConfig, validated
from effaudit.variants._blocks import Backbone, Costs, VariantOptions, per_example
from effaudit.workload import Batch, Execution, Output, Routing

TASKS = ("classification", "causal_lm")


class Options(VariantOptions):
    pass


class Dense(Backbone):
    """Multi-head attention from Linear and scaled_dot_product_attention, in pre-norm blocks."""

    def one_pass(self, batch: Batch, routing: Routing | None) -> Output:
        """`routing.head_gate` (B, L, H), if given, multiplies the heads' outputs: heads masked, none skipped."""
        gates = routing.head_gate if routing is not None else None
        visible = self.visibility(batch)
        h = self.embedded(batch)
        for layer, block in enumerate(self.blocks):
            h = block(h, visible, head_gate=None if gates is None else gates[:, layer])
        return Output(self.head(h, batch.padding_mask), Routing(path=("full",) * len(self.blocks)))


def build(config: ModelConfig) -> Dense:
    validated(Options, config.options, "options of `dense`")
    return Dense(config)


def flops(config: ModelConfig, batch: Batch, routing: Routing, execution: Execution) -> Tensor:
    return per_example(batch, Costs(config, batch.tokens.shape[1]).dense)
