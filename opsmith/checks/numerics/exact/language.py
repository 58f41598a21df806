"""Kernels whose numbers are never rounded: a source compiled unchanged, for the checks.

``float``, ``double`` and the half types become ``opsmith::exact::Number`` by macros, once the
headers of the standard library, PyTorch and opsmith are included.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opsmith.checks.cases.failure import need_emulators
from opsmith.kernels.languages.cpp import Cpp
from opsmith.kernels.toolchain.units import Generated, Unit
from opsmith.signature.dtype_variables import parts
from opsmith.system.files import key_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opsmith.kernels.source import KernelSource
    from opsmith.kernels.toolchain.recipe import LinkedWith


_NATIVE = Path(__file__).parent / "native"
#: Names the file of the numbers, which opsmith's headers then include.
_DEFINE = f"OPSMITH_EXACT=<{_NATIVE / 'element.h'}>"
_BEGIN = "opsmith_exact_begin.h"
_INCLUDE = re.compile(r"""^[ \t]*\#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]""", re.MULTILINE)
_TENSOR = re.compile(r"\bopsmith::(Tensor|TensorList|Output)<(const )?(float|double)>")
_TYPES = {"float": "opsmith::exact::Float", "double": "opsmith::exact::Double"}
#: Makes numbers as large as the types that they stand for, see ``native/handles.h``.
_HANDLES = "OPSMITH_EXACT_HANDLES"
#: The codes and the size of elements as ``detail/dtypes.h`` has them.
CODES = {"float16": 66, "bfloat16": 67, "float32": 68, "float64": 69}
BITS = 128
BYTES = BITS // 8
_POINTERS = re.compile(
    r"\(\s*(?:const\s+)?(?:u?int\d+_t|unsigned|int|long|short|char|void|unsigned\s+\w+)\s*\*+\s*\)"
    r"\s*&|\bunion\b|\b(?:__)?asm(?:__)?\b|\bbit_cast\b|\b_mm\d*_|\bsvld|\bvld1"
)
_TABLE = re.compile(
    r"\b(?:static|const|constexpr)\b[\w\s]*(?:\bstd::array<\s*(?:float|double)\b"
    r"|\b(?:float|double)\s+\w+\s*\[)"
)


