"""Operators that take their process down, or never return; each from four elements on."""

import ctypes
import os
import time

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
