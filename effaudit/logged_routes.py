"""From what a model logged in one forward pass to the routing that meters read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from effaudit.errors import EffauditError
from effaudit.route_logging import LoggedRoute, RouteLog
from effaudit.workload import Batch, Routing, real_positions

# B examples, T positions that decide (tokens, patches, …), H heads or experts, L layers.


def routing_of(log: RouteLog, batch: Batch, n_layers: int) -> Routing:
    """The logged decisions as one Routing; `n_layers` 0 where nobody said, then the layers that were logged count.

    Raises EffauditError for a layer beyond the last, for shapes that do not fit the batch, for masks and gates of other
    values than they can have.
    """
    for route in log.routes:
        _refuse_odd_values(route)
    seen = 1 + max(route.layer for route in log.routes)
    if 0 < n_layers < seen:
        raise EffauditError(
            f"log_routing(layer={seen - 1}): the model has {n_layers} layers, counted from 0",
            "count layers from 0, or say `n_layers`",
        )
    exits = _exits(log.routes, batch)
    deepest = int(exits.max()) if exits is not None else 0
    n = n_layers or max(seen, deepest)
    if deepest > n or (exits is not None and int(exits.min()) < 1):
        wrong = deepest if deepest > n else int(exits.min())  # type: ignore[union-attr]
        raise EffauditError(
            f"log_routing(exits=…): {wrong} layers run, of {n}", "exits are 1 for the first layer, up to the last"
        )
    by_layer = [[route for route in log.routes if route.layer == layer] for layer in range(n)]
    routing = Routing(path=tuple("logged" if routes else "full" for routes in by_layer), exits=exits)
    routing = _with_tokens(routing, by_layer, batch)
    return _with_heads(routing, by_layer, batch)


def _refuse_odd_values(route: LoggedRoute) -> None:
    gate = route.gate
    if gate is not None and not bool(((gate >= 0) & (gate <= 1)).all()):
        raise EffauditError(
            f"log_routing(layer={route.layer}, gate=…): values outside [0, 1]", "log the gate, as sigmoid makes it"
        )
    for kind, mask in (("tokens", route.tokens), ("heads", route.heads)):
        if mask is not None and mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
            raise EffauditError(
                f"log_routing(layer={route.layer}, {kind}=…): a mask of other values than 0 and 1",
                "log True where it runs; what is between belongs to `gate`",
            )


def _exits(routes: Sequence[LoggedRoute], batch: Batch) -> Tensor | None:
    """(B,) or (B, T)."""
    logged = [route.exits for route in routes if route.exits is not None]
    if not logged:
        return None
    whole = torch.cat([part.flatten() for part in logged]).long()
    _refuse_misfit("exits", whole, batch)
    left = whole.view(batch.n_examples, -1)
    return left[:, 0] if left.shape[1] == 1 else left


def _with_tokens(routing: Routing, by_layer: Sequence[Sequence[LoggedRoute]], batch: Batch) -> Routing:
    """A gate alone skips nothing; a layer that sees fewer positions than another has lost the rest."""
    masks: dict[int, Tensor] = {}
    gates: dict[int, Tensor] = {}
    for layer, routes in enumerate(by_layer):
        about_tokens = [r for r in routes if r.tokens is not None or (r.heads is None and r.gate is not None)]
        if not about_tokens:
            continue
        soft = [r.gate for r in about_tokens if r.gate is not None]
        if soft:
            gates[layer] = _positions("gate", soft, batch).float()
        hard = [r.tokens for r in about_tokens if r.tokens is not None]
        masks[layer] = _positions("tokens", hard, batch).bool() if hard else torch.ones_like(gates[layer]).bool()
    if not masks:
        return routing
    n, width = len(by_layer), max(part.shape[1] for part in (*masks.values(), *gates.values()))
    shape = (batch.n_examples, width, n)
    device = next(iter(masks.values())).device
    tokens = torch.ones(shape, dtype=torch.bool, device=device)  # (B, T, L)
    gate = torch.ones(shape, device=device)
    for layer, mask in masks.items():
        soft_gate = gates.get(layer, mask.float())
        for whole, part in ((tokens, mask), (gate, soft_gate)):
            seen = 1 if part.shape[1] == 1 < width else part.shape[1]
            whole[:, :, layer] = part if seen == 1 else torch.nn.functional.pad(part, (0, width - seen))
    return replace(routing, tokens=tokens, gate=gate if gates else None, gated=tuple(sorted(masks)))


def _positions(kind: str, logged: Sequence[Tensor], batch: Batch) -> Tensor:
    """(B, T) of what was logged for one layer, perhaps in several calls over parts of the batch."""
    whole = torch.cat([part.flatten() for part in logged])
    _refuse_misfit(kind, whole, batch)
    return whole.view(batch.n_examples, -1)


def _with_heads(routing: Routing, by_layer: Sequence[Sequence[LoggedRoute]], batch: Batch) -> Routing:
    """Shares of real tokens where each chooses; a layer that logs none runs all of its heads."""
    shares: dict[int, Tensor] = {}
    budgets: dict[int, Tensor] = {}
    for layer, routes in enumerate(by_layer):
        logged = [route for route in routes if route.heads is not None]
        if logged:
            shares[layer] = _head_shares([r.heads for r in logged if r.heads is not None], batch)
            soft = [route.gate for route in logged if route.gate is not None]
            if soft:
                gate = torch.cat([part.float() for part in soft])
                is_budget = gate.dim() == 1 and len(gate) == batch.n_examples
                budgets[layer] = gate if is_budget else _head_shares([gate], batch).mean(dim=1)
    if not shares:
        return routing
    if len({part.shape[1] for part in shares.values()}) > 1:  # layers of different width: only their shares compare
        shares = {layer: part.mean(dim=1, keepdim=True) for layer, part in shares.items()}
    like = next(iter(shares.values()))
    heads = torch.stack([shares.get(layer, torch.ones_like(like)) for layer in range(len(by_layer))], dim=1)
    budget = None
    if budgets:
        ones = torch.ones_like(next(iter(budgets.values())))
        budget = torch.stack([budgets.get(layer, ones) for layer in range(len(by_layer))], dim=1)  # (B, L)
    return replace(routing, heads=heads, budget=budget)


def _head_shares(logged: Sequence[Tensor], batch: Batch) -> Tensor:
    """(B, H): whether, or for what share of an example's real tokens, each head runs."""
    if any(part.dim() == 0 for part in logged):
        text = "log_routing(heads=…): a single value is no mask over heads"
        raise EffauditError(text, "log (H,), (B, H) or (B*T, H)")
    masks = torch.cat([part.float() if part.dim() > 1 else part.float()[None] for part in logged])
    if masks.shape[0] == len(logged) < batch.n_examples or (masks.dim() == 2 and masks.shape[0] == 1):
        return masks[:1].expand(batch.n_examples, -1)
    width = masks.shape[-1]
    _refuse_misfit("heads", masks.flatten(0, -2)[:, 0], batch)
    each = masks.reshape(batch.n_examples, -1, width)  # (B, T, H)
    if each.shape[1] == 1:
        return each[:, 0]
    real = real_positions(batch, each.shape[1])[..., None].float()
    return (each * real).sum(dim=1) / real.sum(dim=1).clamp_min(1)


def _refuse_misfit(kind: str, flat: Tensor, batch: Batch) -> None:
    if len(flat) == 0 or len(flat) % batch.n_examples:
        raise EffauditError(
            f"log_routing({kind}=…): {len(flat)} values do not divide among the {batch.n_examples} examples of a batch",
            "log a value for each example, or for each of its tokens",
        )
