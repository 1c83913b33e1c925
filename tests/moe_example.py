"""A Mixtral of transformers that tells an audit which experts its tokens take; the README shows this file."""

from functools import partial

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import effaudit


def mixtral(path: str) -> torch.nn.Module:
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path))
    model.tokenizer = AutoTokenizer.from_pretrained(path)
    for i, layer in enumerate(model.model.layers):
        layer.mlp.gate.register_forward_hook(partial(log_experts, i))
    return model


def log_experts(layer: int, router: torch.nn.Module, args: tuple, answer: tuple) -> None:
    chosen = answer[-1]  # (B*T, k), indices of experts
    effaudit.log_routing(
        layer=layer, heads=lambda: torch.nn.functional.one_hot(chosen, router.num_experts).sum(dim=1).bool()
    )
