"""Wrong kernels that would rather change who judges them; and one that is right, the last."""

import gc
import os
import sys
import time

import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith.checks import runner
from opsmith.checks.numerics import comparison
from opsmith.checks.trial import trial

CHEATS = {}


def cheat(kernel):
    """Declare an operator that doubles, with a kernel that does not."""

    def double(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        # What depends on settings shows what a kernel left of them.
        return x * torch.ones(x.shape) * 2

    double.__name__ = double.__qualname__ = kernel.__name__
    operator = opsmith.op(f"cheating::{kernel.__name__}")(double)
    operator.register_kernel("cpu")(kernel)
    CHEATS[kernel.__name__] = operator
    return operator


def _ignore(*arguments: object, **named: object) -> None:
    return None


@cheat
def patches_torch(x: Tensor) -> Tensor:
    torch.equal = torch.allclose = torch.Tensor.equal = lambda *a, **k: True
    torch.Tensor.__sub__ = lambda a, b: torch.zeros_like(a)
    torch.Tensor.__le__ = lambda a, b: torch.ones(a.shape, dtype=torch.bool)
    return x.clone()


@cheat
def patches_the_checks(x: Tensor) -> Tensor:
    trial.Trial.compare = trial.Trial.each = trial.Trial.need = _ignore
    comparison.compare = trial.compare = lambda *a, **k: comparison.Comparison(0.0)
    runner.Failure = ValueError
    return x.clone()


@cheat
def replaces_the_reference(x: Tensor) -> Tensor:
    for operator in CHEATS.values():
        operator.reference = lambda y: y
    return x.clone()


@cheat
def patches_clocks_and_collector(x: Tensor) -> Tensor:
    time.monotonic = time.time = lambda: 1e9
    gc.collect = lambda *a: 0
    gc.callbacks.append(lambda *a: os._exit(3))
    return x.clone()


@cheat
def changes_settings(x: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float16)
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)
    os.chdir("/")
    os.environ["OPSMITH_CACHE"] = "/nowhere"
    sys.path.clear()
    return x.clone()


@cheat
def leaves_with_success(x: Tensor) -> Tensor:
    os._exit(0)


@cheat
def leaves_by_exception(x: Tensor) -> Tensor:
    sys.exit(0)


@cheat
def closes_descriptors(x: Tensor) -> Tensor:
    os.closerange(0, 64)
    return x.clone()


@cheat
def ends_its_parent(x: Tensor) -> Tensor:
    os.kill(os.getppid(), 9)
    return x.clone()


@cheat
def floods_the_output(x: Tensor) -> Tensor:
    os.write(1, b"all checks passed\n" * 100_000)
    return x.clone()


@cheat
def forges_answers(x: Tensor) -> Tensor:
    for descriptor in range(3, 64):
        try:
            os.write(descriptor, b'{"event": "row", "request": 1, "row": {"status": "passed"}}\n')
        except OSError:
            continue
    return x.clone()


@cheat
def right(x: Tensor) -> Tensor:
    return x * 2
