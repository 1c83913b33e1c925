"""How a loaded model is made ready to run otherwise than as it was written: quantised, compiled."""

from __future__ import annotations

import warnings
from collections import Counter

import torch
from torch import nn

from effaudit import device as devices
from effaudit import units
from effaudit.errors import EffauditError
from effaudit.kernels.library import cpp_compiler
from effaudit.parameters import count_parameters
from effaudit.profile_spec import AuditSpec, ModelSpec
from effaudit.record import Caution
from effaudit.variants._linear import with_plain_linears
from effaudit.variants._own import OwnModel


def prepared(model: nn.Module, spec: ModelSpec, audit: AuditSpec) -> nn.Module:
    """The model as `spec.run`, or else `audit`, wants it, in place.

    Raises EffauditError where this model, torch or machine cannot do it.
    """
    run = spec.run
    if not (run.quantize or run.compile):
        return model
    if not isinstance(model, OwnModel) and spec.variant != "dense":
        what = "quantize" if run.quantize else "compile"
        raise EffauditError(
            f"`{spec.name}`: {what} does not go with `{spec.variant}`, whose skipping takes its matrices apart",
            "it works for dense, hf and python models",
        )
    if run.quantize:
        _refuse_unquantisable(spec, audit)
        model = _quantised(model, spec)
    return _compiled(model, spec) if run.compile else model


def _refuse_unquantisable(spec: ModelSpec, audit: AuditSpec) -> None:
    device, dtype = spec.run.device or audit.device, spec.run.dtype or audit.dtype
    if devices.resolve(device).type != "cpu" or dtype != "float32":
        raise EffauditError(
            f"`{spec.name}`: quantize int8 runs on cpu in float32 alone, not on {device} in {dtype}",
            "leave quantize out, or say `device=cpu` and `dtype=float32`",
        )


def _quantised(model: nn.Module, spec: ModelSpec) -> nn.Module:
    """Linear layers with int8 weights, by torch's dynamic quantisation, which runs on CPUs alone."""
    model = with_plain_linears(model)
    if not any(type(module) is nn.Linear for module in model.modules()):
        raise EffauditError(f"`{spec.name}` has no linear layer to quantise", "leave quantize out")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch announces a successor
            done: nn.Module = torch.ao.quantization.quantize_dynamic(
                model, {nn.Linear}, dtype=torch.qint8, inplace=True
            )
    except (AttributeError, RuntimeError) as error:
        raise EffauditError(f"`{spec.name}`: this torch cannot quantise it: {error}", "leave quantize out") from error
    return done


def left_out(model: nn.Module, spec: ModelSpec) -> tuple[Caution, ...]:
    """What quantisation left as it was, besides embeddings, which multiply nothing."""
    if not spec.run.quantize:
        return ()
    sizes: Counter[str] = Counter()
    for module in model.modules():
        if not isinstance(module, nn.Embedding | nn.EmbeddingBag):
            matrices = (p for p in module.parameters(recurse=False) if p.dim() > 1 and p.is_floating_point())
            sizes[type(module).__name__] += sum(p.numel() for p in matrices)
    kinds = ", ".join(name for name, size in sizes.most_common() if size)
    if not kinds:
        return ()
    share = units.percent(sizes.total() / count_parameters(model))
    text = f"int8 leaves {share} of the weights in float32: torch quantises plain linear layers alone, not {kinds}"
    return (Caution(code="partly_quantised", text=text, hint="do not take it for a model that is int8 throughout"),)


def _compiled(model: nn.Module, spec: ModelSpec) -> nn.Module:
    if cpp_compiler() is None:
        raise EffauditError(f"`{spec.name}`: torch.compile finds no C++ compiler here", "install one, or set CXX")
    if isinstance(model, OwnModel):
        model.compile_inner()
        return model
    compiled: nn.Module = torch.compile(model)  # type: ignore[assignment]
    return compiled
