"""The classes that the tests of custom classes share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between

SOURCES = Path(__file__).parent / "custom_class_sources"


@opsmith.custom_class("class_samples::Scale")
class Scale:
    """Scales channels."""

    channels: Annotated[int, Between(1, None)]
    weight: Float[Tensor, "{channels}"]
    factor: float = 2.0

    @opsmith.method(autograd="reference")
    def forward(self, x: Float[Tensor, "N {channels}"]) -> Float[Tensor, "N {channels}"]:
        """Multiply each channel by its weight."""
        return x * self.weight * self.factor

    def get_channels(self) -> int:
        return self.channels

    @classmethod
    def ramp(cls, channels: int) -> torch.ScriptObject:
        return cls(channels, torch.arange(1.0, channels + 1))


Scale.forward.register_kernel("cpu", source=SOURCES / "scale.cpp")


@opsmith.custom_class("class_samples::Counter")
class Counter:
    """Counts its calls, and sums what it was given."""

    count: int
    total: Float[Tensor, "C"]

    @opsmith.method(mutates=("count", "total"))
    def forward(self, x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        self.count += 1
        self.total += x.sum(0)
        return x * self.count

    def get_count(self) -> int:
        return self.count


Counter.forward.register_kernel("cpu", source=SOURCES / "counter.cpp")


@opsmith.custom_class("class_samples::Everything")
class Everything:
    """A field of every kind; no kernel."""

    tables: list[Float[Tensor, "T"]]
    maybe: Float[Tensor, "C"] | None
    pads: tuple[int, int]
    sizes: Sequence[int]
    scales: list[float]
    flags: list[bool]
    names: list[str]
    on: bool = True
    eps: float = 1e-5
    mode: str = 'a\tb\n"q"\\'
    limit: int | None = None

    def forward(
        self, x: Float[Tensor, "N C"], k: int = 2, *, bias: bool = False
    ) -> Float[Tensor, "N C"]:
        y = x * k + self.pads[0] + len(self.tables)
        if bias:
            y = y + 100
        return y if self.maybe is None else y + self.maybe

    def both(self, x: Float[Tensor, "N C"]) -> tuple[Float[Tensor, "N"], int, float, bool]:
        return x.sum(1), sum(self.sizes), self.eps, self.on

    def total(self) -> int:
        return self._sum(self.sizes)

    def split(self, x: Float[Tensor, "N C"]) -> list[Tensor]:
        return [row.clone() for row in x]

    def get_names(self) -> list[str]:
        return self.names

    @staticmethod
    def _sum(sizes: Sequence[int]) -> int:
        return sum(sizes)


def everything(**changed: object) -> torch.ScriptObject:
    fields = {
        "tables": [torch.ones(2), torch.ones(2)],
        "maybe": None,
        "pads": (1, 2),
        "sizes": [3, 4, 5],
        "scales": [1.5],
        "flags": [True, False],
        "names": ["x", "y"],
    }
    return Everything(**{**fields, **changed})


@opsmith.custom_class("class_samples::Ticket")
class Ticket:
    """Hands out numbers; neither fields nor methods have a tensor."""

    number: int
    step: int = 1

    @opsmith.method(mutates=("number",))
    def next(self) -> int:
        number = self.number
        self.number += self.step
        return number


Ticket.next.register_kernel("cpu", source=SOURCES / "ticket.cpp")
