"""Running an artifact from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.errors import ArgumentError, ArtifactError
from opsmith.operators import registry
from opsmith.targets.aotinductor import machine
from opsmith.targets.artifact import Artifact
from opsmith.targets.protocol import Runner


def load(artifact: Artifact) -> Runner:
    """See `ModelTarget.load_model`."""
    details = artifact.manifest.details
    machine.check(details["machine"], artifact.folder)
    libraries = _load_libraries(artifact)
    path = artifact.path(details["model"])
    try:
        loader = torch._C._aoti.AOTIModelPackageLoader(str(path), "model", False, 1, -1)
    except RuntimeError as error:
        raise ArtifactError(f"{path} does not load: {_words(error)}") from error
    return AOTInductorRunner(artifact, loader, libraries)


class AOTInductorRunner(Runner):
    """A package, loaded with the libraries that it needs."""

    def __init__(self, artifact: Artifact, loader: Any, libraries: Sequence[ctypes.CDLL]) -> None:
        details = artifact.manifest.details
        self._artifact = artifact
        self._loader = loader
        self._libraries = libraries
        self._device = details["device"]
        self._orders = [
            None if item["order"] == sorted(item["order"]) else item["order"]
            for item in details["inputs"]
        ]
        self._written = [bool(item["written"]) for item in details["inputs"]]

    def run(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """See `Runner.run`."""
        given = list(inputs)
        passed = []
        for spec, tensor, order in zip(
            self._artifact.manifest.inputs, given, self._orders, strict=True
        ):
            if tensor.device.type != self._device:
                raise ArgumentError(
                    f"{self._artifact.folder}: input {spec.name!r} is on {tensor.device}, expected "
                    f"{self._device}."
                )
            passed.append(tensor if order is None else _ordered(tensor, order))
        try:
            with torch.no_grad():
                outputs: list[Tensor] = self._loader.run(passed)
        except RuntimeError as error:
            raise RuntimeError(_words(error)) from None
        for tensor, written, into in zip(passed, self._written, given, strict=True):
            if written and tensor is not into:
                into.copy_(tensor)
        return outputs


def _ordered(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """`tensor` with its dimensions in memory from the outermost to the innermost as `order` says.

    Compiled code reads memory as the example had it.
    """
    back = [order.index(axis) for axis in range(len(order))]
    return tensor.permute(*order).contiguous().permute(*back)


def _load_libraries(artifact: Artifact) -> list[ctypes.CDLL]:
    """Load what the package needs.

    Libraries that only register an operator are left out where the process has the operator, from
    its declaration or from another artifact: PyTorch admits one definition.
    """
    details = artifact.manifest.details
    present = {
        entry["operator"]
        for entry in details["libraries"]
        if "::" in entry["operator"] and torch._C._dispatch_has_kernel(entry["operator"])
    }
    handles = []
    for entry in details["libraries"]:
        name = entry["operator"]
        if entry["call"] == "class" and _has_class(name):
            continue
        if entry["call"] not in ("direct", "class") and name in present:
            _compare_schemas(artifact, name, entry["schema"])
            operator = registry.find(name)
            if operator is not None:
                operator.build(details["device"])
            continue
        path = artifact.path(entry["file"]).resolve()
        try:
            handles.append(ctypes.CDLL(str(path)))
        except OSError as error:
            raise ArtifactError(f"{path} does not load: {error}") from error
        if entry["call"] == "class":
            _require_defined(handles[-1], name)
    return handles


def _has_class(name: str) -> bool:
    namespace, _, short = name.partition("::")
    try:
        torch._C._get_custom_class_python_wrapper(namespace, short)
    except RuntimeError:
        return False
    return True


def _require_defined(library: ctypes.CDLL, name: str) -> None:
    """Ask a library that defines a class whether it could."""
    function = getattr(library, f"opsmith_class_problem__{name.replace('::', '__')}", None)
    if function is not None:
        function.restype = ctypes.c_char_p
        problem = function()
        if problem is not None:
            raise ArtifactError(problem.decode(errors="replace"))


def _compare_schemas(artifact: Artifact, name: str, schema: str) -> None:
    namespace, _, op = name.partition("::")
    here = getattr(getattr(torch.ops, namespace), op).default._schema
    there = torch._C.parse_schema(f"{namespace}::{schema}")
    if not here.is_backward_compatible_with(there) or str(here.returns) != str(there.returns):
        raise ArtifactError(
            f"{artifact.folder} was exported with another {name} than this process has.\n"
            f"  artifact: {there}\n  here:     {here}"
        )


def _words(error: RuntimeError) -> str:
    """The message without PyTorch's C++ backtrace."""
    return str(error).split("\nException raised from ")[0].rstrip()
