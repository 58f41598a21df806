"""Write an ONNX Runtime artifact: model, operator libraries, and a program that runs them."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime

from opsmith.errors import ExportError
from opsmith.kernels import HOST
from opsmith.kernels.libraries.loaded_library import dtypes_in
from opsmith.operators import Operator
from opsmith.signature import Signature
from opsmith.signature.dtypes import COMPLEX
from opsmith.system import machine
from opsmith.targets.exporting.artifact import OperatorUse
from opsmith.targets.exporting.lowering.choice import Choice
from opsmith.targets.exporting.model import Model
from opsmith.targets.exporting.operator_export import copy_needed
from opsmith.targets.exporting.protocol import Outcome
from opsmith.targets.exporting.readme import write_readme
from opsmith.targets.onnx.export import MODEL, export, versions
from opsmith.targets.onnx.forms import Made
from opsmith.targets.onnxruntime import library
from opsmith.targets.onnxruntime.providers import PROVIDERS, Provider

_HERE = Path(__file__).parent
LIBRARIES = "operators"


def bundle(model: Model, folder: Path, options: Mapping[str, Any]) -> Outcome:
    """Write every file that running `model` needs.

    Raises:
        ExportError: see `opsmith.targets.exporting.protocol.ModelTarget.export_model`.
        BuildError: a kernel does not compile for ONNX Runtime.
    """
    _refuse_complex(model)
    provider = PROVIDERS[options["provider"]]
    built: dict[Operator, Made] = {}

    def make(operator: Operator) -> Made:
        if operator not in built:
            built[operator] = _make(operator, provider)
        return built[operator]

    exported = export(model, folder, options, library=make)
    _refuse_foreign(exported.foreign)
    operators, entries = _write_libraries(
        [choice for choice, _ in exported.choices if choice.form == "library"], folder
    )
    _write_program(model, folder, exported.uses, operators, provider)
    details = {
        "model": MODEL,
        "opset": exported.opset,
        "exporter": options["exporter"],
        "providers": list(dict.fromkeys([provider.name, PROVIDERS[HOST].name])),
        "libraries": entries,
        "operators": operators,
        "platform": machine.platform_name(),
        "processor": machine.needed() if operators else [],
    }
    # The package that provides CUDA has another name, so take the version from the module.
    used = {**versions(), "onnxruntime": onnxruntime.__version__}
    return Outcome(exported.uses, used, details, provider.missing(), exported.conditions)


def _refuse_complex(model: Model) -> None:
    """Refuse a model that takes or returns complex numbers."""
    for what, specs in (("input", model.inputs), ("output", model.outputs)):
        for spec in specs:
            if spec.dtype in COMPLEX:
                raise ExportError(
                    f"the model's {what} {spec.name!r} is {spec.dtype}, and ONNX Runtime does not "
                    "support complex numbers. Pass real and imaginary parts (torch.view_as_real)."
                )


def _make(operator: Operator, provider: Provider) -> Made:
    """Build the operator's libraries: for the provider, and for the CPU if it has a CPU kernel."""
    devices = [provider.device]
    kernel = operator.kernels.get(HOST)
    if provider.device != HOST and kernel is not None and kernel.entry is not None:
        devices.append(HOST)
    paths = {device: library.build(library.kernel_of(operator, device)) for device in devices}
    loaded = ctypes.CDLL(str(paths[provider.device]))
    found = dtypes_in(loaded, operator.signature, provider.device)
    return Made(paths, provider.device, found)


def _write_libraries(choices: Sequence[Choice], folder: Path) -> tuple[dict[str, str], list[str]]:
    """Copy the libraries; return each operator's file by name, and the files to register."""
    operators: dict[str, str] = {}
    domains: dict[str, dict[str, Signature]] = {}
    for choice in choices:
        signature = choice.operator.signature
        (folder / LIBRARIES).mkdir(exist_ok=True)
        for device, path in choice.how.items():
            on = "" if device == HOST else f".{device}"
            name = f"{LIBRARIES}/{signature.namespace}.{signature.name}{on}{path.suffix}"
            operators.setdefault(choice.operator.name, name)
            domains.setdefault(signature.namespace, {})[name] = signature
            shutil.copyfile(path, folder / name)
            copy_needed([library.kernel_of(choice.operator, device)], folder / LIBRARIES)
    entries: list[str] = []
    for namespace, files in domains.items():
        if len(files) == 1:
            entries += files
            continue
        # ONNX Runtime accepts a domain from one library only.
        names = [Path(file).name for file in files]
        path = library.build_domain(list(files.values()), names)
        entries.append(f"{LIBRARIES}/{namespace}{path.suffix}")
        shutil.copyfile(path, folder / entries[-1])
    return operators, entries


def _write_program(
    model: Model,
    folder: Path,
    uses: Sequence[OperatorUse],
    libraries: Mapping[str, str],
    provider: Provider,
) -> None:
    """Write ``run.py`` and ``README.md``, for a machine that has neither torch nor opsmith."""
    shutil.copyfile(_HERE / "standalone.py", folder / "run.py")
    feeds = ", ".join(f'"{spec.name}": {spec.name}' for spec in model.inputs)
    how = [
        f"It needs Python with `{provider.package}` (exported with {onnxruntime.__version__}) and "
        "NumPy, and neither PyTorch nor opsmith:",
        "",
        "```",
        "python run.py inputs.npz outputs.npz",
        "```",
        "",
        "or, from a program:",
        "",
        "```python",
        "import sys",
        "",
        'sys.path.insert(0, "path/to/this/folder")',
        "from run import load",
        "",
        "session = load()  # compares every file with its digest, registers the operators",
        f"outputs = session.run(None, {{{feeds}}})",
        "```",
    ]
    if libraries:
        how += ["", "Operators that are run by their own kernels:", ""]
        how += [f"- `{operator}` in `{file}`" for operator, file in libraries.items()]
    write_readme(folder, model, "A model for ONNX Runtime", how, uses)


def _refuse_foreign(foreign: Sequence[str]) -> None:
    """Refuse nodes that neither ONNX Runtime nor a library of the artifact defines."""
    unknown = [name for name in foreign if not name.startswith(_OWN_DOMAINS)]
    if unknown:
        raise ExportError(
            f"the model has nodes {', '.join(unknown)}, which a symbolic or register_onnx function "
            "made. ONNX Runtime does not have them, and no library of the artifact defines them. "
            'Take the operator\'s reference, form="inline"; or give it a C++ kernel and use '
            'form="library"; or export the file alone, target="onnx", for a runtime that has them.'
        )


_OWN_DOMAINS = ("com.microsoft",)
