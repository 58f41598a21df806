"""Build the operator libraries of an artifact, and decide how compiled code calls each kernel.

Inductor calls an operator in ``aot_inductor.custom_ops_to_c_shims`` by a C function, the shim,
whose declaration is given as text: without the dispatcher. Inductor defines how each argument is
passed, and the function's name: ``aoti_torch_<device>_<operator>``, without the namespace. The
declarations here bind that name to a symbol of opsmith's own, which is unique to this operator and
this build of it.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.fx import Node

from opsmith import kernels
from opsmith.compat.torch_inductor import function_name
from opsmith.errors import ExportError
from opsmith.kernels import HOST, adapters
from opsmith.kernels.languages.cpp import torch_adapter
from opsmith.kernels.toolchain.audit import dynamic_symbols
from opsmith.operators import Operator
from opsmith.operators.dispatch.gates import argument_gate
from opsmith.signature.parameters import TensorListType
from opsmith.targets.aotinductor.definitions import definitions
from opsmith.targets.exporting.artifact import OperatorUse
from opsmith.targets.exporting.operator_export import copy_needed

FOLDER = "libraries"
_HERE = Path(__file__).parent
DEFINITION = _HERE / "definition.cpp.j2"
_SHIM = _HERE / "shim.cpp.j2"
_INCLUDE = _HERE / "include"

# Characters that need no escape in a C++ string literal.
_PLAIN = re.compile(r'[^"\\\x00-\x1f\x7f-\U0010ffff]*')

# How inductor passes an argument, by its type in the kernel's struct. A sequence is followed by its
# count.
_PASSED = {
    "const opsmith::DLTensor*": "AtenTensorHandle",
    "opsmith::DLTensor*": "AtenTensorHandle",
    "opsmith::raw_tensors": "const AtenTensorHandle*",
    "opsmith::written_tensors": "const AtenTensorHandle*",
    "opsmith::raw_string": "const char*",
    "opsmith::raw_ints": "const int64_t*",
    "opsmith::raw_floats": "const double*",
    "opsmith::raw_bools": "const int32_t*",
    "opsmith::raw_optional_int": "int64_t",
    "opsmith::raw_optional_float": "double",
    "opsmith::raw_optional_bool": "int32_t",
    "int64_t": "int64_t",
    "double": "double",
    "uint8_t": "int32_t",
}


@dataclass(frozen=True)
class LibraryEntry:
    """A library as the manifest lists it.

    Attributes:
        file: its path within the artifact.
        operator: the operator that it serves; empty for a library that the user passed.
        call: ``"direct"``: compiled code links the library; ``"proxy"``: it registers kernels with
            PyTorch's dispatcher; ``"definition"``: it defines the operator.
        defines: the schemas, by name, of the operators that it serves; for a library that the user
            passed, of the operators that it defines.
        namespaces: for a library that the user passed, the namespaces that it claims.
    """

    file: str
    operator: str
    schema: str
    call: str
    defines: dict[str, str] = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()


@dataclass
class Plan:
    """The plan for one operator of the model on one device.

    Attributes:
        proxy: why compiled code must call through the dispatcher; empty for a direct call.
        tag: identifier of this build of the kernel; see `_symbol`.
        files: the libraries with their `LibraryEntry.call`, in loading order.
    """

    operator: Operator
    source: kernels.KernelSource
    calls: Sequence[Node]
    proxy: str = ""
    tag: str = ""
    files: list[tuple[Path, str]] = field(default_factory=list)

    @property
    def device(self) -> str:
        """Return the device type."""
        return self.source.device

    @property
    def use(self) -> OperatorUse:
        """Return the entry for the report and the manifest."""
        how = f"through the dispatcher: {self.proxy}" if self.proxy else "directly"
        return OperatorUse(self.operator.name, "library", len(self.calls), f"called {how}")

    @property
    def declaration(self) -> str:
        """Return the C declaration of the shim, for ``custom_ops_to_c_shims``."""
        signature = self.source.signature
        arguments = adapters.arguments_of(signature)
        types = [type_ for argument in arguments for type_, _ in _passed(argument)]
        types += ["AtenTensorHandle*"] * len(signature.results)
        if not signature.results:
            types.append("void*")  # Inductor passes a null pointer in place of the result.
        function = function_name(signature.qualname, self.device)
        return (
            f"AOTITorchError {function}({', '.join(types)}) "
            f"__asm__({adapters.quote(_symbol(self.source, self.tag))})"
        )

    def build(self) -> None:
        """Build the libraries, or find them in the cache.

        Raises:
            BuildError: the kernel does not compile.
            MissingDependencyError: there is no compiler.
        """
        source, signature = self.source, self.operator.signature
        own = source.build()
        name = f"{signature.namespace}__{signature.name}__{self.device}"
        what = f"{source.what} for AOTInductor"
        if not source.language.has_entry:
            refuse_python(own, source.what)
            if not kernels.defines_operator(source.path, signature):
                text = adapters.render(DEFINITION, signature)
                defined = kernels.Recipe(f"{name}__definition", generated={"d.cpp": text}).build()
                self.files.append((defined, "definition"))
            self.files.append((own, "proxy"))
            gate = argument_gate.build_for_programs(source)
            self.files.append((gate, "proxy"))
            return
        if self.proxy:
            path = source.build_beside(
                f"{name}__registered",
                torch_adapter(source),
                torch="stable",
                what=what,
                defines=["OPSMITH_STATIC_REGISTRATION"],
            )
            self.files.append((path, "proxy"))
            return
        # The digest distinguishes this build from earlier builds of the same sources.
        self.tag = hashlib.sha256(own.read_bytes() + _shim_digest()).hexdigest()[:12]
        path = source.build_beside(
            f"{name}__{self.tag}",
            self._generated(),
            torch="stable",
            what=what,
            include_dirs=[_INCLUDE],
        )
        self.files.append((path, "direct"))

    def _generated(self) -> kernels.Generated:
        source, signature = self.source, self.operator.signature

        def render() -> dict[str, str]:
            files = adapters.kernel_files(signature)
            file = f"{signature.name}_shim_{self.device}.cpp"
            return {**files, file: shim(source, self.tag)}

        key = kernels.generated_key(
            signature, self.device, source.strided, self.tag, _shim_digest().hex()
        )
        return kernels.Generated(key, render)


def _symbol(source: kernels.KernelSource, tag: str) -> str:
    """Return the symbol that the shim's library exports."""
    signature = source.signature
    return f"opsmith_shim__{signature.namespace}__{signature.name}__{source.device}__{tag}"


