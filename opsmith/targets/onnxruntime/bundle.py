"""What an ONNX Runtime artifact holds: the model, operator libraries, a program that runs them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from opsmith.errors import ExportError
from opsmith.kernels import machine
from opsmith.operators import Operator
from opsmith.targets.artifact import OperatorUse
from opsmith.targets.lowering import Choice
from opsmith.targets.model import Model
from opsmith.targets.onnx.export import MODEL, export
from opsmith.targets.onnxruntime import library
from opsmith.targets.protocol import Outcome
from opsmith.targets.readme import write_readme

_HERE = Path(__file__).parent
LIBRARIES = "operators"


def bundle(model: Model, folder: Path, options: Mapping[str, Any]) -> Outcome:
    """Write everything that running `model` takes.

    Raises:
        ExportError: see `opsmith.targets.protocol.ModelTarget.export_model`.
        BuildError: a kernel does not compile for ONNX Runtime.
    """
    built: dict[Operator, tuple[Path, tuple[str, ...]]] = {}

    def make(operator: Operator) -> tuple[Path, tuple[str, ...]]:
        if operator not in built:
            source = library.kernel_of(operator)
            path = library.build(source)
            built[operator] = path, library.dtypes(path, operator.signature)
        return built[operator]

    exported = export(model, folder, options, library=make)
    _refuse_foreign(exported.foreign)
    operators, entries = _write_libraries(
        [choice for choice, _ in exported.choices if choice.form == "library"], folder
    )
    _write_program(model, folder, exported.uses, operators)
    details = {
        "model": MODEL,
        "opset": exported.opset,
        "exporter": options["exporter"],
        "libraries": entries,
        "operators": operators,
        "platform": machine.platform_name(),
        "processor": machine.needed() if operators else [],
    }
    packages = ("onnx", "onnxscript", "onnxruntime")
    versions = {name: metadata.version(name) for name in packages}
    return Outcome(exported.uses, versions, details)


def _write_libraries(choices: Sequence[Choice], folder: Path) -> tuple[dict[str, str], list[str]]:
    """Each operator's library by its name, and the libraries that a session registers."""
    operators: dict[str, str] = {}
    domains: dict[str, list[Choice]] = {}
    for choice in choices:
        signature = choice.operator.signature
        name = f"{LIBRARIES}/{signature.namespace}.{signature.name}{choice.how.suffix}"
        operators[choice.operator.name] = name
        domains.setdefault(signature.namespace, []).append(choice)
        (folder / LIBRARIES).mkdir(exist_ok=True)
        shutil.copyfile(choice.how, folder / name)
    entries = []
    for namespace, members in domains.items():
        files = [operators[choice.operator.name] for choice in members]
        if len(files) == 1:
            entries += files
            continue
        # ONNX Runtime takes a domain from one library only.
        signatures = [choice.operator.signature for choice in members]
        path = library.build_domain(signatures, [Path(file).name for file in files])
        entries.append(f"{LIBRARIES}/{namespace}{path.suffix}")
        shutil.copyfile(path, folder / entries[-1])
    return operators, entries


def _write_program(
    model: Model, folder: Path, uses: Sequence[OperatorUse], libraries: Mapping[str, str]
) -> None:
    """``run.py`` and ``README.md``, for a machine that has neither torch nor opsmith."""
    shutil.copyfile(_HERE / "standalone.py", folder / "run.py")
    feeds = ", ".join(f'"{spec.name}": {spec.name}' for spec in model.inputs)
    how = [
        f"It needs Python with `onnxruntime` (exported with {metadata.version('onnxruntime')}) and "
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
    """Refuse nodes that ONNX Runtime does not know and no library of the artifact defines.

    Raises:
        ExportError: naming them.
    """
    unknown = [name for name in foreign if not name.startswith(_OWN_DOMAINS)]
    if unknown:
        raise ExportError(
            f"the model has nodes {', '.join(unknown)}, which a symbolic or register_onnx function "
            "made. ONNX Runtime does not have them, and no library of the artifact defines them. "
            'Take the operator\'s reference, form="inline"; or give it a C++ kernel and use '
            'form="library"; or export the file alone, target="onnx", for a runtime that has them.'
        )


_OWN_DOMAINS = ("com.microsoft",)
