"""Call the functions of an exported package as `opsmith check` does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from opsmith.errors import CheckError
from opsmith.kernels import HOST
from opsmith.kernels.libraries.loaded_library import calls_in
from opsmith.operators import Operator
from opsmith.operators.core.arguments import dtype_name
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.loaded_artifact import LoadedOperators
from opsmith.targets.exporting.ml_dtypes import WORDS, tensor_of
from opsmith.targets.exporting.packages.writer import PackageFunctions


class HostedFunctions(PackageFunctions):
    """The functions of an artifact, which take arrays of any library."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(artifact, "errors")
        self._written: Mapping[str, Sequence[str]] = artifact.manifest.details["written"]

    def run(self, name: str, arguments: Mapping[str, Any]) -> Sequence[Tensor]:
        """Call a function with NumPy arrays, and return its results as tensors."""
        return self.call(name, {key: _to_numpy(value) for key, value in arguments.items()})

    def call(self, name: str, given: Mapping[str, Any]) -> Sequence[Tensor]:
        """Call a function with arrays of any library, and return its results as tensors."""
        returned = self.functions[name](**given)
        many = returned if isinstance(returned, tuple) else (returned,)
        results = [] if returned is None else [to_torch(value) for value in many]
        written = [item for key in self._written[name] for item in _each_array(given[key])]
        return results + [to_torch(value) for value in written]


def _each_array(value: Any) -> list[Any]:
    """Return the arrays of an argument: none for `None`, all of a list."""
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _to_numpy(value: Any) -> Any:
    """Convert tensors, also in lists, to arrays that share their memory."""
    if isinstance(value, list | tuple):
        return [_to_numpy(item) for item in value]
    if not isinstance(value, Tensor):
        return value
    value = value.detach().resolve_conj().resolve_neg()
    # NumPy lacks these dtypes, so PyTorch's own tensors are passed.
    return value if dtype_name(value.dtype) in WORDS else value.numpy()


def to_torch(value: Any) -> Tensor:
    """Return a result as a tensor."""
    return value if isinstance(value, Tensor) else tensor_of(value)


def called(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    """Run an operator with NumPy arrays, and make sure that its kernel ran."""
    return counted(loaded, operator, lambda: loaded.runner.run(operator.name, arguments))


def counted(
    loaded: LoadedOperators, operator: Operator, run: Callable[[], Sequence[Tensor]]
) -> Sequence[Tensor]:
    """Return the results of `run`.

    Raises:
        CheckError: the kernel did not run.
    """
    before = _calls(loaded, operator)
    results = run()
    if _calls(loaded, operator) == before:
        raise CheckError("did not run the kernel")
    return results


def _calls(loaded: LoadedOperators, operator: Operator) -> int:
    """Return how often the kernel ran; its library counts the runs."""
    path = loaded.artifact.path(loaded.artifact.manifest.details["libraries"][operator.name])
    return calls_in(ctypes.CDLL(str(path)), operator.signature, HOST)
