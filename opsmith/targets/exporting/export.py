"""Export a model, or operators, to an artifact of one target (`opsmith.export`)."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from torch import nn
from torch.export import ExportedProgram

from opsmith.errors import ExportError, MissingDependencyError, OptionError
from opsmith.operators import Operator
from opsmith.system.progress import status
from opsmith.system.version import version
from opsmith.targets.exporting import artifact as artifacts
from opsmith.targets.exporting.artifact import MODEL, OPERATORS, Agreement, Artifact, Manifest
from opsmith.targets.exporting.model import Model
from opsmith.targets.exporting.operator_export import compare_operators, operators_of
from opsmith.targets.exporting.protocol import ModelTarget, OperatorTarget, Option, Outcome, Target
from opsmith.targets.exporting.registry import all_targets, get_target
from opsmith.targets.exporting.tracing import evaluating, prepare
from opsmith.targets.exporting.verification import compare
from opsmith.untyped import Arguments, Value

Exportable = nn.Module | ExportedProgram | Operator | Sequence[Operator] | ModuleType | str | Path


def export(
    model: Exportable,
    args: Sequence[object] | None = None,
    kwargs: Arguments | None = None,
    *,
    target: str,
    out: str | Path,
    dynamic_shapes: object = None,
    overwrite: bool = False,
    verify: bool | Sequence[Sequence[object]] = True,
    say: Callable[[str], None] | None = print,
    **options: object,
) -> Artifact:
    """Export a model, or operators, to a folder that `opsmith.load`, or the runtime alone, can run.

    Args:
        model: a module, exported in evaluation mode; or an ExportedProgram. If the target accepts
            operators: an operator, several, or the Python module or file that declares them.
        args: example arguments of the model; those of the ExportedProgram by default.
        kwargs: example keyword arguments.
        target: the runtime, ``"onnxruntime"``, ``"aotinductor"``, …
        out: the folder to create.
        dynamic_shapes: the sizes that may change, in the form that ``torch.export.export`` accepts.
        overwrite: whether to replace an existing artifact at `out`.
        verify: whether to run the artifact and PyTorch on the same inputs and compare: a model on
            its example and inputs like it, operators on their registered cases. For a model,
            several sets of positional arguments may be given to compare on beside the example.
        say: called with each line of the report.
        options: the target's own options; see its documentation.

    Exports of several threads take turns, because PyTorch traces one model at a time.

    Returns:
        The artifact.

    Raises:
        ExportError: the model cannot be traced, or the target does not support a part of it.
        MissingDependencyError: the target is not available here; its message says how to get it.
        CheckError: the artifact disagrees with PyTorch. In this case nothing was written.
        ArtifactError: `out` cannot be created.
    """
    found = get_target(target)
    say = say or (lambda line: None)
    if isinstance(model, nn.Module | ExportedProgram):
        if not isinstance(found, ModelTarget):
            raise _refused(found, f"{type(model).__name__} is a model", "models")
        _require(found)
        chosen = _options(found, options)
        with (
            taking_turns(),
            artifacts.replacing(out, overwrite=overwrite) as folder,
            evaluating(model, say),
        ):
            with status("tracing the model"):
                traced = prepare(model, args, kwargs, dynamic_shapes)
            _export_model(found, traced, folder, chosen, verify, say)
    else:
        operators = operators_of(model)
        if not isinstance(found, OperatorTarget):
            names = ", ".join(operator.name for operator in operators)
            what = f"{names} is an operator" if len(operators) == 1 else f"{names} are operators"
            raise _refused(found, what, "operators")
        if args is not None or kwargs is not None or dynamic_shapes is not None:
            raise ExportError(
                "args, kwargs and dynamic_shapes are for models; an operator's declaration states "
                "its arguments"
            )
        if not isinstance(verify, bool):
            raise ExportError(
                "verify: operators are compared on the cases that register_cases gives; pass "
                "True or False"
            )
        _require(found)
        chosen = _options(found, options)
        with taking_turns(), artifacts.replacing(out, overwrite=overwrite) as folder:
            _export_operators(found, operators, folder, chosen, verify, say)
    done = Artifact.open(out)
    say(f"{found.title} artifact: {out}")
    return done


def _export_model(
    target: ModelTarget,
    model: Model,
    folder: Path,
    options: Arguments,
    verify: bool | Sequence[Sequence[object]],
    say: Callable[[str], None],
) -> None:
    with status(f"exporting to {target.title}"):
        outcome = target.export_model(model, folder, options)
    for use in outcome.operators:
        note = f" ({use.note})" if use.note else ""
        calls = "call" if use.count == 1 else "calls"
        say(f"{use.name}: {use.form}, {use.count} {calls}{note}")
    facts = {
        "inputs": model.inputs,
        "outputs": model.outputs,
        "dims": model.dims,
        "call": model.call,
        "kind": MODEL,
    }
    written = _write(target, outcome, folder, **facts)
    if outcome.unverified:
        say(f"not compared with PyTorch: {outcome.unverified}")
    elif verify is not False:  # Without samples, compare on the example alone.
        samples = None if isinstance(verify, bool) else verify
        with status(f"comparing {target.title} with PyTorch"):
            compared = compare(model, target.load_model(written), target.title, samples)
        say(_said(compared, target))
        _write(target, outcome, folder, agreement=compared, **facts)


def _export_operators(
    target: OperatorTarget,
    operators: Sequence[Operator],
    folder: Path,
    options: Arguments,
    verify: bool,
    say: Callable[[str], None],
) -> None:
    with status(f"exporting to {target.title}"):
        outcome = target.export_operators(operators, folder, options)
    for use in outcome.operators:
        say(f"{use.name}: {use.form}{f' ({use.note})' if use.note else ''}")
    written = _write(target, outcome, folder, kind=OPERATORS)
    if not verify:
        return
    silent = [operator.name for operator in operators if not operator.cases]
    uncased = f"{', '.join(silent)}. There are no registered cases; opsmith check samples some"
    if outcome.unverified or silent:
        say(f"not compared with PyTorch: {outcome.unverified or uncased}")
    if not outcome.unverified and len(silent) < len(operators):
        with status(f"comparing {target.title} with PyTorch"):
            compared = compare_operators(operators, target.load_operators(written), target.title)
        say(_said(compared, target))
        _write(target, outcome, folder, kind=OPERATORS, agreement=compared)


def _require(target: Target) -> None:
    missing = target.available()
    if missing is not None:
        raise MissingDependencyError(
            f"target {target.name!r} ({target.title}) is not available: {missing}"
        )


def _refused(target: Target, what: str, kind: str) -> ExportError:
    """Return the error for a target that supports only models, or only operators."""
    others = [other.name for other in all_targets() if isinstance(other, _TAKERS[kind])]
    if kind == "operators":
        taken, remedy = "models", "Export a model that calls it, with an example of its arguments"
    else:
        taken, remedy = "operators", "Export the operators that it calls"
    elsewhere = f"; targets that take {kind}: {', '.join(others)}" if others else ""
    return ExportError(
        f"target {target.name!r} ({target.title}) takes {taken}, and {what}. {remedy}{elsewhere}."
    )


_TAKERS: dict[str, type] = {"models": ModelTarget, "operators": OperatorTarget}


def _options(target: Target, given: Arguments) -> dict[str, object]:
    """Return every option of the target, with the default for one that is missing or `None`."""
    known: dict[str, Option] = {option.name: option for option in target.options}
    for name, value in given.items():
        if name not in known:
            raise OptionError(
                f"target {target.name!r} has no option {name!r}; there are "
                f"{', '.join(known) or 'none'}"
            )
        if value is not None:
            _refuse_value(target, known[name], value)
    return {
        name: option.default if given.get(name) is None else given[name]
        for name, option in known.items()
    }


def _refuse_value(target: Target, option: Option, value: Value) -> None:
    """Refuse a value that the option does not accept."""
    wrong = f"target {target.name!r}: {option.name}={value!r}"
    if option.by_operator and not isinstance(value, str | Mapping):
        raise OptionError(f"{wrong}; expected a str, or a mapping from operator names to these")
    if option.choices and isinstance(value, str) and value not in option.choices:
        raise OptionError(f"{wrong}; there are {', '.join(option.choices)}")
    if option.kind in (int, float, bool):
        try:
            option.kind(value)
        except (TypeError, ValueError):
            raise OptionError(f"{wrong}; expected {option.kind.__name__}") from None


def _write(target: Target, outcome: Outcome, folder: Path, **facts: Value) -> Artifact:
    """Write the manifest; `facts` are the fields of `Manifest` that depend on what was exported."""
    manifest = Manifest(
        target=target.name,
        versions={
            "opsmith": version(),
            "torch": torch.__version__,
            "python": ".".join(map(str, sys.version_info[:3])),
            **outcome.versions,
        },
        operators=tuple(outcome.operators),
        conditions=tuple(outcome.conditions),
        details=json.loads(json.dumps(outcome.details)),
        files=artifacts.list_files(folder),
        **facts,
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


_turn = threading.RLock()


@contextmanager
def taking_turns() -> Iterator[None]:
    """Wait until no other thread is in such a block, and keep other threads out of it.

    PyTorch's tracers and exporters keep their state in globals, so two threads that export at once
    get errors, or a graph with nodes of the other thread's graph.
    """
    with _turn:
        yield


def _renew() -> None:
    """Give a forked process a new lock: the thread that holds the old lock does not exist there."""
    global _turn
    _turn = threading.RLock()


os.register_at_fork(after_in_child=_renew)
