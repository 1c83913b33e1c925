"""Which kernels of a TorchScript module run without reaching the dispatcher, so that they cannot be counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

# What `torch.jit.optimize_for_inference` and the fusers write into graphs in place of products.
_UNSEEN = ("prim::mkldnn_convolution", "prim::TensorExprGroup", "prim::CudaFusionGroup", "prim::FusionGroup")


def unseen_kernels(module: nn.Module) -> Sequence[str]:
    """Their names, one for each place in the graph of the module and what it calls."""
    if not isinstance(module, torch.jit.ScriptModule):
        return ()
    try:
        graph: Any = module.inlined_graph
    except (AttributeError, RuntimeError):  # a module without forward
        return ()
    return [kind for kind in _UNSEEN for _ in graph.findAllNodes(kind, recurse=True)]
