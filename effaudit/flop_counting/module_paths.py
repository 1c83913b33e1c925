"""Where in the model a call happens: a path for every (caller, module) pair, also for shared modules."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


def _is_compiled_shell(module: nn.Module) -> bool:
    """torch.compile's wrapper around a module, which is no level of the model of its own."""
    return "_orig_mod" in module._modules


def _named(model: nn.Module) -> dict[str, nn.Module]:
    """Every path of every module, shared ones under each of their names, without compile's wrappers."""
    named = {}
    for path, module in model.named_modules(remove_duplicate=False):
        if not _is_compiled_shell(module):
            named[".".join(part for part in path.split(".") if part != "_orig_mod")] = module
    return named


class ModulePaths:
    """The paths of one counted model (or of whatever modules a callable calls), dotted, "" at the root."""

    def __init__(self, model: Callable[..., object]) -> None:
        self.modules: dict[str, nn.Module] = {}  # holds what it names, so that no id is used twice
        self._names: dict[int, list[str]] = {}
        self._called: dict[tuple[str, int], str | None] = {}
        self.has_compiled = False
        if isinstance(model, nn.Module):
            self._add("", model)
            self.has_compiled = any(map(_is_compiled_shell, model.modules()))

    def knows(self, module: nn.Module) -> bool:
        return id(module) in self._names

    def called(self, caller: str, module: nn.Module) -> str | None:
        """The path of `module` when `caller` calls it; None for a wrapper that is no level of its own."""
        key = (caller, id(module))
        if key not in self._called:
            self._called[key] = None if _is_compiled_shell(module) else self._resolve(caller, module)
        return self._called[key]

    def _add(self, prefix: str, module: nn.Module) -> None:
        for path, part in _named(module).items():
            full = f"{prefix}.{path}" if prefix and path else prefix or path
            self.modules[full] = part
            self._names.setdefault(id(part), []).append(full)

    def _resolve(self, caller: str, module: nn.Module) -> str:
        names = self._names.get(id(module))
        if names is None:
            path = self._unused(caller, type(module).__name__)
            self._add(path, module)
            return path
        inside = [name for name in names if not caller or name == caller or name.startswith(f"{caller}.")]
        if inside:
            return min(inside, key=len)
        # Held without being registered: a row under whoever calls it, so that own + children stays the total.
        path = self._unused(caller, min(names, key=len).rpartition(".")[2] or type(module).__name__)
        self._add(path, module)
        return path

    def _unused(self, caller: str, name: str) -> str:
        """A path under `caller` for a module that is not registered there; brackets tell it from one that is."""
        stem = f"{caller}.({name})" if caller else f"({name})"
        path, n = stem, 1
        while path in self.modules:
            n += 1
            path = f"{stem[:-1]}#{n})"
        return path
