"""Target ``aotinductor``: export a model to a compiled package, and load it in Python."""

from __future__ import annotations

import copy
import dataclasses
import json
import platform
import shutil
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind, TensorArgument
from torch.fx import Node

from opsmith.compat import torch_inductor, torch_modules, torch_pytree as pytree
from opsmith.compat.torch_library import is_written_in_python
from opsmith.compat.torch_ops import OpOverload, is_builtin, overload_schema
from opsmith.compat.torch_tracing import updated
from opsmith.errors import ExportError
from opsmith.kernels import HOST, get_device
from opsmith.operators import Operator
from opsmith.operators.adoption.adopted import find_adopted
from opsmith.signature.sizes import expressions
from opsmith.system import machine
from opsmith.targets.aotinductor import runtime
from opsmith.targets.exporting.artifact import Artifact, OperatorUse, SizeCondition
from opsmith.targets.exporting.lowering.choice import INLINE, Choice, Chooser, inline
from opsmith.targets.exporting.lowering.inlining import lower
from opsmith.targets.exporting.model import Model
from opsmith.targets.exporting.protocol import ModelTarget, Option, Outcome, Route, Runner
from opsmith.targets.exporting.readme import write_readme

MODEL = "model.pt2"
RUNNER = "runner"


class AOTInductor(ModelTarget):
    """Models compiled ahead of time by PyTorch's inductor; run from Python, or from C++ alone."""

    name = "aotinductor"
    title = "AOTInductor"
    options = (
        Option(
            "form",
            "library or inline (the reference, compiled), for every custom operator; or a mapping "
            "from their names to these",
            "auto",
            by_operator=True,
        ),
        Option(
            "calls", "direct, or proxy: through PyTorch's dispatcher", "direct", ("direct", "proxy")
        ),
        Option("libraries", "further operator libraries that the model needs: paths", ""),
        Option("inductor", "settings of torch_inductor.settings(), as JSON", "{}"),
        Option("runner", "build the program too that runs it without Python", False, kind=bool),
    )
    prepares = (torch_modules.INDUCTOR,)
    page = "docs/reference/aotinductor.md"

    def available(self) -> str | None:
        """Return why this system or this PyTorch cannot use AOTInductor, or `None` if it can."""
        if platform.system() != "Linux":
            return f"opsmith packages for AOTInductor on Linux only, this is {platform.system()}"
        if not torch_inductor.has_loader():
            return "this PyTorch was built without AOTInductor; install one from pytorch.org"
        return None

    def export_model(self, model: Model, folder: Path, options: Mapping[str, Any]) -> Outcome:
        """Write the compiled package, its operator libraries and the sources of the C++ program."""
        with warnings.catch_warnings():
            # Ignore the warnings that PyTorch raises about its own code when a program is copied.
            warnings.filterwarnings("ignore", ".*treespec", FutureWarning)
            return self._export(model, folder, options)

    def _export(self, model: Model, folder: Path, options: Mapping[str, Any]) -> Outcome:
        # Import late, so that loading an artifact does not import the compiler.
        from opsmith.targets.aotinductor import libraries
        from opsmith.targets.aotinductor.compile import compile_model

        settings = _settings(options["inductor"])
        more = _paths(options["libraries"])
        buffers, written = _mutated(model)
        _refuse_state(buffers)
        layouts, device = _inputs(model, written)
        lowered = lower(model, _chooser(options["form"]), pure=False)
        inlined = [(choice, count) for choice, count in lowered.choices if choice.form == INLINE]
        uses = [choice.use(count) for choice, count in inlined]
        model = dataclasses.replace(model, program=lowered.program)
        plans = libraries.plan(model.operators(), direct=options["calls"] == "direct")
        foreign = _foreign(model, more)
        note = "called through the dispatcher: opsmith did not declare it"
        uses += [item.use for item in plans]
        uses += [OperatorUse(name, "library", len(calls), note) for name, calls in foreign.items()]
        for item in plans:
            item.build()
        needed = {name for calls in foreign.values() for name in map(_called, calls)}
        listed = libraries.write(plans, more, needed, folder)
        compile_model(only_tensors(model.program), plans, settings, folder / MODEL)
        self._write_runner(folder, built=bool(options["runner"]))
        write_readme(folder, model, "A model for AOTInductor", _how(device, options), uses)
        return Outcome(
            operators=uses,
            details={
                "model": MODEL,
                "libraries": listed,
                "device": device,
                "inputs": layouts,
                "sizes": _postfix(model, lowered.conditions),
                "machine": {
                    "architecture": platform.machine(),
                    "march": machine.architecture(),
                    "features": machine.needed(),
                },
            },
            conditions=lowered.conditions,
        )

    def _write_runner(self, folder: Path, *, built: bool) -> None:
        shutil.copytree(runtime.SOURCES, folder / RUNNER)
        if built:
            shutil.copy2(runtime.build_runner(), folder / RUNNER / runtime.PROGRAM)

    def load_model(self, artifact: Artifact) -> Runner:
        """Load the package and its libraries."""
        from opsmith.targets.aotinductor.runtime import load

        return load(artifact)

    def proofs(self) -> Sequence[Route]:
        """Return the routes through packages."""
        from opsmith.targets.aotinductor.proofs import PROOFS

        return PROOFS


