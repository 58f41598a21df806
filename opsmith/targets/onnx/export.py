"""Export a model to an ONNX file by either exporter, for both ONNX targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind

from opsmith.compat.torch_ops import OpOverload
from opsmith.errors import ExportError, FormError
from opsmith.targets.exporting.artifact import OperatorUse, SizeCondition
from opsmith.targets.exporting.lowering.choice import Choice, Chooser
from opsmith.targets.exporting.lowering.inlining import lower
from opsmith.targets.exporting.model import Model
from opsmith.targets.exporting.protocol import Option
from opsmith.targets.onnx.decompositions import DECOMPOSITIONS
from opsmith.targets.onnx.forms import Library, chooser

MODEL = "model.onnx"

OPTIONS = (
    Option(
        "form",
        "auto, standard, library or inline, for every custom operator; or a mapping from their "
        "names to these",
        default="auto",
        by_operator=True,
    ),
    Option(
        "exporter", "which of torch.onnx's", default="dynamo", choices=("dynamo", "torchscript")
    ),
    Option("opset", "the version of ONNX's operators; the exporter's default", kind=int),
)

PACKAGES = ("onnx", "onnxscript")
INSTALL = 'pip install "opsmith[onnx]"'
PAGE = "docs/reference/onnx.md"

_ATTEMPTS = 32


def versions() -> dict[str, str]:
    """Return the versions of the packages that write a model."""
    return {name: metadata.version(name) for name in PACKAGES}


@dataclass(frozen=True)
class OnnxOperators:
    """Record how the custom operators were exported.

    Attributes:
        choices: their forms, with the number of their calls.
        opset: the version of ONNX's operators.
        foreign: nodes that neither ONNX nor opsmith defines, as ``domain::Name``: an author mapped
            an operator to such a node for a runtime that defines it.
        conditions: what the declarations of inlined operators require of the inputs' sizes.
    """

    choices: tuple[tuple[Choice, int], ...]
    opset: int
    foreign: tuple[str, ...] = ()
    conditions: tuple[SizeCondition, ...] = ()

    @property
    def uses(self) -> list[OperatorUse]:
        """Return the entries for the report and the manifest."""
        return [choice.use(count) for choice, count in self.choices]


def export(
    model: Model, folder: Path, options: Mapping[str, Any], library: Library | None
) -> OnnxOperators:
    """Write ``model.onnx`` into `folder`.

    Args:
        options: the values of `OPTIONS`.
        library: makes the runtime's library of an operator; `None` for a runtime without libraries.

    Raises:
        ExportError: see `opsmith.targets.exporting.protocol.ModelTarget.export_model`.
    """
    from opsmith.targets.onnx import dynamo, torchscript
    from opsmith.targets.onnx.dynamo import quietly
    from opsmith.targets.onnx.finish import finish

    exporter = torchscript if options["exporter"] == "torchscript" else dynamo
    opset = exporter.DEFAULT_OPSET if options["opset"] is None else int(options["opset"])
    first, last = exporter.OPSETS
    if not first <= opset <= last:
        other = dynamo if exporter is torchscript else torchscript
        hint = ""
        if other.OPSETS[0] <= opset <= other.OPSETS[1]:
            name = "dynamo" if other is dynamo else "torchscript"
            hint = f'; exporter="{name}" writes {other.OPSETS[0]} to {other.OPSETS[1]}'
        raise ExportError(
            f"opset {opset}: the {options['exporter']} exporter writes opsets {first} to {last}"
            f"{hint}"
        )
    _require_known_operators(model, exporter.knows)
    choosing = chooser(options["form"], opset, library)
    for _ in range(_ATTEMPTS):
        with quietly():
            lowered = lower(model, choosing, pure=True, decompositions=DECOMPOSITIONS)
        _require_stateless(lowered.program)
        try:
            made = exporter.export(model, lowered, opset)
        except FormError as error:
            _exclude_failing(lowered.kept, choosing, error)
            continue
        finish(made, model, folder / MODEL)
        return OnnxOperators(
            lowered.choices, opset, _foreign_nodes(made, lowered.kept), lowered.conditions
        )
    raise AssertionError("every form of every operator was tried")


_STANDARD_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")


def _foreign_nodes(made: Any, kept: Sequence[Choice]) -> tuple[str, ...]:
    own = [choice.operator.signature.namespace for choice in kept if choice.form == "library"]
    domains = {*_STANDARD_DOMAINS, *own}
    functions = {(domain, name) for domain, name, _ in made.functions}
    nodes = [node for node in made.graph.all_nodes() if node.domain not in domains]
    nodes = [node for node in nodes if (node.domain, node.op_type) not in functions]
    return tuple(dict.fromkeys(f"{node.domain}::{node.op_type}" for node in nodes))


def _exclude_failing(kept: tuple[Choice, ...], chooser: Chooser, error: FormError) -> None:
    """Exclude the form of the operator that could not be translated."""
    for choice in kept:
        if choice.operator.name == error.operator:
            chooser.exclude(choice.operator, choice.form, error.why)
            return
    raise error


def _require_stateless(program: ExportedProgram) -> None:
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            raise ExportError(
                f"the model writes into its input {spec.target!r}, and the inputs of an ONNX model "
                "cannot change. Return the new value instead."
            )
        if spec.kind is OutputKind.BUFFER_MUTATION:
            raise ExportError(
                f"the model changes its buffer {spec.target!r} when it runs, and an ONNX model has "
                "no state. Pass the value as an input, and return the new one."
            )


def _require_known_operators(model: Model, known: Callable[[OpOverload], bool]) -> None:
    """Refuse custom operators that neither opsmith nor the exporter can translate."""
    for name, nodes in model.foreign_operators().items():
        if not any(known(node.target) for node in nodes):  # type: ignore[arg-type]
            short = name.rpartition("::")[2]
            raise ExportError(
                f"{name}: opsmith knows nothing of this operator, and the exporter cannot "
                f"translate it. Say what it does: {short} = opsmith.adopt({name!r}) on a function "
                f"that computes the same in PyTorch, then perhaps {short}.register_onnx(…)."
            )
