"""Linear layers of chosen rows, and of chosen heads: what is not chosen costs nothing.

torch's libraries take rows that lie together: chosen ones are copied first, and odd numbers of them are slow.
Shapes: M rows of width D, N of them chosen; B examples of T tokens, b of them with k heads of width dh each.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from effaudit import device as devices
from effaudit import onednn
from effaudit.kernels import library
from effaudit.kernels.rows import norm_rows

WIDTHS, HEAD_WIDTHS = 16, 8  # of a row and of a head: multiples of it
PARTS = 3  # of a fused projection: queries, keys and values
ACTIVATIONS = {"none": 0, "gelu": 1, "relu": 2}
TRIED_ROWS, TRIED_WIDTH, TRIALS = 1024, 256, 15  # of the feed-forward layer that tells which library is quicker
TOLERATED = 1.02  # of the time of the quickest trials, which come out as unequal by chance

Activation = Literal["none", "gelu", "relu"]
Clock = Callable[[], float]
Layers = Sequence[Tensor | None]
Norm = Sequence[Tensor]

library.OPS.define(
    "chain(Tensor x, Tensor? index, Tensor[] norm, float eps, Tensor?[] layers, str activation) -> Tensor"
)
library.OPS.define(
    "add_chain(Tensor(a!) onto, Tensor? index, Tensor? gate, Tensor? x, Tensor[] norm, float eps, Tensor?[] layers, "
    "str activation) -> ()"
)
library.OPS.define("from_heads(Tensor x, Tensor examples, Tensor heads, Tensor weight, int dim) -> Tensor")
library.OPS.define("onto_heads(Tensor(a!) onto, Tensor examples, Tensor heads, Tensor weight, int dim, Tensor x) -> ()")


def chain(
    x: Tensor,
    layers: Layers,
    activation: Activation = "none",
    index: Tensor | None = None,
    norm: Norm = (),
    eps: float = 0.0,
) -> Tensor:
    """The rows `index` (N,) of `x` (M, D), or all of them, through one linear layer or two, to (N, outputs).

    `layers` are weight (outputs, D) and bias of each in turn; the activation follows the first. Before it, a layer
    norm by `norm`, weight and bias, where it is given.
    """
    outputs: Tensor = torch.ops.effaudit.chain(x, index, norm, eps, layers, activation)
    return outputs


def add_chain(
    onto: Tensor,
    layers: Layers,
    activation: Activation = "none",
    index: Tensor | None = None,
    gate: Tensor | None = None,
    x: Tensor | None = None,
    norm: Norm = (),
    eps: float = 0.0,
) -> None:
    """Adds the same times `gate` (N,) onto the rows `index` (N,), each once, of `onto` (M, D) in place.

    Of `x` (N, inputs), or without it of those rows themselves.
    """
    torch.ops.effaudit.add_chain(onto, index, gate, x, norm, eps, layers, activation)


def from_heads(x: Tensor, examples: Tensor, heads: Tensor, weight: Tensor, dim: int) -> Tensor:
    """`examples` (b,) of `x` (B, T, D) through the rows of their `heads` (b, k) in a fused projection.

    `weight` (3 * H * dh, D) gives (b, T, 3 * k * dh).
    """
    outputs: Tensor = torch.ops.effaudit.from_heads(x, examples, heads, weight, dim)
    return outputs


def onto_heads(onto: Tensor, examples: Tensor, heads: Tensor, weight: Tensor, dim: int, x: Tensor) -> None:
    """Adds `x` (b, T, k * dh) through the columns of their `heads` (b, k) onto `examples` (b,) of `onto` (B, T, D).

    `weight` is (D, H * dh).
    """
    torch.ops.effaudit.onto_heads(onto, examples, heads, weight, dim, x)


def is_usable(x: Tensor) -> bool:
    """Whether rows of `x` (…, D) may go through `chain`, and go quicker so."""
    return _is_fit(x) and is_quicker()


def is_usable_for_heads(x: Tensor, dim: int, n_heads: int) -> bool:
    """Whether `n_heads` heads for each example of `x` (B, T, D) may run alone; the libraries take one set at a time."""
    return _is_fit(x) and dim % HEAD_WIDTHS == 0 and dim * n_heads % WIDTHS == 0


def _is_fit(x: Tensor) -> bool:
    return x.shape[-1] % WIDTHS == 0 and x.is_contiguous() and library.is_usable(x)


@cache
def is_quicker() -> bool:
    """Whether these kernels take no longer than torch's libraries over a usual feed-forward layer of all rows.

    Measured once for each machine and version of torch, so that the dense model is not slowed by them.
    """
    name = f"products-{torch.__version__}-{torch.backends.cpu.get_cpu_capability()}"
    return library.remembered(name, _measured)


def _measured(clock: Clock = time.perf_counter) -> bool:
    with _disable_current_modes(), torch.inference_mode(), devices.threads(1):  # else counters would count the trials
        return _trial(clock)


def _trial(clock: Clock) -> bool:
    def made(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.float32, device="cpu")

    width = TRIED_WIDTH
    h, norm = made(TRIED_ROWS, width), (made(width), made(width))
    up, up_bias, down, down_bias = layers = made(4 * width, width), made(4 * width), made(width, 4 * width), made(width)

    def by_libraries() -> None:
        normed = norm_rows(h, None, *norm, 1e-5)
        if onednn.HAS_LINEAR:
            hidden = onednn.linear(normed, up, up_bias, "gelu")
        else:
            hidden = F.gelu(F.linear(normed, up, up_bias))
        if onednn.is_quicker_than_mkl():
            h.add_(onednn.linear(hidden, down, down_bias))
        else:
            h.add_(down_bias).addmm_(hidden, down.t())

    ways = (lambda: add_chain(h, layers, "gelu", norm=norm, eps=1e-5), by_libraries)
    seconds: list[list[float]] = [[], []]
    for _ in range(TRIALS):
        for way, taken in zip(ways, seconds, strict=True):
            start = clock()
            way()
            taken.append(clock() - start)
    return min(seconds[0]) <= TOLERATED * min(seconds[1])


@cache
def _function(name: str, *types: Any) -> Any:
    found = library.library()
    assert found is not None, "is_usable() says whether there is a kernel"
    function = getattr(found, name)
    function.argtypes, function.restype = types, None
    return function


_POINTER, _WHOLE = ctypes.c_void_p, ctypes.c_int64
_CHAIN = (
    *(_POINTER, _WHOLE, _POINTER, _POINTER, _POINTER, ctypes.c_float),
    *(_POINTER, _POINTER, _WHOLE, _WHOLE, ctypes.c_int, _POINTER, _POINTER, _WHOLE),
    *(_POINTER, _WHOLE, _POINTER, ctypes.c_int, _POINTER, _WHOLE),
)


def _place(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _packed(x: Tensor) -> Tensor:
    """A parameter as the kernels read it."""
    if x.dtype != torch.float32:
        raise TypeError(f"kernels take float32, not {x.dtype}")
    return x.contiguous()


def _chain(
    x: Tensor,
    x_index: Tensor | None,
    norm: Norm,
    eps: float,
    layers: Layers,
    activation: str,
    out: Tensor,
    out_index: Tensor | None,
    is_added: bool,
    gate: Tensor | None,
    n: int,
) -> None:
    """`n` rows."""
    parameters = [None if parameter is None else _packed(parameter) for parameter in layers]
    norm = [_packed(parameter) for parameter in norm]
    first, second = parameters[0], parameters[2] if len(layers) > 2 else None
    assert first is not None
    width, inputs = first.shape
    gate = None if gate is None else gate.to(out.dtype).expand(n).contiguous()
    _function("chain", *_CHAIN)(
        *(x.data_ptr(), x.stride(0), _place(x_index)),
        *(*((_place(norm[0]), _place(norm[1])) if norm else (None, None)), eps),
        *(first.data_ptr(), _place(parameters[1]), inputs, width, ACTIVATIONS[activation]),
        *((None, None, 0) if second is None else (second.data_ptr(), _place(parameters[3]), len(second))),
        *(out.data_ptr(), out.stride(0), _place(out_index), is_added, _place(gate), n),
    )


def _chain_on_cpu(x: Tensor, index: Tensor | None, norm: Norm, eps: float, layers: Layers, activation: str) -> Tensor:
    out = _chain_on_meta(x, index, norm, eps, layers, activation)
    _chain(x, index, norm, eps, layers, activation, out, None, False, None, len(out))
    return out


def _add_chain_on_cpu(
    onto: Tensor,
    index: Tensor | None,
    gate: Tensor | None,
    x: Tensor | None,
    norm: Norm,
    eps: float,
    layers: Layers,
    activation: str,
) -> None:
    n = len(onto) if index is None else len(index)
    rows, at = (onto, index) if x is None else (x, None)
    _chain(rows, at, norm, eps, layers, activation, onto, index, True, gate, n)


def _from_heads_on_cpu(x: Tensor, examples: Tensor, heads: Tensor, weight: Tensor, dim: int) -> Tensor:
    (b, k), (_, n_tokens, inputs) = heads.shape, x.shape
    out = _from_heads_on_meta(x, examples, heads, weight, dim)
    n_heads = len(weight) // (PARTS * dim)
    examples, heads, weight = examples.contiguous(), heads.contiguous(), _packed(weight)
    _function("from_heads", *[_POINTER] * 4, *[_WHOLE] * 3, _POINTER, *[_WHOLE] * 4)(
        *(x.data_ptr(), examples.data_ptr(), heads.data_ptr(), weight.data_ptr(), n_heads, dim, PARTS),
        *(out.data_ptr(), b, k, n_tokens, inputs),
    )
    return out


def _onto_heads_on_cpu(onto: Tensor, examples: Tensor, heads: Tensor, weight: Tensor, dim: int, x: Tensor) -> None:
    (b, k), (_, n_tokens, outputs) = heads.shape, onto.shape
    examples, heads, weight, x = examples.contiguous(), heads.contiguous(), _packed(weight), _packed(x)
    _function("onto_heads", *[_POINTER] * 4, *[_WHOLE] * 2, _POINTER, *[_WHOLE] * 4)(
        *(onto.data_ptr(), examples.data_ptr(), heads.data_ptr(), weight.data_ptr(), weight.shape[1] // dim, dim),
        *(x.data_ptr(), b, k, n_tokens, outputs),
    )


def _chain_on_meta(x: Tensor, index: Tensor | None, norm: Norm, eps: float, layers: Layers, activation: str) -> Tensor:
    last = layers[-2]
    assert last is not None
    return x.new_empty(len(x) if index is None else len(index), len(last))


def _from_heads_on_meta(x: Tensor, examples: Tensor, heads: Tensor, weight: Tensor, dim: int) -> Tensor:
    return x.new_empty(len(heads), x.shape[1], PARTS * heads.shape[1] * dim)


library.OPS.impl("chain", _chain_on_cpu, "CPU")
library.OPS.impl("chain", _chain_on_meta, "Meta")
library.OPS.impl("add_chain", _add_chain_on_cpu, "CPU")
library.OPS.impl("add_chain", lambda *_: None, "Meta")
library.OPS.impl("from_heads", _from_heads_on_cpu, "CPU")
library.OPS.impl("from_heads", _from_heads_on_meta, "Meta")
library.OPS.impl("onto_heads", _onto_heads_on_cpu, "CPU")
library.OPS.impl("onto_heads", lambda *_: None, "Meta")
