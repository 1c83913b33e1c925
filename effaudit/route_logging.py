"""How a model of one's own tells an audit what it routed; nothing is imported or kept while none listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from effaudit.errors import EffauditError

if TYPE_CHECKING:
    from torch import Tensor

    Said = Tensor | Callable[[], Tensor] | None


@dataclass(frozen=True)
class LoggedRoute:
    """What one call said, as it stood then."""

    layer: int
    tokens: Tensor | None
    heads: Tensor | None
    exits: Tensor | None
    gate: Tensor | None


@dataclass
class RouteLog:
    """The calls of one forward pass, in order."""

    routes: list[LoggedRoute] = field(default_factory=list)

    def add(self, layer: int, tokens: Said, heads: Said, exits: Said, gate: Said) -> None:
        n_decisions = sum(part is not None for part in (tokens, heads, exits))
        if n_decisions > 1 or (exits is not None and gate is not None) or (n_decisions == 0 and gate is None):
            raise EffauditError(
                "log_routing takes one of `tokens`, `heads`, `exits` a call, and a `gate` with the first two or alone",
                "call it once for each kind of decision",
            )
        if isinstance(layer, bool) or not isinstance(layer, int) or layer < 0:
            raise EffauditError(f"log_routing: `layer` is {layer!r}", "layers are counted 0, 1, 2, …")
        # Copies, on their device: the model may go on to write into its masks.
        said = (part() if callable(part) else part for part in (tokens, heads, exits, gate))
        kept = tuple(_copied(part) for part in said)
        self.routes.append(LoggedRoute(layer, *kept))


def _copied(part: object) -> Tensor | None:
    if part is not None and not hasattr(part, "detach"):
        kind = type(part).__name__
        raise EffauditError(f"log_routing: a {kind} is no tensor", "give a mask or gate as a torch.Tensor")
    return None if part is None else part.detach().clone()


_log: RouteLog | None = None


def log_routing(
    *,
    layer: int,
    tokens: Said = None,
    heads: Said = None,
    exits: Said = None,
    gate: Said = None,
) -> None:
    """Tells an audit what a forward pass decides; does nothing while no audit asks.

    What takes work to say may be a function that returns it: it is called only where an audit listens.

    `layer` counts from 0. `tokens` is a mask, True where the layer runs: (B, T), (B*T,), (B,) for whole examples or
    (B, …) for positions of any shape. `heads` is a mask over the heads or experts of the layer: (B, H), (H,) for all
    examples alike, or (B, T, H) or (B*T, H) where each token chooses. `exits`, said once a pass, is the number of
    layers run before leaving: (B,) or (B, T). `gate` is the continuous value in [0, 1] that a mask was cut from, in
    the mask's shape; alone it is a soft gate that skips nothing.
    """
    if _log is not None:
        _log.add(layer, tokens, heads, exits, gate)


@contextmanager
def listening() -> Iterator[RouteLog]:
    """Collects what is logged inside; an audit listens where it asks for decisions, never where it takes time."""
    global _log
    before, log = _log, RouteLog()
    _log = log
    try:
        yield log
    finally:
        _log = before