def _how(device: str, options: Mapping[str, Any]) -> list[str]:
    program = runtime.PROGRAM
    call = f"{program} . input.pt --output output.pt"
    built = [f"It is built for this machine: `{RUNNER}/{call}`. Elsewhere:", ""]
    return [
        f"`{MODEL}` is compiled for PyTorch {torch.__version__} on {device}, {platform.machine()} "
        f"({machine.architecture() or 'this processor'}). In Python:",
        "",
        "```python",
        "import opsmith",
        "",
        'model = opsmith.load("path/to/this/folder")  # compares every file with its digest',
        "outputs = model(*inputs)",
        "```",
        "",
        f"In C++, without Python, by the program in `{RUNNER}/`:",
        "",
        *(built if options["runner"] else ()),
        "```",
        f"cmake -S {RUNNER} -B build -DTORCH_DIR=/path/to/libtorch && cmake --build build",
        f"build/{call}",
        "```",
        "",
        "`input.pt` is what `torch.save` wrote: a tensor, a list or tuple of tensors, or a "
        "dictionary by the inputs' names.",
    ]


def _chooser(wanted: str | Mapping[str, str]) -> Chooser:
    """Return the chooser between an operator's own kernel and its reference.

    ``"auto"`` only tries the kernel: to replace a missing kernel by the reference would not be what
    the user requested.
    """

    def library(operator: Operator, nodes: Sequence[Node]) -> Choice:
        del nodes
        return Choice(operator, "library")

    def reference(operator: Operator, nodes: Sequence[Node]) -> Choice:
        if _is_pytorchs(operator) and not chooser.names(operator):
            # Inductor compiles PyTorch's own operators itself.
            return library(operator, nodes)
        return inline(operator, nodes)

    chooser = Chooser(
        wanted, {"library": library, INLINE: reference}, "AOTInductor", automatic=["library"]
    )
    return chooser


def _is_pytorchs(operator: Operator) -> bool:
    return is_builtin(operator.overload)


def _settings(option: str | Mapping[str, Any]) -> dict[str, Any]:
    try:
        settings = json.loads(option) if isinstance(option, str) else dict(option)
    except ValueError as error:
        raise ExportError(f"inductor={option!r} is not JSON: {error}") from None
    known = torch_inductor.settings()
    for name in settings:
        place: Any = known
        for part in name.split("."):
            place = getattr(place, part, None)
        if place is None and not hasattr(known, name.split(".")[0]):
            raise ExportError(f"inductor has no setting {name!r}")
    return settings


def _mutated(model: Model) -> tuple[list[str], list[str]]:
    """Return the buffers and the inputs that a call writes into."""
    targets = [node.target for node in model.calls()]
    if not any(isinstance(one, OpOverload) and overload_schema(one).is_mutable for one in targets):
        return model.mutated_buffers(), model.mutated_inputs()
    # A program of torch.export writes in place; only a functional program's signature lists the
    # writes.
    functional = dataclasses.replace(model, program=model.program.run_decompositions({}))
    return functional.mutated_buffers(), functional.mutated_inputs()


