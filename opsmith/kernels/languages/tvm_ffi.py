"""Functions of tvm-ffi modules, which were compiled elsewhere: generated C++ calls them."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import re
from pathlib import Path

from opsmith.errors import DeclarationError, MissingDependencyError
from opsmith.kernels.codegen.argument_struct import is_dependent, members_of
from opsmith.kernels.codegen.cache_key import generated_key
from opsmith.kernels.codegen.cpp_names import identifier
from opsmith.kernels.languages.cpp import Cpp
from opsmith.kernels.source import KernelSource
from opsmith.kernels.toolchain.audit import dynamic_symbols
from opsmith.kernels.toolchain.devices import host_reads
from opsmith.kernels.toolchain.torch_paths import require_torch_for
from opsmith.kernels.toolchain.units import Generated, Unit

_NAME = "tvm_ffi.cpp"
_TEMPLATE = Path(__file__).with_name(f"{_NAME}.j2")
# Leave out names with a further underscore, which the module keeps for itself (docstrings, types).
_SYMBOL = re.compile(r"__tvm_ffi_(?!_)(.+)")


class TvmFfi(Cpp):
    """The language of modules whose functions have tvm-ffi's C interface."""

    name = "a tvm-ffi module"
    api = "tvm_ffi"
    suffixes = (".so",)
    compiled_elsewhere = True

    def check(self, source: KernelSource) -> None:
        """Refuse a function that the module lacks, and arguments that it cannot be passed."""
        super().check(source)
        with source.path.open("rb") as module, open("/proc/self/exe", "rb") as program:
            header, own = module.read(20), program.read(20)
        if header[:4] != own[:4] or header[18:] != own[18:]:
            kind = "for another processor" if header[:4] == own[:4] else "no shared library"
            raise DeclarationError(f"{source.what}: {source.path} is {kind}; give one for here")
        there = functions_of(source.path)
        if source.function not in there:
            raise DeclarationError(
                f"{source.what}: {source.path} has no tvm-ffi function {source.function!r}; there "
                f"are {', '.join(there) or 'none'}"
            )
        if _call(source)["returned"] and not host_reads(source.device):
            raise DeclarationError(
                f"{source.what}: a result that a function returns is copied, on the CPU alone. "
                "Pass each result to the function, which args=(…) names in order"
            )

    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Require a C++ compiler, tvm-ffi, and a PyTorch for the device."""
        super().require(source, torch=torch)
        if torch:
            require_torch_for(source.device_row, source.what, "the kernel is on its device")
        _package(source.what)

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of a generated source that calls the function."""
        signature = source.signature
        given = {**_call(source), "library": str(_library(source.what))}

        def files() -> dict[str, str]:
            from opsmith.kernels.codegen.render import argument_header, render

            calling = render(_TEMPLATE, signature, **given)
            return {f"{signature.name}.h": argument_header(signature), _NAME: calling}

        return Unit(
            name=f"{signature.namespace}__{signature.name}",
            source=_NAME,
            generated=Generated(generated_key(signature, given, _TEMPLATE.read_text()), files),
            include_dirs=(_package(source.what) / "include",),
            defines=source.device_row.compile_definitions,
        )

    def needs_beside(self, source: KernelSource) -> tuple[Path, ...]:
        """Return the module and tvm-ffi's library."""
        return source.path, _library(source.what)


LANGUAGE = TvmFfi()


def _call(source: KernelSource) -> dict[str, object]:
    """Return the call as the template takes it: what is passed, and the results that come back."""
    signature, args = source.signature, source.args
    members = {member.name: member.raw_type for member in members_of(signature)}
    results = {identifier(one.name): is_dependent(signature, one) for one in signature.results}
    if args is None:
        before = [one.name for one in signature.parameters]
        args = (*before, *(name for name, dependent in results.items() if not dependent))
    # The plain types of tensor lists, ints, … are plurals.
    allowed = [name for name, type_ in members.items() if not type_.endswith("s")]
    for name in args:
        if identifier(name) not in allowed:
            raise DeclarationError(
                f"{source.what}: tvm-ffi function {source.function!r} cannot be passed {name!r}; "
                f"args takes {', '.join(allowed)}. Declare the items of a list as parameters"
            )
    passed = [identifier(name) for name in args]
    certain = [p.name for p in signature.parameters if p.is_tensor and not p.optional]
    tensors = [name for name in passed if name in (*map(identifier, certain), *results)]
    return {
        "device": source.device,
        "device_of": f"raw.{tensors[0]}->device" if tensors else "{opsmith::device_cpu, 0}",
        "path": str(source.path),
        "function": source.function,
        "passed": passed,
        "returned": [
            (position, "nullptr" if dependent else f"raw.{name}")
            for position, (name, dependent) in enumerate(results.items())
            if name not in passed
        ],
    }


def functions_of(path: Path) -> list[str]:
    """Return the names of the functions that a library exports for tvm-ffi."""
    names = [one.name for one in dynamic_symbols(path) if one.defined]
    return sorted(found[1] for name in names if (found := _SYMBOL.fullmatch(name)))


def file_of(module: object, function: str, what: str) -> str:
    """Return the file of a loaded module, which does not know it, found by a function of it.

    Raises:
        DeclarationError: not one file of this process has the function.
    """
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if ".so" in line}
    found = []
    for path in sorted(paths):
        with contextlib.suppress(OSError):
            if hasattr(ctypes.CDLL(path, os.RTLD_NOLOAD), f"__tvm_ffi_{function}"):
                found.append(path)
    if len(found) == 1:
        return found[0]
    raise DeclarationError(
        f"{what}: register_kernel(tvm_ffi={module!r}): a module does not know its file, and "
        f"{' and '.join(found) or 'none'} of this process has a tvm-ffi function {function!r}. "
        "Give the file: tvm_ffi.cpp.build_inline returns its path"
    )


def _package(what: str) -> Path:
    """Return the folder of tvm-ffi, which is not imported."""
    found = importlib.util.find_spec("tvm_ffi")
    if found is None or found.origin is None:
        raise MissingDependencyError(
            f"{what}: calling a tvm-ffi module needs tvm-ffi, which is not installed. Get it: "
            "pip install 'opsmith[tvm-ffi]'"
        )
    return Path(found.origin).parent


def _library(what: str) -> Path:
    """Return tvm-ffi's library; raise as `_package` does."""
    return _package(what) / "lib" / "libtvm_ffi.so"
