"""The planted CUDA faults that the table is about: those of tests/faults/in_cuda, and our own here.

Ours are of kinds that opsmith did not emulate then: to leave them out would be unfair.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
for _folder in ("tests/faults/in_cuda", "tests/emulators/cuda", "tests/faults", "tests", "."):
    sys.path.append(str(ROOT / _folder))

from cuda_faults import (  # noqa: E402
    ALGORITHMS,
    GROUPS,
    RIGHT,
    Group,
    phase_of,
)
from jaxtyping import Float32  # noqa: E402
from right_results import turned_by_64  # noqa: E402
from torch import Tensor  # noqa: E402

from opsmith.errors import MissingDependencyError  # noqa: E402
from opsmith.kernels import kernel_source  # noqa: E402
from opsmith.kernels.languages.emulated_cuda import emulated  # noqa: E402
from opsmith.signature import signature_of  # noqa: E402

#: The kind of fault that each failure code of opsmith's stands for.
KINDS = {
    "CUDA-RACE": "races",
    "CUDA-BARRIER": "barriers, deadlocks",
    "MEMORY-BOUNDS": "bounds",
    "CUDA-ALIGNMENT": "alignment, undefined operations",
    "CUDA-UNDEFINED": "alignment, undefined operations",
    "CUDA-LAUNCH": "launches, streams",
    "CUDA-HOST": "host and device mixed",
    "MUTATION-UNDECLARED": "wrong or unwritten results",
    "": "wrong or unwritten results",
}
#: Seconds in which a library that was compiled before is found.
_FROM_CACHE = 8
#: In each, memory begins otherwise, and blocks and threads run in another order.
PHASES = (phase_of(1), phase_of(2, 0x7F))


def named_barriers(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def bulk_copies(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def clusters(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def _turned_by_32(x: Tensor) -> Tensor:
    return x.view(-1, 32).flip(1).flatten()


def _halves_swapped(x: Tensor) -> Tensor:
    return x.roll(len(x) // 2)


def _own(declared: Any, kind: str, right: Any, faults: dict[str, int]) -> tuple[Group, str]:
    signature = signature_of(declared, f"peers::{declared.__name__}")
    said = {name: (n, right, "", "") for name, n in faults.items()}
    return Group(signature, said, noisy=HERE / f"{declared.__name__}.cu"), kind


#: The groups here, and the kind of their faults: how many elements each is called with.
OWN = (
    _own(
        named_barriers,
        "named barriers",
        _turned_by_32,
        {
            "taken_without_the_barrier": 32,
            "waits_at_another_barrier": 32,
            "waits_for_too_many": 32,
            "brought_again_too_early": 96,
        },
    ),
    _own(
        bulk_copies,
        "bulk copies, mbarriers",
        turned_by_64,
        {
            "bulk_copy_not_waited_for": 64,
            "more_bytes_awaited_than_copied": 64,
            "fewer_bytes_awaited_than_copied": 64,
            "waited_for_before_it_is_initialised": 64,
            "waited_for_the_phase_before": 64,
        },
    ),
    _own(
        clusters,
        "clusters",
        _halves_swapped,
        {"read_from_a_block_that_has_not_written": 128, "read_from_a_block_that_has_left": 128},
    ),
)


@dataclass(frozen=True)
class Set:
    """The faults of one file, or right kernels alone."""

    group: Group
    kind: str = ""

    @property
    def name(self) -> str:
        """The operator's name."""
        return self.group.signature.name

    @property
    def only_right(self) -> bool:
        """Return whether no kernel has a fault."""
        return self.group is RIGHT

    def kind_of(self, fault: str) -> str:
        """Return the kind of a fault."""
        if self.only_right:
            return "right kernels of unusual form"
        return self.kind or KINDS[self.group.faults[fault][2]]

    def elements(self, fault: str) -> int:
        """Return how many elements the kernel is called with."""
        return int(self.group.faults[fault][0])


def sets() -> list[Set]:
    """Every set, ours first.

    Faults in calls of CUB's and Thrust's algorithms, and behind PyTorch's host code, are left out:
    SentryWard takes kernels, and not the code that calls them. So are those of barriers that are in
    a folder of their own, which are later than the table: ours are of the same kind.
    """
    shared = [Set(group) for group in GROUPS if group.faults is not ALGORITHMS and not group.folder]
    return [*(Set(group, kind) for group, kind in OWN), *shared, Set(RIGHT)]


class Opsmith:
    """The emulation of CUDA, over one set."""

    def __init__(self, one: Set) -> None:
        self.group = one.group
        self.only_right = one.only_right
        self.refusal = ""
        started = time.monotonic()
        try:
            source = kernel_source(
                self.group.signature, "cuda", self.group.source, api=self.group.api
            )
            on_cpu = emulated(source, watched=True)
            on_cpu.language.require(on_cpu)
            self.group.build  # noqa: B018
        except MissingDependencyError as error:
            self.refusal = str(error).partition("emulate this kernel: ")[2] or str(error)
        self.build_seconds = time.monotonic() - started
        # Count no file that came from the cache: it took less than any compiler.
        self.was_compiled = not self.refusal and self.build_seconds > _FROM_CACHE

    def verdict_on(self, fault: str, wrong: bool) -> tuple[str, str, float]:
        """Return ``flags``, ``passes`` or ``refuses``; the code or the reason; the seconds."""
        if self.refusal:
            return "refuses", self.refusal, 0.0
        started = time.monotonic()
        said = [self.group.called(fault, wrong, phase) for phase in PHASES]
        seconds = time.monotonic() - started
        flagged = [code or "wrong results" for code, remarks in said if code != "right" or remarks]
        return ("flags", flagged[0], seconds) if flagged else ("passes", "", seconds)
