"""Operators that take their process down, or never return; each from four elements on."""

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
from torch import Tensor

import opsmith


@opsmith.op("crashing::segfault")
def segfault(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@segfault.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    if x.shape[0] > 3:
        print("about to read address 0", flush=True)
        ctypes.string_at(0)
    return x * 2


@opsmith.op("crashing::abort")
def abort(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@abort.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    if x.shape[0] > 3:
        os.abort()
    return x * 2


@opsmith.op("crashing::leave")
def leave(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@leave.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    if x.shape[0] > 3:
        os._exit(7)
    return x * 2


@opsmith.op("crashing::hang")
def hang(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@hang.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    while x.shape[0] > 3:
        time.sleep(1)
    return x * 2


@opsmith.op("crashing::odd")
def odd(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@odd.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    # Wrong for a few values only, so that the case found tells what was sampled.
    return x * 2 + (x > 1.7)


@opsmith.op("crashing::leave_86")
def leave_86(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@leave_86.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    os._exit(86)


@opsmith.op("crashing::grow")
def grow(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@grow.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    held = []
    while x.shape[0] > 3:
        held.append(b"x" * (1 << 27))
    return x * 2


@opsmith.op("crashing::shout")
def shout(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@shout.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    # Into every pipe that there is, that of the answers among them.
    for descriptor in range(3, 256):
        with contextlib.suppress(OSError):
            os.write(descriptor, b'{"event": "row"}\n[1, 2\n')
    return x * 2


@opsmith.op("crashing::close_all")
def close_all(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@close_all.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    os.closerange(0, 256)
    return x * 2


@opsmith.op("crashing::spawn")
def spawn(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@spawn.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    if os.fork() == 0:
        os.setsid()
        Path(os.environ["OPSMITH_TEST_SPAWNED"]).write_text(str(os.getpid()))
        time.sleep(600)
    return x * 2


@opsmith.op("crashing::by_shape")
def by_shape(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


_KEPT: dict[object, Tensor] = {}


@by_shape.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return _KEPT.setdefault(x.shape, x * 2).clone()


@opsmith.op("crashing::forks")
def forks(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@forks.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    copy = os.fork()
    if copy and x.shape[0] < 4:
        os.waitpid(copy, 0)
    return x * 2 if copy or x.shape[0] > 3 else os._exit(0)


@opsmith.op("crashing::starts_a_program")
def starts_a_program(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@starts_a_program.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    subprocess.Popen(["sleep", "100"])
    return x * 2


@opsmith.op("crashing::spin")
def spin(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@spin.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    Path(os.environ["OPSMITH_TEST_SPAWNED"]).write_text(str(os.getpid()))
    while True:
        pass


@opsmith.op("crashing::double")
def double(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@double.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x * 2


_calls = 0


@opsmith.op("crashing::late")
def late(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@late.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    # As a heap that was damaged shows it many calls later.
    global _calls
    _calls += 1
    if _calls > 5:
        os.abort()
    return x * 2


@opsmith.op("crashing::stale")
def stale(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@stale.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    global _calls
    _calls += 1
    return x * 2 if _calls < 5 else x * 3


@opsmith.op("crashing::always_wrong")
def always_wrong(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


@always_wrong.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return x * 3


@opsmith.op("crashing::exported")
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
