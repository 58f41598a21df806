"""Run an artifact from Python."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.compat.torch_inductor import load_package
from opsmith.errors import ArgumentError, ArtifactError
from opsmith.system import machine
from opsmith.system.environment import environment
from opsmith.system.scratch import make_scratch, remove
from opsmith.targets.aotinductor.loading import load_libraries
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.protocol import Runner

#: The environment variables of a load affect the whole process, so only one load runs at a time.
_LOCK = threading.Lock()


def load(artifact: Artifact) -> Runner:
    """Load a package and its libraries, and return its runner."""
    details = artifact.manifest.details
    facts = details["machine"]
    machine.require(
        f"{artifact.folder} was",
        facts["architecture"],
        platform.machine(),
        facts["features"],
        "Export the model on a machine like this one",
    )
    libraries = load_libraries(artifact)
    path = artifact.path(details["model"])
    # PyTorch unpacks the package into a temporary folder, and removes it only with the loader.
    folder = make_scratch("model")
    try:
        with _LOCK, environment({"TMPDIR": str(folder)}):
            loader = load_package(str(path))
    except BaseException as error:
        remove(folder)
        if not isinstance(error, RuntimeError):
            raise
        raise ArtifactError(f"{path} does not load: {_words(error)}") from error
    runner = AOTInductorRunner(artifact, loader, libraries)
    weakref.finalize(runner, _remove, folder, os.getpid())
    return runner


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # A forked child must not remove its parent's folder.
        remove(folder)


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
        self.written = [place for place, item in enumerate(details["inputs"]) if item["written"]]

    def run(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run the package once."""
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
        for place in self.written:
            if passed[place] is not given[place]:
                given[place].copy_(passed[place])
        return outputs


def _ordered(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """Copy `tensor` if needed so that `order` lists its dimensions from the outermost in memory.

    Compiled code assumes the memory layout of the example.
    """
    back = [order.index(axis) for axis in range(len(order))]
    return tensor.permute(list(order)).contiguous().permute(back)


def _words(error: RuntimeError) -> str:
    """Return the message without PyTorch's C++ backtrace."""
    return str(error).split("\nException raised from ")[0].rstrip()
