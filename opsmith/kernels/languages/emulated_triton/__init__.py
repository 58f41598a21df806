"""Run Triton kernels on the CPU in Triton's interpreter, and check every memory access.

``TRITON_INTERPRET=1`` would have to be set before Triton is imported, and would apply to all
kernels of the process. An `interpreted` block runs the same kernels in the same interpreter, and
leaves the kernels outside the block alone.
"""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy

from opsmith.compat import triton as compat
from opsmith.errors import FaultError


@dataclass
class _Block:
    """The state of an `interpreted` block: the seed, and the interpreted functions by kernel."""

    seed: int
    functions: dict[Any, Any] = field(default_factory=dict)

    def function_of(self, kernel: Any) -> Any:
        from triton.runtime import interpreter

        if kernel.fn not in self.functions:
            made = interpreter.InterpretedFunction(_with_own_globals(kernel.fn))
            self.functions[kernel.fn] = made
        return self.functions[kernel.fn]


class _Thread(threading.local):
    """The block that this thread is in, and what its launches of autotuned kernels chose among.

    Attributes:
        configurations: the most that a launch had to choose among.
        chosen: the last choice, as the end of a message.
    """

    block: _Block | None = None
    configurations = 1
    chosen = ""


thread = _Thread()
#: The interpreter's state has room for one running program, whichever thread launched it.
_launch = threading.RLock()


@contextmanager
def interpreted(seed: int = 0) -> Iterator[None]:
    """Run every Triton kernel that this thread launches in this block on the CPU.

    Args:
        seed: decides the order of the programs, where 0 is their natural order, and in which of
            its configurations an autotuned kernel runs.

    Raises:
        FaultError: in a launch, if a program accesses memory outside the tensors, or if two
            programs access the same memory unordered and one of them writes.
    """
    with (
        compat.numbers_as_bounds(),
        _launches(),
        _calls(),
        _autotuned_launches(),
        _masked_loads(),
    ):
        before, thread.block = thread.block, _Block(seed)
        try:
            yield
        finally:
            thread.block = before


def _launching(plain: Any) -> Any:
    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        block = thread.block
        if block is None:
            return plain(self, *args, grid=grid, warmup=warmup, **kwargs)
        if warmup:
            return None
        from triton.runtime import interpreter

        names = [name for name in self.arg_names if name not in kwargs]
        tensors = {**dict(zip(names, args, strict=False)), **kwargs}
        with _watched(interpreter.interpreter_builder, self.fn, tensors, block.seed):
            try:
                block.function_of(self).run(*args, grid=grid, warmup=False, **kwargs)
            except interpreter.InterpreterError as error:
                cause: BaseException | None = error
                while isinstance(cause, interpreter.InterpreterError) and cause.__cause__:
                    cause = cause.__cause__
                raise (cause or error) from None
        return None

    return run


