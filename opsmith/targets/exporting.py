"""`opsmith.export`: from a model to an artifact of one target."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from opsmith.errors import ExportError, MissingError
from opsmith.kernels.version import version
from opsmith.targets import artifact as artifacts
from opsmith.targets.agreement import agreement
from opsmith.targets.artifact import Agreement, Artifact, Manifest
from opsmith.targets.model import Model
from opsmith.targets.protocol import Option, Outcome, Target
from opsmith.targets.registry import get_target


def export(
    model: nn.Module | ExportedProgram,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    target: str,
    out: str | Path,
    dynamic_shapes: Any = None,
    overwrite: bool = False,
    verify: bool | Sequence[Sequence[Any]] = True,
    say: Callable[[str], None] | None = print,
    **options: Any,
) -> Artifact:
    """Export a model to a folder that `opsmith.load`, or the runtime alone, can run.

    Args:
        model: a module, exported in evaluation mode; or an ExportedProgram.
        args: example arguments; those of the ExportedProgram by default.
        kwargs: example keyword arguments.
        target: the runtime, ``"onnxruntime"``, ``"aotinductor"``, …
        out: the folder to make.
        dynamic_shapes: which sizes may change, as ``torch.export.export`` takes it.
        overwrite: whether to replace an artifact that is at `out`.
        verify: whether to run the artifact and PyTorch on sampled inputs and compare; several sets
            of positional arguments to compare on those instead.
        say: called with each line of the report.
        options: the target's own; see its documentation.

    Returns:
        The artifact.

    Raises:
        ExportError: the model cannot be traced, or the target cannot carry something in it.
        MissingError: the target is not available here; says how to get it.
        CheckError: the artifact disagrees with PyTorch. Nothing was written.
        ArtifactError: `out` cannot be made.
    """
    found = get_target(target)
    missing = found.available()
    if missing is not None:
        raise MissingError(f"target {target!r} ({found.title}) is not available: {missing}")
    chosen = _options(found, options)
    say = say or (lambda line: None)
    with artifacts.replacing(out, overwrite=overwrite) as folder, _evaluating(model, say):
        prepared = prepare(model, args, kwargs, dynamic_shapes)
        outcome = found.export(prepared, folder, chosen)
        for use in outcome.operators:
            note = f" ({use.note})" if use.note else ""
            calls = "call" if use.count == 1 else "calls"
            say(f"{use.name}: {use.form}, {use.count} {calls}{note}")
        written = _write(found, prepared, outcome, folder)
        if verify:
            samples = None if isinstance(verify, bool) else verify
            compared = agreement(prepared, found.load(written), found.title, samples)
            say(_said(compared, found))
            _write(found, prepared, outcome, folder, compared)
    done = Artifact.open(out)
    say(f"{found.title} artifact: {out}")
    return done


def prepare(
    model: nn.Module | ExportedProgram,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
) -> Model:
    """A model as targets take it.

    Raises:
        ExportError: it cannot be traced, in PyTorch's words; or the example is missing.
    """
    if isinstance(model, ExportedProgram):
        if args is None and kwargs is None:
            if model.example_inputs is None:
                raise ExportError("the ExportedProgram carries no example inputs; pass args")
            args, kwargs = model.example_inputs
        return Model(model, None, tuple(args or ()), dict(kwargs or {}), {})
    if args is None:
        raise ExportError("exporting a module needs example arguments: export(model, (x,), …)")
    args, kwargs = tuple(args), dict(kwargs or {})
    try:
        program = torch.export.export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        hint = ""
        if "specialized it to be a constant (1)" in str(error):
            hint = "\nThe example has size 1 there; give one of size 2, which PyTorch does not fix."
        raise ExportError(
            f"torch.export.export could not trace {type(model).__name__}:\n{error}{hint}"
        ) from error
    return Model(
        program, model, args, kwargs, _dim_names(program, model, args, kwargs, dynamic_shapes)
    )


def _dim_names(
    program: ExportedProgram,
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
) -> dict[str, str]:
    """The names that the user gave, by the symbols that PyTorch made of them."""
    asked = dynamic_shapes
    if isinstance(asked, dict):
        # By parameter name, in any order.
        given = inspect.signature(model.forward).bind(*args, **kwargs).arguments
        asked = [asked.get(name) for name in given]
    leaves = pytree.tree_leaves(asked, is_leaf=lambda item: item is None or _is_shape(item))
    specs = program.graph_signature.input_specs
    user = {spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT}
    values = [node.meta.get("val") for node in program.graph.nodes if node.name in user]
    names: dict[str, str] = {}
    for leaf, value in zip(leaves, values, strict=False):
        if not isinstance(value, Tensor) or not leaf or len(leaves) != len(values):
            continue
        sizes: Sequence[Any] = value.shape
        for axis, dim in leaf.items() if isinstance(leaf, dict) else enumerate(leaf):
            name = dim if isinstance(dim, str) else getattr(dim, "__name__", "")
            expression = getattr(getattr(sizes[axis], "node", None), "expr", None)
            if name.isidentifier() and getattr(expression, "is_Symbol", False):
                names.setdefault(str(expression), name)
    return names


def _is_shape(item: Any) -> bool:
    """Whether `item` says the sizes of one tensor: ``{0: dim}``, ``(dim, None)``."""
    if isinstance(item, dict):
        return all(isinstance(axis, int) for axis in item)
    return isinstance(item, tuple | list) and all(
        part is None or isinstance(part, int | str) or hasattr(part, "__name__") or _is_hint(part)
        for part in item
    )


def _is_hint(part: Any) -> bool:
    return type(part).__name__ == "_DimHint"


def _options(target: Target, given: Mapping[str, Any]) -> dict[str, Any]:
    """Every option of the target, defaults filled in.

    Raises:
        ExportError: an option that the target does not have, or a value that it does not take.
    """
    known: dict[str, Option] = {option.name: option for option in target.options}
    for name, value in given.items():
        if name not in known:
            raise ExportError(
                f"target {target.name!r} has no option {name!r}; there are "
                f"{', '.join(known) or 'none'}"
            )
        choices = known[name].choices
        if choices and isinstance(value, str) and value not in choices:
            raise ExportError(
                f"target {target.name!r}: {name}={value!r}; there are {', '.join(choices)}"
            )
    return {name: given.get(name, option.default) for name, option in known.items()}


_TRAINS_OTHERWISE = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase, nn.RNNBase)


@contextmanager
def _evaluating(model: nn.Module | ExportedProgram, say: Callable[[str], None]) -> Iterator[None]:
    """Evaluation mode for the length of the export."""
    training = [m for m in model.modules() if m.training] if isinstance(model, nn.Module) else []
    if any(isinstance(module, _TRAINS_OTHERWISE) for module in training):
        say(f"{type(model).__name__} is in training mode; it is exported in evaluation mode")
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _write(
    target: Target,
    model: Model,
    outcome: Outcome,
    folder: Path,
    compared: Agreement | None = None,
) -> Artifact:
    manifest = Manifest(
        target=target.name,
        versions={
            "opsmith": version(),
            "torch": torch.__version__,
            "python": ".".join(map(str, sys.version_info[:3])),
            **outcome.versions,
        },
        inputs=model.inputs,
        outputs=model.outputs,
        dims=model.dims,
        call=model.call,
        operators=tuple(outcome.operators),
        details=json.loads(json.dumps(outcome.details)),
        agreement=compared,
        files=artifacts.list_files(folder),
    )
    (folder / artifacts.MANIFEST).write_text(manifest.to_json(), encoding="utf-8")
    return Artifact(folder, manifest)


def _said(compared: Agreement, target: Target) -> str:
    samples = "sample" if compared.samples == 1 else "samples"
    where = f" (in {compared.output!r})" if compared.largest else ""
    return (
        f"largest difference between {target.title} and PyTorch over {compared.samples} {samples}: "
        f"{compared.largest:.2g} of the largest value{where}"
    )
