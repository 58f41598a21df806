"""Record what the planted CUDA faults launch: PTX by nvcc, and each launch of their host code.

The host code runs in a process of its own, against `recorder/` in place of CUDA's runtime. No GPU
is needed, and nothing is written by hand: sizes and arguments are those that the tests call with.

    python launches.py FOLDER    what FOLDER/faults.json asks for, as JSON
"""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RECORDER = HERE / "recorder"
_STUB = "#pragma once\n#include <opsmith/cuda.h>\nnamespace {} {{ using {}_args = {}; }}\n"
_ENTRY = re.compile(r"^(?:\.visible |\.weak )*\.entry (\w+)\s*\((.*?)\)", re.M | re.S)
_PARAMETER = re.compile(r"\.param (?:\.align \d+ )?\.(\w+)(?:\s+\.ptr\b[^,]*?)?\s+(\w+)(\[\d+\])?")
#: Of PTX's types: how the recorder reads an argument.
_READ = {
    "u8": ctypes.c_uint8,
    "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}
_READ |= {"b32": ctypes.c_uint32, "b64": ctypes.c_uint64, "s32": ctypes.c_int32}
_READ |= {"b8": ctypes.c_uint8, "b16": ctypes.c_uint16, "s64": ctypes.c_int64}
_REPORT = ctypes.CFUNCTYPE(
    None,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint),
    ctypes.c_size_t,
    ctypes.POINTER(ctypes.c_void_p),
)


@dataclass(frozen=True)
class Compiled:
    """A file of faults as nvcc compiles it: a folder with ``lib.so`` and PTX."""

    folder: Path
    said: str

    @property
    def ptx(self) -> str:
        """The PTX of all kernels of the file."""
        return next(self.folder.glob("*.ptx")).read_text()


