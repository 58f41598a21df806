"""Requests to the harness, and its answers."""

from __future__ import annotations

import signal
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.failure import Inapplicable
from opsmith.checks.harness.build import Build
from opsmith.checks.harness.symbolize import first_report, innermost
from opsmith.checks.isolation.fork_detection import FORK_CODE
from opsmith.operators.core.arguments import DTYPES, dtype_name, each_tensor
from opsmith.signature import Parameter, ScalarType, SequenceType, Signature
from opsmith.signature.dtypes import COMMON, UNSIGNED
from opsmith.system.scratch import scratch_folder
from opsmith.system.stopwatch import spending
from opsmith.system.watchdog import watched

#: DLPack's codes of dtypes, by name without bits; those of float8 have codes of their own.
_FAMILIES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}
_CODES = {
    **{
        name: (_FAMILIES[name.rstrip("0123456789")], 8 * DTYPES[name].itemsize)
        for name in (*COMMON, *UNSIGNED)
    },
    "float8_e4m3fn": (10, 8),
    "float8_e5m2": (12, 8),
}
_NAMES = {code: name for name, code in _CODES.items()}
_SCALARS = {"int": ("i", "q"), "float": ("f", "d"), "bool": ("b", "B")}


@dataclass(frozen=True)
class Elements:
    """A tensor whose elements PyTorch has no dtype for, as an argument or a result.

    Attributes:
        code: DLPack's code of the dtype, or one of opsmith's own.
        bits: the size of an element.
        strides: the strides in elements.
        memory: the elements from the first to the last, gaps included; in a vast call, some of
            them, which are repeated.
    """

    code: int
    bits: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    memory: bytes


@dataclass(frozen=True)
class Phase:
    """One way of calling a kernel.

    Attributes:
        at_end: whether memory ends at an inaccessible page; otherwise, it begins behind one.
        fill: the byte that results and scratch memory are filled with.
        seed: seed for the pieces of ``parallel_for`` and their order; 0 for a single piece.
        threads: number of threads for these pieces.
        calls: number of calls; with more than one, memory is counted that the later calls allocate
            and never free.
        together: whether all cases are called at the same time.
        pause: index of a tensor, in the order of arguments and results. With `together`, the call
            of the first case stops at its first access to this tensor until the other calls have
            returned. Negative for no stop.
        emulated: whether the kernel is an emulated CUDA kernel; `seed` then decides the order of
            blocks and threads.
        launches_only: whether no thread of an emulated kernel runs: only what its host code does is
            checked.
        vast: whether tensors of 64 MiB or more are a few megabytes of memory that are mapped again
            and again; their results are not returned, and only the last pieces of ``parallel_for``
            and the last blocks of a grid run.
    """

    at_end: bool = True
    fill: int = 0xFF
    seed: int = 0
    threads: int = 1
    calls: int = 1
    together: bool = False
    pause: int = -1
    emulated: bool = False
    launches_only: bool = False
    vast: bool = False

    def describe(self) -> str:
        """Describe the way of calling, as the beginning of a message."""
        if self.pause >= 0:
            return "called by one thread in the middle of another's call"
        if self.together:
            return "called by two threads at once"
        if self.emulated:
            begin = "" if self.at_end else ", and tensors that begin at a page"
            return f"with blocks and threads in order {self.seed}{begin}"
        if not self.seed:
            return "called alone"
        if self.threads == 1:
            return "with the pieces of parallel_for in another order"
        return f"with the pieces of parallel_for on {self.threads} threads"