def _inputs(model: Model, written: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Return each input's memory layout and whether it is written, and the device of all inputs."""
    example = model.flatten(model.args, model.kwargs)
    found = []
    for spec, tensor in zip(model.inputs, example, strict=True):
        strides = tensor.stride()
        order = sorted(range(tensor.dim()), key=strides.__getitem__, reverse=True)
        if tensor.is_contiguous():
            order = list(range(tensor.dim()))
        if not tensor.permute(order).is_contiguous():
            raise ExportError(
                f"the example of the input {spec.name!r} has shape {tuple(tensor.shape)} and "
                f"strides {tuple(tensor.stride())}: compiled code would require such gaps in every "
                "input. Pass example.contiguous()."
            )
        found.append({"order": order, "written": int(spec.name in written)})
    devices = sorted({tensor.device.type for tensor in example}) or [HOST]
    if len(devices) > 1:
        raise ExportError(
            f"the inputs are on {' and '.join(devices)}; an AOTInductor model runs on one device"
        )
    if not get_device(devices[0], "the inputs' device").compiled_by_inductor():
        raise ExportError(
            f"the inputs are on {devices[0]}, and Inductor, PyTorch's compiler, generates no code "
            f"for it here. An extension of PyTorch may add this; otherwise pass inputs on {HOST}."
        )
    return found, devices[0]


def _refuse_state(buffers: Sequence[str]) -> None:
    if buffers:
        raise ExportError(
            f"the model writes into its buffer {buffers[0]!r}: each call would change the next, on "
            "every thread. Take the buffer as an argument, and return its new value."
        )


def _foreign(model: Model, libraries: Sequence[Path]) -> dict[str, list[Node]]:
    """Return calls of operators that opsmith did not declare or only adopted, by their names."""
    found = model.foreign_operators()
    adopted = {
        operator.name: calls
        for operator, calls in model.operators(adopted=True).items()
        if find_adopted(operator.overload) is operator and not _is_pytorchs(operator)
    }
    found.update(adopted)
    for name in found:
        inline = f', or form={{"{name}": "inline"}} to have its reference compiled in its place'
        if is_written_in_python(name):
            raise ExportError(
                f"{name}: is written in Python (torch.library.custom_op), and an AOTInductor "
                "artifact runs without Python. Declare it with opsmith.op and register a C++ kernel"
                f"{inline if name in adopted else ''}."
            )
        if not libraries:
            if name in adopted:
                raise ExportError(
                    f"{name}: is defined elsewhere, so its library would be missing from the "
                    f"artifact. Pass the library that defines it, libraries=[…/lib….so]{inline}."
                )
            raise ExportError(
                f"{name}: opsmith does not know this operator, so its library would be missing "
                "from the artifact. Pass the library that defines it, libraries=[…/lib….so], or "
                f"adopt it, opsmith.adopt({name!r}), with a reference that can be compiled in its "
                "place."
            )
    return found


def _called(node: Node) -> str:
    """Return the operator and overload that a node calls, also through ``auto_functionalized``."""
    target: Any = node.target if isinstance(node.target, OpOverload) else node.args[0]
    schema = overload_schema(target)
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else str(schema.name)


def _paths(option: str | Sequence[str | Path]) -> list[Path]:
    listed = option.split(",") if isinstance(option, str) else option
    return [Path(path).expanduser() for path in listed if str(path).strip()]


def _postfix(model: Model, conditions: Sequence[SizeCondition]) -> dict[str, list[str]]:
    """Return expressions over sizes in postfix notation, for the C++ runner."""
    sizes = {size for spec in model.inputs for size in spec.shape if isinstance(size, str)}
    sides = [side for one in conditions for side in (one.left, one.right)]
    found: dict[str, list[str]] = {}
    for text in [*sorted(sizes - model.dims.keys()), *sides]:
        try:
            found[text] = _words_of(expressions.parse(text))
        except expressions.ExpressionError:
            continue
    return found


def _words_of(expression: expressions.Expression) -> list[str]:
    match expression:
        case expressions.Integer(value):
            return [str(value)] if value >= 0 else ["0", str(-value), "-"]
        case expressions.Name(name):
            return [name]
        case expressions.Binary(op, left, right):
            return [*_words_of(left), *_words_of(right), op]
        case expressions.Call(function, arguments):
            words = _words_of(arguments[0])
            for argument in arguments[1:]:
                words += [*_words_of(argument), function]
            return words
    raise expressions.ExpressionError(str(expression))


def only_tensors(program: ExportedProgram) -> ExportedProgram:
    """Return `program` without the returned values that the export fixed: None, numbers, texts.

    The manifest records them for callers in Python.
    """
    specs = program.graph_signature.output_specs
    given = OutputKind.USER_OUTPUT
    keep = [spec.kind is not given or isinstance(spec.arg, TensorArgument) for spec in specs]
    if all(keep):
        return program
    module = copy.deepcopy(program.graph_module)
    node = module.graph.output_node()
    returned: Any = node.args[0]
    node.args = (tuple(value for value, kept in zip(returned, keep, strict=True) if kept),)
    node.meta["val"] = tuple(value.meta.get("val") for value in node.args[0])
    module.recompile()
    kept_specs = [spec for spec, kept in zip(specs, keep, strict=True) if kept]
    signature = dataclasses.replace(program.graph_signature, output_specs=kept_specs)
    shorter = updated(program, module, signature)
    call = shorter.module_call_graph[0].signature
    if call is not None:
        call.outputs = [spec.arg for spec in kept_specs if spec.kind is given]
        call.out_spec = pytree.tree_structure(tuple(range(len(call.outputs))))
    return shorter
