"""One block of one hidden layer, as wide as you like."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from effaudit.profile_spec import Count, ModelConfig, validated
from effaudit.variants._blocks import VariantOptions, masked_mean, per_example, task_loss
from effaudit.workload import Batch, Execution, Output, Routing

TASKS = ("classification",)


class Options(VariantOptions):
    """Options of `wide`."""

    width: Count = 16


class Wide(nn.Module):
    def __init__(self, config: ModelConfig, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, config.d_model)
        self.up = nn.Linear(config.d_model, width)
        self.classifier = nn.Linear(width, config.n_classes or 1)

    def forward(self, batch: Batch, routing: Routing | None = None) -> Output:
        hidden = torch.relu(self.up(self.embed(batch.tokens)))
        return Output(self.classifier(masked_mean(hidden, batch.mask)), Routing(path=("full",)))

    def loss(self, batch: Batch, progress: float) -> Tensor:
        return task_loss(self(batch).logits, batch)


def build(config: ModelConfig) -> Wide:
    return Wide(config, validated(Options, config.options, "options of `wide`").width)


def flops(config: ModelConfig, batch: Batch, routing: Routing, execution: Execution) -> Tensor:
    width = validated(Options, config.options, "options of `wide`").width
    hidden = batch.tokens.shape[1] * 2 * config.d_model * width
    return per_example(batch, hidden + 2 * width * (config.n_classes or 1))
