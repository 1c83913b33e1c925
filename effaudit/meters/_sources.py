"""What every source of energy readings offers to the energy meter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from effaudit.record import Caution

Part = Literal["cpu", "ram", "gpu"]


class Source(Protocol):
    """One domain's energy, as a total that only grows."""

    @property
    def domain(self) -> str:
        """What draws it: `package-0`, `dram of package-0`, `gpu-0`, `cpu`, `ram`."""

    @property
    def part(self) -> Part:
        """Which figure of a record it belongs to."""

    @property
    def method(self) -> str:
        """How the figure is had, in a few words."""

    @property
    def is_modelled(self) -> bool:
        """Whether it is computed from a power model instead of read from a counter."""

    @property
    def tick_s(self) -> float:
        """Seconds between updates of the counter; 0 for a model."""

    def read(self) -> float:
        """J since some start; two readings give what was used between them.

        Raises OSError when the counter cannot be read any more.
        """


@dataclass(frozen=True)
class Sources:
    """The sources of one kind that work here, or the reason why none does, as one line with its remedy."""

    found: tuple[Source, ...] = ()
    reason: str = ""
    hint: str = ""
    cautions: tuple[Caution, ...] = ()
