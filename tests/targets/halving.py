"""An operator whose results show how its threads compute, and a host that computes otherwise."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import torch
from jaxtyping import Float64, Int64
from torch import Tensor

import opsmith
from opsmith import Positive


@opsmith.op("numbers_test::halve")
def halve(
    x: Annotated[Float64[Tensor, "N"], Positive()],
    pieces: bool,
    fail: bool = False,
    upward: bool = False,
) -> tuple[Float64[Tensor, "N"], Float64[Tensor, "N"], Int64[Tensor, "1"]]:
    """Return half of `x`, 1 + `x`, and how many threads computed them."""
    return x / 2, 1 + x, torch.full((1,), 2 if pieces else 1)


halve.register_kernel("cpu", source=Path(__file__).parent / "sources" / "halve.cpp")

#: The largest subnormal number and the smallest normal one, again and again.
X = torch.tensor([2.0**-1022 - 2.0**-1074, 2.0**-1022], dtype=torch.float64).repeat(32)

_LIBM = ctypes.CDLL("libm.so.6")
#: What <fenv.h> calls FE_UPWARD, by the machine.
_UPWARD = {"x86_64": 0x800, "aarch64": 0x400000}.get(platform.machine(), 0)


def is_right(results: Any, pieces: bool) -> bool:
    """Return whether the results are those of threads that flush nothing and round to nearest."""
    halves, sums, threads = (torch.as_tensor(result) for result in results)
    assert threads.item() == (2 if pieces else 1), "no second thread came, so that it shows nothing"
    # Compared as bits: this process may flush.
    right = torch.tensor([2**51, 2**51]).repeat(32)
    return torch.equal(halves.view(torch.int64), right) and bool((sums == 1).all())


def on_a_thread_that_flushes(call: Callable[[], Any]) -> Any:
    """Call a function on a new thread that flushes subnormal numbers and rounds up.

    The threads that PyTorch gives this one do so, too. Fails if the thread computes otherwise
    afterwards, also where the function raises.
    """

    def run() -> Any:
        torch.set_flush_denormal(True)
        _LIBM.fesetround(_UPWARD)
        X.repeat(1 << 12).exp()  # starts those threads
        try:
            return call()
        finally:
            now = _LIBM.fegetround(), bool((X[:1] * 1.0) != 0)
            _LIBM.fesetround(0)
            assert now == (_UPWARD, False), f"rounding mode {now[0]}, subnormal kept: {now[1]}"

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()