def shim(source: kernels.KernelSource, tag: str) -> str:
    """Generate the C++ source that defines the shim around the kernel's entry point.

    Args:
        tag: identifier of this build of the kernel.
    """
    signature = source.signature
    passed = {a.name: _passed(a) for a in adapters.arguments_of(signature)}
    given = [pair for pairs in passed.values() for pair in pairs]
    given += [("AtenTensorHandle*", f"ret_{result.name}") for result in signature.results]
    if not signature.results:
        given.append(("[[maybe_unused]] void*", "ret_none"))
    return adapters.source(
        _SHIM,
        signature,
        source.device,
        strided=source.strided,
        symbol=_symbol(source, tag),
        given={name: [local for _, local in pairs] for name, pairs in passed.items()},
        declared=[f"{type_} {local}" for type_, local in given],
        passed=[local for _, local in given],
    )


def _passed(argument: adapters.Argument) -> list[tuple[str, str]]:
    """Return the C types and names by which compiled code passes an argument."""
    type_, given = _PASSED[argument.type], f"in_{argument.name}"
    if argument.optional:
        type_ = f"{type_}*" if type_.startswith("const ") else f"const {type_}*"
    several = argument.parameter.is_tensor_list or argument.parameter.is_sequence
    return [(type_, given), *([("int64_t", f"{given}_count")] if several else [])]


def plan(operators: Mapping[Operator, Sequence[Node]], *, direct: bool = True) -> list[Plan]:
    """Decide how each operator is called, before anything is built.

    Args:
        operators: the model's operators, with their calls.
        direct: whether compiled code may call kernels directly.

    Raises:
        ExportError: an operator has no compiled kernel for a device that the model uses.
    """
    plans = [
        Plan(operator, _source(operator, device, len(calls)), calls)
        for operator, all_calls in operators.items()
        for device, calls in _by_device(all_calls).items()
    ]
    taken: dict[str, str] = {}
    for item in plans:
        name = function_name(item.operator.name, item.device)
        item.proxy = _why_proxy(item) or _clash(name, taken, item)
        if not direct:
            item.proxy = item.proxy or "as the option calls asks"
        if not item.proxy:
            taken[name] = item.operator.name
    return plans


def _source(operator: Operator, device: str, count: int) -> kernels.KernelSource:
    kernel = operator.kernels.get(device)
    if kernel is not None and (source := kernel.source or kernel.entry) is not None:
        return source
    what = "only a Python kernel" if kernel is not None else "no kernel"
    calls = "once" if count == 1 else f"{count} times"
    raise ExportError(
        f"{operator.name}: has {what} for {device!r}, and an AOTInductor artifact runs without "
        f"Python; the model calls it {calls}. Add a C++ kernel, "
        f'{operator.signature.name}.register_kernel("{device}", source="….cpp"), or pass '
        f'form={{"{operator.name}": "inline"}} to have its reference compiled in its place.'
    )