def compiled(source: Path, namespace: str, operator: str, folder: Path, nvcc: Path) -> Compiled:
    """Compile a file of faults for sm_90, without ptxas.

    Raises:
        RuntimeError: nvcc refuses the file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stub = _STUB.format(namespace, operator, "opsmith::FaultArguments")
    (folder / f"{operator}.h").write_text(stub)
    # Leave out what nvcc itself refuses, as tests/faults/in_cuda does.
    flags = [
        "-std=c++20",
        "--expt-relaxed-constexpr",
        "-gencode",
        "arch=compute_90,code=compute_90",
        "-lineinfo",
    ]
    flags += ["-shared", "-Xcompiler", "-fPIC", "-cudart", "none", "-Dof_the_host="]
    flags += ["-keep", "--keep-dir", str(folder), f"-I{folder}", f"-I{RECORDER}"]
    library = folder / "lib.so"
    parts = [str(source), str(RECORDER / "recorder.cpp")]
    made_of = [source, *RECORDER.rglob("*.*"), nvcc]
    if library.exists() and all(p.stat().st_mtime < library.stat().st_mtime for p in made_of):
        return Compiled(folder, "")
    done = subprocess.run(
        [str(nvcc), *flags, *parts, "-o", str(library)], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{source}: {done.stderr[-2000:]}")
    return Compiled(folder, done.stderr)


def recorded(build: Compiled, faults: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what each fault launches, called as ``{"name", "wrong", "n"}`` says.

    A launch has ``kernel``, ``grid``, ``block``, ``shared`` and ``arguments``; an argument has the
    type of PTX, and ``value`` or the name of the memory (``room``) and the ``offset`` in bytes.
    """
    (build.folder / "faults.json").write_text(json.dumps(faults))
    command = [sys.executable, __file__, str(build.folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def parameters(ptx: str, entry: str) -> list[tuple[str, int]]:
    """Return type and count (for a structure, of bytes) of each parameter of an entry."""
    found = next(one for one in _ENTRY.finditer(ptx) if one[1] == entry)
    return [(p[1], int(p[3][1:-1]) if p[3] else 0) for p in _PARAMETER.finditer(found[2])]


def only(ptx: str, entry: str) -> str:
    """Cut the PTX down to one entry, and to the variables and functions that it names."""
    heads = list(re.finditer(r"^(?:\.(?:visible|weak|extern) )*\.(?:entry|func)\b", ptx, re.M))
    end_of_head = heads[0].start()
    pieces = {}
    for at in heads:
        piece = ptx[at.start() : _end_of(ptx, at.start())]
        name = re.search(r"\.(?:entry|func)\s+(?:\(.*?\)\s*)?(\w+)", piece, re.S)
        assert name is not None
        pieces[name[1]] = piece
    needed, waiting = [], [entry]
    while waiting:
        one = waiting.pop()
        if one in needed:
            continue
        needed.append(one)
        words = set(re.findall(r"\w+", pieces[one]))
        waiting += [n for n, p in pieces.items() if n in words and ".func" in p[:40]]
    words = {word for name in needed for word in re.findall(r"\w+", pieces[name])}
    kept = []
    for line in ptx[:end_of_head].splitlines():
        variable = re.match(
            r"\.(?:\w+ )*?\.?(?:global|const|shared)\b.*?(\w+)(?:\[\d*\])*\s*[;=]", line
        )
        if variable is None or variable[1] in words:
            kept.append(line)
    tail = "\n".join(line for line in ptx.splitlines() if line.startswith("\t.file"))
    body = "\n\n".join(pieces[name] for name in reversed(needed))
    return "\n".join(kept) + f"\n{body}\n{tail}"


def _end_of(ptx: str, start: int) -> int:
    """Return where a function ends: behind its last brace, or the semicolon of a declaration."""
    depth = 0
    for at in re.compile(r"[{};]").finditer(ptx, ptx.index(")", start)):
        depth += {"{": 1, "}": -1, ";": 0}[at[0]]
        if depth == 0:
            return at.end()
    raise ValueError("the PTX ends within a function")


class _Recorder:
    """The library of one file, loaded."""

    def __init__(self, build: Compiled) -> None:
        self.ptx = build.ptx
        self.library = ctypes.CDLL(str(build.folder / "lib.so"))
        self.library.recorder_room.restype = ctypes.c_char_p
        self.library.recorder_room.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64)]
        self.library.record_fault.argtypes = [ctypes.c_char_p, ctypes.c_bool, ctypes.c_int64]

    def launches_of(self, name: str, wrong: bool, n: int) -> list[dict[str, Any]]:
        launches: list[dict[str, Any]] = []

        def report(kernel: bytes, sizes: Any, shared: int, arguments: Any) -> None:
            entry = kernel.decode()
            given = [
                self.argument(arguments[i], kind, count)
                for i, (kind, count) in enumerate(parameters(self.ptx, entry))
            ]
            launches.append(
                {
                    "kernel": entry,
                    "grid": list(sizes[:3]),
                    "block": list(sizes[3:6]),
                    "shared": shared,
                    "arguments": given,
                }
            )

        self.library.recorder_begin(to := _REPORT(report))
        self.library.record_fault(name.encode(), wrong, n)
        del to
        return launches

    def argument(self, at: int, kind: str, count: int) -> dict[str, Any]:
        if count:
            return {"type": kind, "bytes": count}
        value = _READ[kind].from_address(at).value
        if kind in ("u64", "b64"):
            offset = ctypes.c_int64()
            room = self.library.recorder_room(value, ctypes.byref(offset)).decode()
            if room:
                return {"type": kind, "room": room, "offset": offset.value}
        return {"type": kind, "value": value}


def main() -> None:
    """Print the launches of each fault, one line of JSON each."""
    folder = Path(sys.argv[1])
    recorder = _Recorder(Compiled(folder, ""))
    for fault in json.loads((folder / "faults.json").read_text()):
        print(json.dumps({**fault, "launches": recorder.launches_of(**fault)}), flush=True)


if __name__ == "__main__":
    main()
