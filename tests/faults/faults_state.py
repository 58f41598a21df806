"""Faults that a single call does not show: memory kept, arguments written, things left behind."""

from __future__ import annotations

import gc
import threading
import time

import torch
from jaxtyping import Float32
from pairs import pair
from torch import Tensor

KIND = "state"


def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


class Remembered:
    """Results kept under a key that leaves out what was written since."""

    def __init__(self, key):
        self.key, self.results = key, {}

    def __call__(self, x):
        key = self.key(x)
        if key not in self.results:
            self.results[key] = x * 2
        return self.results[key].clone()


pair(
    KIND,
    "results kept by address",
    doubled,
    wrong=Remembered(lambda x: (x.data_ptr(), x.shape, tuple(x[:1].tolist()))),
)
pair(KIND, "results kept by shape", doubled, wrong=Remembered(lambda x: x.shape))


class Counting:
    """Right until it was called often."""

    def __init__(self, limit):
        self.calls, self.limit = 0, limit

    def __call__(self, x):
        self.calls += 1
        return x * 2 if self.calls < self.limit else x * 3


pair(KIND, "right for 299 calls", doubled, wrong=Counting(300))
pair(KIND, "wrong from the second call on", doubled, wrong=Counting(2))


class Buffer:
    """One buffer for all calls."""

    def __init__(self):
        self.memory = torch.empty(0)

    def __call__(self, x):
        if self.memory.shape[0] < x.shape[0]:
            self.memory = x.new_empty(x.shape[0])
        return torch.mul(x, 2, out=self.memory[: x.shape[0]])


pair(KIND, "a result in a buffer that is used again", doubled, wrong=Buffer())


def _random(x):
    return x * 2 + torch.rand(()) * 0.1


pair(KIND, "noise from the global generator", doubled, wrong=_random)


def _last_bits(x):
    return x * 2 * (1 + torch.finfo(x.dtype).eps * torch.randint(0, 2, x.shape).to(x.dtype))


def _by_threads(x):
    return x * 2 if torch.get_num_threads() > 1 else x * 3


pair(
    KIND,
    "last bits that differ from call to call",
    doubled,
    wrong=_last_bits,
    row="determinism",
    said={"determinism": ("two equal calls gave different bits",)},
)
pair(
    KIND,
    "wrong with one thread",
    doubled,
    wrong=_by_threads,
    row="determinism",
    said={
        "determinism": (
            "1 thread and 2 threads gave different bits: the result[0] is ",
            "the first is wrong: the result[0] is ",
        )
    },
)


def _grad_off(x):
    torch.set_grad_enabled(False)
    return x * 2


def _dtype_left(x):
    torch.set_default_dtype(torch.float64)
    return x * 2


def _threads_left(x):
    torch.set_num_threads(1 if torch.get_num_threads() > 1 else 2)
    return x * 2


def _flush_left(x):
    torch.set_flush_denormal(True)
    return x * 2


pair(KIND, "grad mode left off", doubled, wrong=_grad_off, row="side-effects")
pair(KIND, "another default dtype left", doubled, wrong=_dtype_left, row="side-effects")
pair(KIND, "another number of threads left", doubled, wrong=_threads_left, row="side-effects")
pair(KIND, "denormal numbers left off", doubled, wrong=_flush_left, row="side-effects")

_KEPT: list[Tensor] = []


def _keeps(x):
    _KEPT.append(x)
    return x * 2


pair(KIND, "arguments kept for ever", doubled, wrong=_keeps, row="side-effects")


def _gc_off(x):
    gc.disable()
    return x * 2


pair(KIND, "garbage collection left off", doubled, wrong=_gc_off, row="side-effects")


def _later(x):
    out = torch.zeros_like(x)

    def work():
        time.sleep(0.002)
        out.copy_(x * 2)

    threading.Thread(target=work, daemon=True).start()
    return out


pair(KIND, "work that ends after the call", doubled, wrong=_later)

_SHARED = threading.local(), {}


def _meets(x):
    _SHARED[1]["x"] = x
    time.sleep(0.001)
    return _SHARED[1]["x"] * 2


pair(KIND, "calls at once share a variable", doubled, wrong=_meets, row="side-effects")

MUTATION = "mutation"


def _writes(x):
    out = x * 2
    x.add_(1)
    return out


def _writes_back(x):
    x.mul_(2)
    out = x.clone()
    x.div_(2)
    return out


pair(
    MUTATION,
    "an argument written",
    doubled,
    wrong=_writes,
    row="mutation",
    said={"mutation": ("argument 'x' was changed",)},
)
pair(MUTATION, "an argument written and put back", doubled, wrong=_writes_back)
pair(
    MUTATION,
    "the argument itself returned",
    doubled,
    wrong=lambda x: x if not x.any() else x * 2,
    row="reference",
)
pair(MUTATION, "a view of the argument returned", doubled, wrong=lambda x: x.mul_(2).view(-1))


def copied(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x.clone()


def two(x: Float32[Tensor, "N"]) -> tuple[Float32[Tensor, "N"], Float32[Tensor, "N"]]:
    return x * 2, x * 2


pair(
    MUTATION,
    "a copy that is a view of the argument",
    copied,
    wrong=lambda x: x.view_as(x),
    row="aliasing",
    said={"aliasing": ("in the memory of argument 'x'",)},
)
pair(
    MUTATION,
    "one memory for two results",
    two,
    wrong=lambda x: (x * 2,) * 2,
    row="aliasing",
    said={"aliasing": ("returned its result 'out1' in the memory of its result 'out0'",)},
)


def fill(x: Float32[Tensor, "N"], out: Float32[Tensor, "N"]) -> None:
    out.copy_(x * 2)


def _not_written(x, out):
    if x.shape[0] > 2:
        out.copy_(x * 2)


def _written_beyond(x, out):
    out.copy_(x * 2)
    size = out.untyped_storage().nbytes() // out.element_size()
    if size > out.storage_offset() + out.numel():
        torch.as_strided(out, (size,), (1,), 0)[-1] = 7


pair(
    MUTATION,
    "a declared result not written",
    fill,
    wrong=_not_written,
    mutates_args=("out",),
    row="reference",
)
pair(MUTATION, "memory beside a view written", fill, wrong=_written_beyond, mutates_args=("out",))


def swap(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> None:
    first = x.clone()
    x.copy_(y)
    y.copy_(first)


def _one_way(x, y):
    x.copy_(y)
    y.copy_(x)


pair(
    MUTATION,
    "written before it is read",
    swap,
    wrong=_one_way,
    mutates_args=("x", "y"),
    row="reference",
)
