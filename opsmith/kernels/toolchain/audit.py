"""Refuse a library that depends on symbols that the next version of PyTorch may not have."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsmith.errors import BuildError

# Names of PyTorch's C++ interface, mangled: the namespaces at, c10, torch and caffe2.
_TORCH_NAMESPACES = ("2at", "3c10", "5torch", "6caffe2")
_STABLE_PREFIXES = ("aoti_torch_", "torch_")


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol of an ELF file."""

    name: str
    defined: bool
    weak: bool


def dynamic_symbols(path: Path) -> Iterator[Symbol]:
    """Yield the dynamic symbols of a 64-bit little-endian ELF file; no symbols of other formats."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        return
    (sections_at,) = struct.unpack_from("<Q", data, 0x28)
    entry_size, count = struct.unpack_from("<HH", data, 0x3A)
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", data, sections_at + i * entry_size) for i in range(count)
    ]
    for header in headers:
        _, kind, _, _, offset, size, link, _, _, step = header
        if kind != 11:  # SHT_DYNSYM
            continue
        strings_at = headers[link][4]
        for at in range(offset + step, offset + size, step):
            name_at, info, _, section = struct.unpack_from("<IBBH", data, at)
            end = data.index(b"\0", strings_at + name_at)
            name = data[strings_at + name_at : end].decode(errors="replace")
            yield Symbol(name, section != 0, info >> 4 == 2)


def is_torch(name: str) -> bool:
    """Return whether a symbol is PyTorch's, stable or not."""
    return name.startswith(_STABLE_PREFIXES) or is_unstable_torch(name)


def is_unstable_torch(name: str) -> bool:
    """Return whether a symbol belongs to PyTorch's C++ interface, which is not stable."""
    if not name.startswith("_Z"):
        return False
    # Look for a namespace in the name of the called function, or in the type of an argument.
    # Symbols of torch/headeronly are templates and inline functions: compiled in, they are not
    # undefined.
    return any(f"N{part}" in name or f"NK{part}" in name for part in _TORCH_NAMESPACES)


def demangle(names: Sequence[str]) -> Sequence[str]:
    """Return the names as C++ writes them; unchanged where ``c++filt`` is not installed."""
    tool = shutil.which("c++filt")
    if tool is None or not names:
        return names
    process = subprocess.run([tool, *names], capture_output=True, text=True, check=False)
    lines = process.stdout.splitlines()
    return lines if len(lines) == len(names) else names


def audit(path: Path, torch: str, what: str) -> None:
    """Refuse a library that depends on more of PyTorch than it may.

    Args:
        torch: ``"stable"`` allows the C shims only, ``"none"`` nothing, ``"full"`` everything.
        what: the operator and the source, for the message.

    Raises:
        BuildError: the library needs other symbols; the message names them.
    """
    if torch == "full":
        return
    refused = is_torch if torch == "none" else is_unstable_torch
    found = [s.name for s in dynamic_symbols(path) if not s.defined and refused(s.name)]
    if not found:
        return
    shown = "\n".join(f"  {name}" for name in demangle(sorted(found)))
    if torch == "none":
        reason = (
            "needs PyTorch, and this library is for a runtime without it. These symbols would be "
            "missing there:"
        )
        remedy = "Include nothing of PyTorch but torch/headeronly."
    else:
        reason = (
            "needs symbols of PyTorch's C++ interface, which changes with every version, so the "
            "library would break:"
        )
        remedy = (
            "Use <opsmith/kernel.h> and torch/headeronly only, or register the source with "
            'api="torch" to bind it to this version of PyTorch.'
        )
    raise BuildError(f"{what} {reason}\n{shown}\n{remedy}")
