"""FLOP counters side by side: each takes a model and an input and says FLOPs, MACs doubled."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from effaudit.bench._flop_rows import ROWS

N_TIMED = 3

Counter = Callable[[nn.Module, Tensor], float]


def _effaudit(model: nn.Module, x: Tensor) -> float:
    from effaudit.flop_counting import count_flops

    return count_flops(model, x).total


def _flop_counter_mode(model: nn.Module, x: Tensor) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        model(x)
    return counter.get_total_flops()


def _peer(module: str, function: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _fvcore(model: nn.Module, x: Tensor) -> float:
    analysis = _peer("fvcore.nn", "FlopCountAnalysis")(model, x)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
    return 2 * float(analysis.total())


def _ptflops(model: nn.Module, x: Tensor) -> float:
    count = _peer("ptflops", "get_model_complexity_info")
    options = {"as_strings": False, "print_per_layer_stat": False, "verbose": False, "backend": "aten"}
    macs, _params = count(model, tuple(x.shape[1:]), input_constructor=lambda shape: x, **options)
    return 2 * float(macs)


def _torchprofile(model: nn.Module, x: Tensor) -> float:
    return 2 * float(_peer("torchprofile", "profile_macs")(model, x))


def _calflops(model: nn.Module, x: Tensor) -> float:
    count = _peer("calflops", "calculate_flops")
    flops, _macs, _params = count(model, args=[x], print_results=False, output_as_string=False)
    return float(flops)


def _ultralytics_thop(model: nn.Module, x: Tensor) -> float:
    macs, _params = _peer("thop", "profile")(model, inputs=(x,), verbose=False)
    return 2 * float(macs)


COUNTERS: dict[str, Counter] = {
    "effaudit": _effaudit,
    "FlopCounterMode": _flop_counter_mode,
    "fvcore": _fvcore,
    "ptflops (aten)": _ptflops,
    "torchprofile": _torchprofile,
    "calflops": _calflops,
    "ultralytics-thop": _ultralytics_thop,
}


def transformer() -> tuple[nn.Module, Tensor]:
    """The model that is timed: 4.7 million parameters on 32 x 128 vectors."""
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False).eval(), torch.rand(32, 128, 256)


def _time_ratio(run: Callable[[], object], plain: Callable[[], object]) -> float:
    """Quickest of some runs over the quickest of the plain ones, taken in turns after a first run of each."""
    times: dict[Callable[[], object], list[float]] = {plain: [], run: []}
    for _ in range(N_TIMED + 1):
        for each, seconds in times.items():
            start = time.perf_counter()
            each()
            seconds.append(time.perf_counter() - start)
    return min(times[run][1:]) / min(times[plain][1:])


def judge(name: str) -> dict[str, Any]:
    """The rows that one counter gets wrong, and its time for the transformer over that of a plain forward pass."""
    count = COUNTERS[name]
    wrong = []
    with torch.no_grad():
        for row_name, row in ROWS.items():
            try:
                is_exact = count(row.model(), row.input()) == row.flops
            except ImportError:  # the counter is not here, which is no verdict on it
                raise
            except Exception:  # a counter that fails on a row does not get it right
                is_exact = False
            if not is_exact:
                wrong.append(row_name)
        model, x = transformer()
        try:
            ratio: float | None = _time_ratio(lambda: count(model, x), lambda: model(x))
        except Exception:
            ratio = None
    return {"wrong": wrong, "time_ratio": ratio}


if __name__ == "__main__":
    print(json.dumps(judge(sys.argv[1])))