def _calling(plain: Any) -> Any:
    """Return a replacement for calls of the functions that kernels call."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        block = thread.block
        if block is None:
            return plain(self, *args, **kwargs)
        return compat.called(block.function_of(self), args, kwargs)

    return call


def _launching_chosen(plain: Any) -> Any:
    """Return a replacement for launches of autotuned kernels, which runs one configuration.

    Timing configurations on the CPU would be meaningless: the seed of the block chooses among those
    that ``prune_configs_by`` leaves.
    """

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if thread.block is None:
            return plain(self, *args, **kwargs)
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        allowed = self.prune_configs(kwargs)
        chosen = allowed[thread.block.seed % len(allowed)]
        thread.configurations = max(thread.configurations, len(allowed))
        named = ", ".join(f"{name}={value}" for name, value in chosen.kwargs.items())
        thread.chosen = f", in the configuration {named}"
        given = {**kwargs, **chosen.all_kwargs()}
        if chosen.pre_hook is not None:
            chosen.pre_hook({**self.nargs, **given})
        return self.fn.run(*args, **given)

    return run


def _loading(plain: Any) -> Any:
    """Return a replacement for masked loads, whose other lanes are undefined without ``other``."""

    def load(self: Any, pointers: Any, mask: Any, other: Any, *how: Any) -> Any:
        # The interpreter takes a single 0 for none.
        if other is None and thread.block is not None and pointers.data.size > 1:
            nothing = type(mask)(numpy.zeros_like(mask.data), mask.dtype)
            other = plain(self, pointers, nothing, None, *how)
            kind = other.data.dtype
            if kind.kind in "fiu":  # half formats that NumPy lacks are unsigned integers
                whole = numpy.iinfo(kind).max if kind.kind == "u" else -1
                other.data[...] = numpy.nan if kind.kind == "f" else whole
        return plain(self, pointers, mask, other, *how)

    return load


_launches = compat.launches_by(_launching)
_calls = compat.calls_by(_calling)
_autotuned_launches = compat.autotuned_launches_by(_launching_chosen)
_masked_loads = compat.masked_loads_by(_loading)


def _with_own_globals(function: Any) -> Any:
    # The interpreter writes names of its own into a function's globals, so give it a copy.
    copy = types.FunctionType(
        function.__code__,
        dict(function.__globals__),
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__annotations__ = function.__annotations__
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


@contextmanager
def _watched(
    builder: Any, function: Any, arguments: Mapping[str, Any], seed: int
) -> Iterator[None]:
    """Check the accesses of one launch, and run its programs in an order drawn from the seed."""
    order: list[Any] = []

    def shuffling(set_index: Callable[..., None]) -> Callable[..., None]:
        def shuffled(x: int, y: int, z: int) -> None:
            columns, rows = builder.grid_dim[1], builder.grid_dim[2]
            if seed and not order:
                programs = builder.grid_dim[0] * columns * rows
                order.extend(numpy.random.default_rng(seed).permutation(programs))
            place = (x * columns + y) * rows + z
            if order:
                place = int(order[place])
            set_index(place // (rows * columns), place // rows % columns, place % rows)

        return shuffled

    def program() -> tuple[int, int, int]:
        found: tuple[int, int, int] = builder.grid_idx
        return found

    memory = _Memory(arguments, program, function.__code__.co_filename)
    with (
        _launch,
        compat.programs_by(shuffling)(),
        compat.memory_by(lambda real: _Watcher(real, memory))(),
    ):
        yield


class _Watcher:
    """The interpreter's functions for memory accesses, with checks."""

    def __init__(self, real: Any, memory: _Memory) -> None:
        self._real, self._memory = real, memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def load(self, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._memory.read(pointers, mask, dtype.itemsize)
        return self._real.load(pointers, mask, other, dtype)

    def store(self, pointers: Any, value: Any, mask: Any) -> Any:
        self._memory.write(pointers, value, mask, self._real.load)
        return self._real.store(pointers, value, mask)

    def atomic_rmw(self, operation: Any, pointers: Any, value: Any, mask: Any, order: Any) -> Any:
        self._memory.exchange(pointers, mask, value.dtype.itemsize)
        return self._real.atomic_rmw(operation, pointers, value, mask, order)

    def atomic_cas(self, pointers: Any, compared: Any, value: Any, order: Any) -> Any:
        self._memory.exchange(pointers, None, value.dtype.itemsize)
        return self._real.atomic_cas(pointers, compared, value, order)


class _Memory:
    """The tensors of a launch, and the programs that accessed each of their bytes."""

    def __init__(
        self, arguments: Mapping[str, Any], program: Callable[[], tuple[int, int, int]], file: str
    ) -> None:
        self._np, self._program, self._file = numpy, program, file
        found = []
        for name, value in arguments.items():
            if hasattr(value, "data_ptr") and value.numel():
                last = sum(
                    (size - 1) * step
                    for size, step in zip(value.shape, value.stride(), strict=True)
                )
                start, itemsize = value.data_ptr(), value.element_size()
                found.append((start, start + (last + 1) * itemsize, name, itemsize))
        self._names = [(start, end, name, size) for start, end, name, size in sorted(found)]
        merged: list[list[int]] = []
        for start, end, _, _ in self._names:
            # Arguments may share memory.
            if merged and start < merged[-1][1]:
                merged[-1][1] = max(end, merged[-1][1])
            else:
                merged.append([start, end])
        self._starts = numpy.array([start for start, _ in merged], numpy.uint64)
        self._ends = numpy.array([end for _, end in merged], numpy.uint64)
        lengths = [end - start for start, end in merged]
        self._first = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.int64)
        # For each byte: the program that wrote it, and the program that read it, -1 for several.
        self._writers = numpy.zeros(int(self._first[-1]), numpy.int64)
        self._readers = numpy.zeros(int(self._first[-1]), numpy.int64)
        self._ordered = False
        self._programs: dict[int, tuple[int, int, int]] = {}

    def read(self, pointers: Any, mask: Any, size: int) -> None:
        at, addresses, me = self._places("reads", pointers, mask, size)
        if self._ordered or not len(at):
            return
        writers = self._writers[at]
        self._refuse_race(addresses, (writers != 0) & (writers != me), writers, "reads", "writes")
        readers = self._readers[at]
        self._readers[at] = self._np.where((readers == 0) | (readers == me), me, -1)

    def write(self, pointers: Any, value: Any, mask: Any, load: Callable[..., Any]) -> None:
        np = self._np
        size = value.dtype.itemsize
        at, addresses, me = self._places("writes", pointers, mask, size)
        if self._ordered or not len(at):
            return
        values = np.broadcast_to(value, pointers.shape)[np.broadcast_to(mask, pointers.shape)]
        bits = np.ascontiguousarray(values).view(f"u{size}")
        order = np.argsort(at, kind="stable")
        twice = (np.diff(at[order]) == 0) & (np.diff(bits[order].astype(np.int64)) != 0)
        if twice.any():
            where = self._shown(int(addresses[order][:-1][twice][0]))
            self._refuse(f"one store writes several values to {where}", "OPS-CUDA-RACE")
        writers, readers = self._writers[at], self._readers[at]
        others = (writers != 0) & (writers != me)
        if others.any():
            there = load(
                addresses, np.ones(len(at), bool), np.zeros(len(at), value.dtype), value.dtype
            )
            # Programs may race to write the same value.
            others &= np.ascontiguousarray(there).view(f"u{size}") != bits
            self._refuse_race(addresses, others, writers, "writes", "writes too")
        self._refuse_race(addresses, (readers != 0) & (readers != me), readers, "writes", "reads")
        self._writers[at] = me

    def exchange(self, pointers: Any, mask: Any, size: int) -> None:
        self._places("writes", pointers, mask, size)
        # An atomic operation may order the programs from here on, so report no more races.
        self._ordered = True

    def _places(self, doing: str, pointers: Any, mask: Any, size: int) -> tuple[Any, Any, int]:
        """Return the positions in the tensors, their addresses, and the number of this program."""
        np = self._np
        program = self._program()
        me = _number(program)
        self._programs[me] = program
        addresses = np.asarray(pointers, np.uint64)
        if mask is not None:
            addresses = addresses[np.broadcast_to(mask, addresses.shape).astype(bool)]
        addresses = addresses.reshape(-1)
        if not len(addresses):
            return addresses.astype(np.int64), addresses, me
        region = np.searchsorted(self._starts, addresses, "right").astype(np.int64) - 1
        inside = region >= 0
        if inside.any():
            inside &= addresses + np.uint64(size) <= self._ends[np.maximum(region, 0)]
        if not inside.all():
            address = int(addresses[~inside][0])
            self._refuse(f"{doing} {size} bytes {self._beside(address)}", "OPS-MEMORY-BOUNDS")
        return (
            self._first[region] + (addresses - self._starts[region]).astype(np.int64),
            addresses,
            me,
        )

    def _refuse_race(self, addresses: Any, wrong: Any, others: Any, doing: str, did: str) -> None:
        if not wrong.any():
            return
        other = int(others[wrong][0])
        program = self._programs.get(other)
        who = f"program {program}" if program is not None else "another program"
        self._refuse(
            f"a race: {doing} {self._shown(int(addresses[wrong][0]))}, which {who} {did}: nothing "
            "orders the programs of a launch",
            "OPS-CUDA-RACE",
        )

    def _shown(self, address: int) -> str:
        for start, end, name, size in self._names:
            if start <= address < end:
                return f"element {(int(address) - start) // size} of '{name}'"
        return hex(address)

    def _beside(self, address: int) -> str:
        """Describe an address outside the tensors by the nearest tensor."""
        if not self._names:
            return "of no tensor: every tensor of the call is empty"

        def distance(one: tuple[int, int, str, int]) -> int:
            return one[0] - address if address < one[0] else address - one[1]

        start, end, name, size = min(self._names, key=distance)
        if address < start:
            return f"{start - address} before '{name}', which has {(end - start) // size} elements"
        element = (address - start) // size
        return f"as element {element} of '{name}', which has {(end - start) // size}"

    def _refuse(self, what: str, code: str) -> NoReturn:
        line, frame = "", sys._getframe(1)
        while frame is not None and not line:
            if frame.f_code.co_filename == self._file:
                line = f"\n  at {self._file}:{frame.f_lineno}"
            frame = frame.f_back  # type: ignore[assignment]
        raise FaultError(f"program {self._program()} {what}{line}", code)


def _number(program: tuple[int, int, int]) -> int:
    """Return a positive number for a program; grids have at most 2^31 programs in x."""
    x, y, z = program
    return 1 + x + (y << 31) + (z << 47)