#: Failure codes by the beginning of the driver's message.
_SAID = {
    "wrote into ": "OPS-MUTATION-UNDECLARED",
    "wrote ": "OPS-MEMORY-BOUNDS",
    "read ": "OPS-MEMORY-BOUNDS",
    "accessed memory": "OPS-MEMORY-BOUNDS",
    "allocates ": "OPS-MEMORY-LEAK",
    "left ": "OPS-SIDE-EFFECTS-SETTING",
    "works on": "OPS-RESULT-REUSED",
    "forked ": FORK_CODE,
    "takes scratch memory": "OPS-CALL-MEMORY",
}
#: Failure codes by the word that the emulation of CUDA puts, with a bar, before its message.
_KINDS = {
    "alignment": "OPS-CUDA-ALIGNMENT",
    "barrier": "OPS-CUDA-BARRIER",
    "bounds": "OPS-MEMORY-BOUNDS",
    "host": "OPS-CUDA-HOST",
    "launch": "OPS-CUDA-LAUNCH",
    "mutation": "OPS-MUTATION-UNDECLARED",
    "npu-launch": "OPS-NPU-LAUNCH",
    "npu-order": "OPS-NPU-ORDER",
    "npu-parameter": "OPS-NPU-PARAMETER",
    "npu-queue": "OPS-NPU-QUEUE",
    "npu-race": "OPS-NPU-RACE",
    "race": "OPS-CUDA-RACE",
    "undefined": "OPS-CUDA-UNDEFINED",
    "unsure": "OPS-CALL-MEMORY",  # of a vast call whose memory may hold other values
}
_SANITIZERS = {
    "address": "OPS-SANITIZE-ADDRESS",
    "undefined": "OPS-SANITIZE-UNDEFINED",
    "thread": "OPS-SANITIZE-THREAD",
    "memory": "OPS-SANITIZE-MEMORY",
}


def code_of(said: str) -> str:
    """Return the failure code for a message of the driver."""
    return next((code for words, code in _SAID.items() if said.startswith(words)), "OPS-CALL-CRASH")


class Fault(Exception):
    """The kernel violated a rule, and its process ended; the message says which rule."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Called:
    """The outcome of one call.

    Attributes:
        refused: the message of a call that failed; empty for one that succeeded.
        results: the results; `None` for a result that the kernel did not allocate.
        written: the new contents of every argument that may be written, by name.
        split: whether ``parallel_for`` was called and split into pieces.
        seen: messages about faults beside the results.
        remarks: messages that may explain a wrong result, but are no faults by themselves.
        untouched: the tensors of a vast call that nothing accessed.
    """

    refused: str
    results: list[Tensor | None]
    written: dict[str, Tensor]
    split: bool
    seen: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    untouched: list[str] = field(default_factory=list)

    def tensors(self) -> list[Tensor]:
        """Return the results, then the written arguments, in the order of `flatten`."""
        return [one for one in (*self.results, *self.written.values()) if one is not None]


@spending("calls")
def run(
    build: Build,
    signature: Signature,
    cases: Sequence[Mapping[str, Any]],
    phases: Sequence[Phase],
    seconds: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> list[list[Called]]:
    """Call a kernel on every case in every phase.

    Args:
        cases: arguments by name; tensors on the CPU in any layout that the kernel accepts, or
            `Elements`.
        phases: the ways of calling.
        seconds: time limit in seconds for all calls together.
        environment: further environment variables of the process.

    Returns:
        The outcomes of the calls, by phase and by case.

    Raises:
        Fault: the kernel touched memory that is not its own, crashed, or did not return.
    """
    with scratch_folder("harness") as folder, watched() as variables:
        request, answer = folder / "cases", folder / "results"
        request.write_bytes(_request(signature, cases, phases))
        answer.touch()
        command = [str(build.program), str(build.library), str(request), str(answer)]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=seconds,
                env={**_environment(build), **variables, **(environment or {})},
                check=False,
            )
        except subprocess.TimeoutExpired:
            message = f"did not return within {seconds:.0f} s"
            raise Fault(message, "OPS-CALL-HANG") from None
        return _answer(_AnswerReader(answer.read_bytes()), build, signature, cases, phases, done)


def _environment(build: Build) -> dict[str, str]:
    import os

    options = "halt_on_error=1:exitcode=97:abort_on_error=0"
    return {
        **os.environ,
        "ASAN_OPTIONS": f"{options}:detect_leaks=0:detect_stack_use_after_return=1",
        "UBSAN_OPTIONS": f"{options}:print_stacktrace=1",
        "TSAN_OPTIONS": options,
        "MSAN_OPTIONS": options,
    }


def flat_memory(tensor: Tensor) -> Tensor:
    """Return the memory from a tensor's first element to its last, gaps included."""
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return torch.as_strided(tensor, (reach + 1 if tensor.numel() else 0,), (1,))


