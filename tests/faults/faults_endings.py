"""Operators that raise, hang, or take their process down; most from four elements on.

Tests of what runs checks apart use all of them; those that authors of kernels plant are faults.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float32
from pairs import PAIRS, Pair
from torch import Tensor

import opsmith

KIND = "exceptions and hangs"


def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


def ending(kernel: Any) -> opsmith.Operator:
    """Declare an operator that doubles, with a kernel that may do something else."""
    operator = opsmith.op(f"endings::{kernel.__name__}")(doubled)
    operator.register_kernel("cpu", kernel)
    return operator


@ending
def segfault(x: Tensor) -> Tensor:
    if x.shape[0] > 3:
        print("about to read address 0", flush=True)
        ctypes.string_at(0)
    return x * 2


@ending
def abort(x: Tensor) -> Tensor:
    if x.shape[0] > 3:
        os.abort()
    return x * 2


@ending
def leave(x: Tensor) -> Tensor:
    if x.shape[0] > 3:
        os._exit(7)
    return x * 2


@ending
def hang(x: Tensor) -> Tensor:
    while x.shape[0] > 3:
        time.sleep(1)
    return x * 2


@ending
def odd(x: Tensor) -> Tensor:
    # Wrong for a few values only, so that the case found tells what was sampled.
    return x * 2 + (x > 1.7)


@ending
def leave_86(x: Tensor) -> Tensor:
    os._exit(86)


@ending
def grow(x: Tensor) -> Tensor:
    held = []
    while x.shape[0] > 3:
        held.append(b"x" * (1 << 27))
    return x * 2


@opsmith.op("endings::growing_reference")
def growing_reference(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    held = []
    while x.shape[0] > 3:
        held.append(b"x" * (1 << 27))
    return x * 2


@growing_reference.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x * 2


@opsmith.op("endings::sleeping_reference")
def sleeping_reference(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    while x.shape[0] > 3:
        time.sleep(1)
    return x * 2


@sleeping_reference.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x * 2


@ending
def shout(x: Tensor) -> Tensor:
    # Into every pipe that there is, that of the answers among them.
    for descriptor in range(3, 256):
        with contextlib.suppress(OSError):
            os.write(descriptor, b'{"event": "row"}\n[1, 2\n')
    return x * 2


@ending
def close_all(x: Tensor) -> Tensor:
    os.closerange(0, 256)
    return x * 2


@ending
def spawn(x: Tensor) -> Tensor:
    if os.fork() == 0:
        os.setsid()
        Path(os.environ["OPSMITH_TEST_SPAWNED"]).write_text(str(os.getpid()))
        time.sleep(600)
    return x * 2


@opsmith.op("endings::by_shape")
def by_shape(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


_KEPT: dict[object, Tensor] = {}


@by_shape.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return _KEPT.setdefault(x.shape, x * 2).clone()


@ending
def forks(x: Tensor) -> Tensor:
    copy = os.fork()
    if copy and x.shape[0] < 4:
        os.waitpid(copy, 0)
    return x * 2 if copy or x.shape[0] > 3 else os._exit(0)


@ending
def starts_a_program(x: Tensor) -> Tensor:
    subprocess.Popen(["sleep", "100"])
    return x * 2


@ending
def spin(x: Tensor) -> Tensor:
    Path(os.environ["OPSMITH_TEST_SPAWNED"]).write_text(str(os.getpid()))
    while True:
        pass


@ending
def double(x: Tensor) -> Tensor:
    return x * 2


_calls = 0


@ending
def late(x: Tensor) -> Tensor:
    # As a heap that was damaged shows it many calls later.
    global _calls
    _calls += 1
    if _calls > 5:
        os.abort()
    return x * 2


@ending
def stale(x: Tensor) -> Tensor:
    global _calls
    _calls += 1
    return x * 2 if _calls < 5 else x * 3


@ending
def always_wrong(x: Tensor) -> Tensor:
    return x * 3


@opsmith.op("endings::exported")
def exported(x: Float32[Tensor, "N"], mode: str) -> Float32[Tensor, "N"]:
    return x * (3 if mode == "three" else 2)


@exported.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for n, mode in enumerate(("two", "two", "three", "three")):
        yield {"x": torch.ones(2 + n), "mode": mode}


@exported.register_onnx
def _(op: Any, x: Any, mode: str) -> Any:
    if mode == "three":
        os.kill(os.getpid(), signal.SIGFPE)
    return op.Add(x, x)


@ending
def raises_at_7(x: Tensor) -> Tensor:
    if x.shape[0] == 7:
        raise RuntimeError("seven")
    return x * 2


@ending
def hangs_at_5(x: Tensor) -> Tensor:
    while x.shape[0] == 5:
        time.sleep(0.01)
    return x * 2


@ending
def leaves_at_3(x: Tensor) -> Tensor:
    if x.shape[0] == 3:
        os._exit(0)
    return x * 2


for name, wrong in {
    "an exception for one size": raises_at_7,
    "a hang for one size": hangs_at_5,
    "the end of the process": leaves_at_3,
    "a read of address 0": segfault,
    "an abort": abort,
    "a copy of the process": forks,
}.items():
    PAIRS.append(Pair(name, KIND, wrong, double, "reference"))