class ExactCpp(Cpp):
    """The language C++ with numbers that are never rounded."""

    name = "C++, exact"

    def __init__(self, dtypes: str | None) -> None:
        super().__init__()
        self._keys = ",".join(map(_key, parts(dtypes)))

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of the unchanged source, with other numbers."""
        unit = with_exact_numbers(source, super().unit(source), standard_headers(source))
        only = (f"OPSMITH_EXACT_ONLY={self._keys}",) if self._keys else ()
        return replace(unit, defines=(*unit.defines, *only))

    def beside(self, source: KernelSource) -> LinkedWith:
        """Return the options that link an adapter with the unit."""
        return defining(super().beside(source))


def defining(beside: LinkedWith, *more: str) -> LinkedWith:
    """Return options that link an adapter, with the definition that its numbers are exact."""
    return {**beside, "defines": (*beside["defines"], _DEFINE, *more)}


def with_exact_numbers(
    source: KernelSource, unit: Unit, headers: list[str], after: tuple[str, ...] = ()
) -> Unit:
    """Return a unit whose numbers are never rounded.

    Args:
        unit: the unit of the source, with its argument headers.
        headers: the headers to include before the numbers are replaced.
        after: the headers to include with the numbers replaced, before the source.
    """
    own = [f'"{one.name}.h"' for one in source.signatures]
    exact, types, bits = (f"<{_NATIVE / name}.h>" for name in ("exact", "types", "bits"))
    before = (exact, *headers, *own, types, *after, bits)
    return replace(
        unit,
        generated=_headers(unit.generated, before),
        defines=(*unit.defines, _DEFINE),
        flags=(
            *unit.flags,
            "-include",
            _BEGIN,
            # A kernel's warnings are about its own types; it is compiled with them too.
            "-w",
            # It runs for small cases alone, and compiles in two thirds of the time of -O1.
            "-Og",
            "-fno-finite-math-only",
        ),
        explain=None,
    )


def _headers(generated: Generated, before: tuple[str, ...]) -> Generated:
    """Return argument headers whose tensors of a fixed dtype have exact elements.

    A further header includes them, and then replaces the types of a source.
    """
    begin = "".join(f"#include {header}\n" for header in before)

    def render() -> dict[str, str]:
        def exact(match: re.Match[str]) -> str:
            return f"opsmith::{match[1]}<{match[2] or ''}{_TYPES[match[3]]}>"

        texts = generated.render().items()
        return {_BEGIN: begin, **{name: _TENSOR.sub(exact, text) for name, text in texts}}

    return Generated(key_of([begin, generated.key]), render)


def standard_headers(source: KernelSource) -> list[str]:
    """Return the headers in angle brackets of a source and of the files that it includes.

    They come before the numbers are replaced, as they are made for the language's own.
    """
    found: dict[str, None] = {}
    seen: set[Path] = set()
    pending = [source.path.resolve()]
    while pending:
        path = pending.pop()
        if path in seen or not path.is_file():
            continue
        seen.add(path)
        for match in _INCLUDE.finditer(path.read_text(errors="replace")):
            if match[1] == "<":
                found[f"<{match[2]}>"] = None
                continue
            places = (path.parent, *source.include_dirs)
            pending += [(folder / match[2]).resolve() for folder in places]
    # Headers of a folder of the user's are the user's code.
    own = [folder for folder in source.include_dirs if folder.is_dir()]
    return [name for name in found if not any((one / name[1:-1]).is_file() for one in own)]


def _key(dtype: str) -> str:
    """Return the number by which C++ knows a dtype in an exact build: its code, and its bits."""
    if dtype in CODES:
        return str(CODES[dtype] << 8 | BITS)
    kind, bits = re.sub(r"\d", "", dtype), re.sub(r"\D", "", dtype) or "8"
    return str({"int": 0, "uint": 1, "bool": 6}[kind] << 8 | int(bits))


def exact(source: KernelSource, dtypes: str | None = None) -> KernelSource:
    """Return a C++ source as a source whose numbers are never rounded.

    Args:
        dtypes: the choice of dtypes to compile the kernel for; by default all.
    """
    return replace(source, language=ExactCpp(dtypes))


def exact_emulated(source: KernelSource) -> KernelSource:
    """Return a CUDA source to compile for the CPU, with numbers that are never rounded."""
    need_emulators(f"{source.what}, without a GPU,")
    from opsmith.kernels.languages.emulated_cuda import INCLUDE, CudaOnCpu

    own = ("<emulated/cuda.h>", "<opsmith/cuda.h>")

    class ExactCuda(CudaOnCpu):
        name = "CUDA on the CPU, exact"

        def unit(self, source: KernelSource) -> Unit:
            headers = _of_others(self.own_code(source).included, own, (INCLUDE,))
            return with_exact_numbers(source, super().unit(source), headers, own)

        def beside(self, source: KernelSource) -> LinkedWith:
            return defining(super().beside(source))

    return replace(source, language=ExactCuda(watched=False))


def exact_ascendc(source: KernelSource) -> KernelSource:
    """Return a source of Ascend C to compile for the CPU, with numbers that are never rounded."""
    need_emulators(f"{source.what}, without an NPU,")
    from opsmith.kernels.languages.emulated_npu import INCLUDE, AscendCOnCpu

    own = ("<opsmith/ascendc.h>",)

    class ExactAscendC(AscendCOnCpu):
        name = "Ascend C on the CPU, exact"

        def unit(self, source: KernelSource) -> Unit:
            headers = _of_others(self.own_code(source).included, own, INCLUDE)
            headers.insert(0, "<emulated/runtime.h>")
            unit = with_exact_numbers(source, super().unit(source), headers, own)
            return replace(unit, defines=(*unit.defines, _HANDLES))

        def beside(self, source: KernelSource) -> LinkedWith:
            return defining(super().beside(source), _HANDLES)

    return replace(source, language=ExactAscendC())


def _of_others(
    included: Iterable[tuple[str, object]], own: Sequence[str], emulated: Sequence[Path]
) -> list[str]:
    """Return the headers of a source that are neither the emulation's nor in `own`.

    Those are about a kernel's numbers, so they come when these are replaced.
    """
    names = [name for name, _ in included if name.startswith("<") and name not in own]
    return [n for n in names if not any((place / n[1:-1]).is_file() for place in emulated)]


def obstacle(path: Path) -> str:
    """Return what in a source leaves the field, with its line; empty if nothing does."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        found = _POINTERS.search(line.partition("//")[0])
        if found is not None:
            return f"{found[0].strip()!r} at {path}:{number} may read the bits of a number"
    return ""


def table_in(path: Path) -> str:
    """Return the place of the first table of real numbers in a source; empty if there is none."""
    for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
        if _TABLE.search(line.partition("//")[0]):
            return f"{path}:{number}"
    return ""