def repeated(pattern: Tensor, shape: tuple[int, ...]) -> Elements:
    """Return a contiguous tensor of a vast call, which repeats a pattern."""
    strides = torch.empty(shape, device="meta").stride()
    memory = pattern.contiguous().view(torch.uint8).numpy().tobytes()
    return Elements(*_CODES[dtype_name(pattern.dtype)], shape, strides, memory)


# --- the request ---------------------------------------------------------------------------------


#: The seed with which the emulation of CUDA runs no thread; see runtime/state.h.
_NO_THREADS = 2**64 - 1
#: The seed with which only the ends of loops and grids run; see <emulated/vast.h>.
_ENDS_ONLY = 2**64 - 2


def _request(
    signature: Signature, cases: Sequence[Mapping[str, Any]], phases: Sequence[Phase]
) -> bytes:
    parts = [struct.pack("<I", len(phases))]
    for phase in phases:
        parts.append(
            struct.pack(
                "<BBQiiBi",
                phase.at_end,
                phase.fill,
                _NO_THREADS if phase.launches_only else _ENDS_ONLY if phase.vast else phase.seed,
                phase.threads,
                phase.calls,
                phase.together,
                phase.pause,
            )
        )
    parts.append(struct.pack("<I", len(cases)))
    for arguments in cases:
        parts.append(struct.pack("<I", len(signature.parameters)))
        parts += [_argument(one, arguments[one.name]) for one in signature.parameters]
    return b"".join(parts)


def _argument(parameter: Parameter, value: Any) -> bytes:
    type_ = parameter.type
    if isinstance(type_, ScalarType | SequenceType):
        return _plain(type_.kind, value)
    tensors = _named(parameter.name, value)
    head = b"t" + struct.pack("<q", -1 if value is None else len(tensors))
    return head + b"".join(_tensor(name, tensor, parameter.mutated) for name, tensor in tensors)