def _by_device(calls: Iterable[Node]) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for node in calls:
        values = [argument.meta.get("val") for argument in node.all_input_nodes]
        values += [node.meta.get("val")]
        tensors = [value for value in values if isinstance(value, Tensor)]
        device = tensors[0].device.type if tensors else HOST
        found.setdefault(device, []).append(node)
    return found


def _why_proxy(item: Plan) -> str:
    signature = item.operator.signature
    if not item.source.language.has_entry:
        return "the kernel registers itself with PyTorch"
    for node in item.calls:
        for parameter, value in _arguments(item.operator, node):
            # Inductor writes a string between quotes without escaping it.
            if isinstance(value, str) and not _PLAIN.fullmatch(value):
                return f"argument {parameter!r} is {value!r}, which compiled code cannot express"
            type_ = signature.parameter(parameter)
            if type_.optional and isinstance(value, list | tuple) and not value:
                return f"argument {parameter!r} is an empty sequence where None may stand"
            if isinstance(type_.type, TensorListType) and type_.mutated:
                return f"argument {parameter!r} is a list that is written into"
    return ""


def _arguments(operator: Operator, node: Node) -> list[tuple[str, Any]]:
    """Return a call's arguments by the signature's names, also through ``auto_functionalized``."""
    names = [parameter.name for parameter in operator.signature.parameters]
    args = node.args if node.target is operator.overload else node.args[1:]
    return [
        *zip(names, args, strict=False),
        *((n, v) for n, v in node.kwargs.items() if n in names),
    ]


def _clash(name: str, taken: Mapping[str, str], item: Plan) -> str:
    if name in taken:
        return f"compiled code would call both it and {taken[name]} as {name}"
    if name in _pytorch_shims(item.device):
        return f"PyTorch has a function {name} itself"
    return ""


def _pytorch_shims(device: str) -> set[str]:
    """Return the C functions of PyTorch's own operators, whose headers compiled code includes."""
    import torch

    folder = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch"
    found: set[str] = set()
    for header in [*folder.glob("c/shim*.h"), *folder.glob("generated/c_shim*.h")]:
        found.update(re.findall(rf"\baoti_torch_{device}_\w+", header.read_text(errors="replace")))
    return found


def refuse_python(library: Path, what: str) -> None:
    """Refuse a library that needs a Python interpreter."""
    needed = [s.name for s in dynamic_symbols(library) if not s.defined and not s.weak]
    found = sorted(name for name in needed if re.match(r"_?Py[A-Z_]|_ZN8pybind11", name))
    if found:
        raise ExportError(
            f"{what}: the kernel needs Python ({found[0]}"
            f"{f' and {len(found) - 1} more' if found[1:] else ''}), and an AOTInductor artifact "
            "runs without. "
            "Leave out what is called from Python (PYBIND11_MODULE, PyMODINIT_FUNC): "
            "TORCH_LIBRARY is enough to call the operator from there as well."
        )


def _shim_digest() -> bytes:
    files = [_SHIM, Path(__file__), *sorted(_INCLUDE.rglob("*.h"))]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).digest()


def write(
    plans: Sequence[Plan], more: Sequence[Path], needed: Iterable[str], folder: Path
) -> list[dict[str, Any]]:
    """Copy the built libraries into the artifact.

    Args:
        plans: the model's operators, already built.
        more: the user's own libraries, which are loaded first.
        needed: the operators that the user's libraries must define.

    Returns:
        The manifest's entries, in loading order.

    Raises:
        ExportError: a library that the user passed is missing, does not load or lacks an operator;
            or two libraries have the same name.
    """
    entries = [(path, LibraryEntry(f"{FOLDER}/{path.name}", "", "", "proxy")) for path in more]
    for item in plans:
        signature = item.operator.signature
        defines = {signature.qualname: signature.schema()}
        for path, call in item.files:
            shared = next((entry for other, entry in entries if other == path), None)
            if shared is not None:  # One source serves several operators.
                shared.defines.update(defines)
                continue
            file = f"{FOLDER}/{path.name}"
            entry = LibraryEntry(file, signature.qualname, signature.schema(), call, {**defines})
            entries.append((path, entry))
    seen: set[str] = set()
    for path, entry in entries:
        if not path.is_file():
            raise ExportError(f"libraries: there is no file {path}")
        if entry.file in seen:
            raise ExportError(f"libraries: two are called {path.name}; rename yours")
        seen.add(entry.file)
        (folder / FOLDER).mkdir(exist_ok=True)
        shutil.copyfile(path, folder / entry.file)
    copy_needed([item.source for item in plans], folder / FOLDER)
    listed = [entry for _, entry in entries]
    if more:
        # Load the copies, since the artifact consists of them.
        copies = [folder / entry.file for entry in listed[: len(more)]]
        for place, found in enumerate(definitions(copies, needed)):
            listed[place] = replace(
                listed[place], defines=found.operators, namespaces=found.namespaces
            )
    return [asdict(entry) for entry in listed]
