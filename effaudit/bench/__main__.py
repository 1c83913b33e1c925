"""Runs one benchmark by name and prints its table."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from pathlib import Path

from effaudit.errors import EffauditError, unknown_name


def main(arguments: list[str]) -> int:
    """Prints the table of the benchmark named first; the rest are its own arguments."""
    known = [m.name for m in pkgutil.iter_modules([str(Path(__file__).parent)]) if not m.name.startswith("_")]
    try:
        if not arguments or arguments[0] not in known:
            raise unknown_name("benchmarks", arguments[0] if arguments else "", known)
        print(import_module(f"effaudit.bench.{arguments[0]}").run(arguments[1:]))
    except EffauditError as error:
        print(f"error: {error.message}\nhint: {error.hint}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