def _named(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return every tensor of an argument with its name (``x``, ``xs[0]``)."""
    several = isinstance(value, list | tuple)
    return [(f"{name}[{n}]" if several else name, one) for n, one in enumerate(each_tensor(value))]


def _plain(kind: str, value: Any) -> bytes:
    if kind == "str":
        text = b"" if value is None else str(value).encode()
        return b"s" + struct.pack("<q", -1 if value is None else len(text)) + text
    tag, form = _SCALARS[kind]
    values = [] if value is None else list(value) if isinstance(value, list | tuple) else [value]
    head = tag.encode() + struct.pack("<q", -1 if value is None else len(values))
    return head + struct.pack(f"<{len(values)}{form}", *values)


def _tensor(name: str, tensor: Any, mutated: bool) -> bytes:
    """Encode a tensor with its memory from the first to the last element, gaps included."""
    if isinstance(tensor, Elements):
        return _encoded(name, mutated, (tensor.code, tensor.bits), tensor, tensor.memory)
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is {type(tensor).__name__}, expected a tensor")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    memory = flat_memory(tensor).contiguous().view(torch.uint8).numpy().tobytes()
    return _encoded(name, mutated, _CODES[dtype_name(tensor.dtype)], tensor, memory)


def _encoded(
    name: str, mutated: bool, dtype: tuple[int, int], tensor: Tensor | Elements, memory: bytes
) -> bytes:
    label, rank = name.encode(), len(tensor.shape)
    strides = tensor.strides if isinstance(tensor, Elements) else tensor.stride()
    return b"".join(
        [
            struct.pack("<BBI", 1, mutated, len(label)),
            label,
            struct.pack("<BBI", *dtype, rank),
            struct.pack(f"<{rank}q", *tensor.shape),
            struct.pack(f"<{rank}q", *strides),
            struct.pack("<QQ", 0, len(memory)),
            memory,
        ]
    )


# --- the answer ----------------------------------------------------------------------------------


class _AnswerReader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def get(self, form: str) -> Any:
        values = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return values[0] if len(values) == 1 else values

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self) -> str:
        return self.take(self.get("I")).decode(errors="replace")


def _answer(
    reader: _AnswerReader,
    build: Build,
    signature: Signature,
    cases: Sequence[Mapping[str, Any]],
    phases: Sequence[Phase],
    done: subprocess.CompletedProcess[str],
) -> list[list[Called]]:
    report: list[list[Called]] = []
    for phase in phases:
        calls: list[Called] = []
        report.append(calls)
        for arguments in cases:
            mark = reader.take(1)
            if mark == b"C":
                calls.append(_call(reader, build, signature, arguments))
                continue
            if mark == b"F":
                said, also = _placed(reader, build), _placed(reader, build)
                kind, _, rest = said.partition("|")
                if kind == "absent":
                    raise Inapplicable(rest)
                code, said = (_KINDS[kind], rest) if kind in _KINDS else (code_of(said), said)
                raise Fault(f"{said}\n{also}" if also else said, code)
            raise _ended(build, phase, done)
    if reader.take(1) != b"E":
        raise _ended(build, phases[-1], done)
    return report


def _ended(build: Build, phase: Phase, done: subprocess.CompletedProcess[str]) -> Fault:
    """Return the fault of a process that ended without writing a message to its file."""
    said = first_report(done.stderr, build) if build.sanitizer else ""
    if said:
        return Fault(said, _SANITIZERS[build.sanitizer])
    if done.returncode == -signal.SIGXCPU:
        return Fault("took too long", "OPS-CALL-HANG")
    crashed = done.returncode < 0
    how = (
        f"was ended by signal {-done.returncode}"
        if crashed
        else f"ended the process with exit code {done.returncode}"
    )
    lines = [line for line in done.stderr.splitlines() if line.strip()][-8:]
    tail = "; it said:\n" + "\n".join(f"  {line}" for line in lines) if lines else ""
    code = "OPS-CALL-CRASH" if crashed else "OPS-CALL-EXIT"
    return Fault(f"{phase.describe()}: {how}{tail}", code)


def _placed(reader: _AnswerReader, build: Build) -> str:
    """Read a message and add its source location; empty if there is no message."""
    text = reader.text()
    where = innermost([reader.text() for _ in range(reader.get("I"))], build)
    return f"{text}\n  at {where}" if text and where else text


def _call(
    reader: _AnswerReader, build: Build, signature: Signature, arguments: Mapping[str, Any]
) -> Called:
    failed, message = reader.get("B"), reader.text()
    split = bool(reader.get("B"))
    results: list[Tensor | None] = []
    for _ in range(reader.get("I")):
        if not reader.get("B"):
            results.append(None)
            continue
        code, bits, rank = reader.get("BBi")
        shape = struct.unpack_from(f"<{rank}q", reader.data, reader.at)
        reader.at += 8 * rank
        memory = reader.take(reader.get("Q"))
        results.append(_result(memory, (code, bits), shape))
    blocks = [reader.take(reader.get("Q")) for _ in range(reader.get("I"))]
    before = [one for p in signature.mutated for one in _named(p.name, arguments[p.name])]
    written = {
        name: _rewritten(tensor, block)
        for (name, tensor), block in zip(before, blocks, strict=False)
    }
    seen = [reader.text() for _ in range(reader.get("I"))]
    remarks = [_placed(reader, build) for _ in range(reader.get("I"))]
    untouched = [reader.text() for _ in range(reader.get("I"))]
    return Called(message if failed else "", results, written, split, seen, remarks, untouched)


def _result(memory: bytes, dtype: tuple[int, int], shape: tuple[int, ...]) -> Any:
    if dtype not in _NAMES:
        strides = [1] * len(shape)
        for dim in range(len(shape) - 1, 0, -1):
            strides[dim - 1] = strides[dim] * max(shape[dim], 1)
        return Elements(*dtype, shape, tuple(strides), memory)
    return _from_bytes(memory, _NAMES[dtype]).reshape(shape)


def _from_bytes(memory: bytes, dtype: str) -> Tensor:
    if not memory:
        return torch.empty(0, dtype=DTYPES[dtype])
    return torch.frombuffer(bytearray(memory), dtype=torch.uint8).view(DTYPES[dtype])


def _rewritten(tensor: Any, memory: bytes) -> Any:
    if isinstance(tensor, Elements):
        return replace(tensor, memory=memory)
    if not memory:
        return tensor.clone()
    flat = _from_bytes(memory, dtype_name(tensor.dtype))
    return flat.as_strided(tensor.shape, tensor.stride()).clone()
