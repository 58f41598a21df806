"""An operator as a function of JAX."""

from __future__ import annotations

import ctypes
import hashlib
import inspect
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from opsmith.errors import ArgumentError, DifferentiationError
from opsmith.signature.binding import Bindings, bind, result_shapes
from opsmith.signature.calls import named
from opsmith.signature.model import Signature
from opsmith.signature.parameters import NO_DEFAULT, Result
from opsmith.signature.solving.folding import Fold, fold
from opsmith.targets.exporting.packages import runtime
from opsmith.targets.jax.package.arguments import (
    Arrays,
    Numbers,
    attributes,
    described,
    flat,
    joined,
    split,
)
from opsmith.targets.jax.package.partitioning import partitioned

_WIDE = frozenset(("int64", "float64", "complex128"))
_REMEMBERED = 256

Backward = Callable[[dict[str, Any], tuple[Any, ...], tuple[Any, ...]], dict[str, Any]]
"""Computes the gradients of arguments by name from arguments, results and their gradients."""
Call = Callable[[Arrays], tuple[Any, ...]]


class Function:
    """An operator as a function of arrays, for jit, vmap and, if it has a derivative, grad.

    Arguments that the operator writes into stay unchanged: their new contents are returned after
    the results, those of a list as a list.

    Args:
        backward: the derivative, or the reason why there is none.
    """

    def __init__(self, signature: Signature, library: XlaLibrary, backward: Backward | str) -> None:
        self.signature = signature
        self.library = library
        self.__name__ = signature.name
        self.__qualname__ = signature.qualname
        self.__doc__ = signature.doc
        self.__signature__ = _python_signature(signature)
        self._backward = backward
        self._named = named(signature)
        self._compiled = jax.jit(self._run, static_argnums=1)
        self._with_rules = lru_cache(_REMEMBERED)(self._make)

    def __repr__(self) -> str:
        return f"<{self.signature.qualname} for JAX>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the operator.

        Raises:
            ArgumentError: an argument does not fit the declaration.
            DifferentiationError: a derivative is requested, and the operator has none.
            jax.errors.JaxRuntimeError: the kernel failed, or a value is outside its range; raised
                when JAX waits for the result.
        """
        arrays, numbers = split(self.signature, self._named(args, kwargs))
        results = self._structured(self._compiled(arrays, numbers), arrays)
        return results[0] if len(results) == 1 else results

    def _structured(self, results: tuple[Any, ...], arrays: Arrays) -> tuple[Any, ...]:
        """Return the results, with the new contents of each list that is written in a list."""
        count = len(self.signature.results)
        found, rest = list(results[:count]), iter(results[count:])
        for parameter, value in zip(self.signature.tensors, arrays, strict=True):
            if parameter.mutated and isinstance(value, tuple):
                found.append([next(rest) for _ in value])
            elif parameter.mutated and value is not None:
                found.append(next(rest))
        return tuple(found)

    def _run(self, arrays: Arrays, numbers: Numbers) -> tuple[Any, ...]:
        found = self._with_rules(numbers)(arrays)
        results = zip(self.signature.results, found, strict=False)  # new contents come after
        stopped = [
            value if result.differentiable else jax.lax.stop_gradient(value)
            for result, value in results
        ]
        return (*stopped, *found[len(stopped) :])

    def _make(self, numbers: Numbers) -> Callable[[Arrays], tuple[Any, ...]]:
        """Return the call with its rules for vmap and derivatives."""

        def call(arrays: Arrays) -> tuple[Any, ...]:
            return self._bound(arrays, numbers)

        primal = batched(self.signature, call)
        function = jax.custom_vjp(primal)

        def forward(arrays: Arrays) -> tuple[Any, Any]:
            if isinstance(self._backward, str):
                raise DifferentiationError(f"{self.signature.qualname}: {self._backward}")
            results = primal(arrays)
            return results, (arrays, results)

        def backward(kept: Any, grads: Any) -> tuple[Any]:
            assert not isinstance(self._backward, str)
            arrays, results = kept
            arguments = joined(self.signature, arrays, numbers)
            found = self._backward(arguments, results, grads)
            for name in self.signature.nondifferentiable:
                found.pop(name, None)
            tensors = zip(self.signature.tensors, arrays, strict=True)
            return (tuple(_gradient(found.get(p.name), value) for p, value in tensors),)

        function.defvjp(forward, backward)
        return function

    def _bound(self, arrays: Arrays, numbers: Numbers) -> tuple[Any, ...]:
        """Check the arguments against the declaration, and call the kernel through XLA."""
        arguments = joined(self.signature, arrays, numbers)
        leaves, structure = jax.tree.flatten(arrays)

        def call(*parts: Any) -> tuple[Any, ...]:
            own = joined(self.signature, jax.tree.unflatten(structure, parts), numbers)
            given = jax.ffi.ffi_call(self.library.target, self._outputs(own))
            return tuple(given(*parts, **attributes(self.signature, own)))

        shared = partitioned(self.signature, arrays, self._outputs(arguments), call)
        return shared(*leaves)

    def _outputs(self, arguments: dict[str, Any]) -> list[Any]:
        """Return the shapes and dtypes of a call's results, and of what it writes."""
        signature = self.signature
        try:
            bindings = bind(signature, described(signature, arguments))
        except ArgumentError as error:
            raise _with_hint(error) from None
        outputs = [
            jax.ShapeDtypeStruct(shape, _dtype(signature, result, bindings))
            for result, shape in zip(
                signature.results, result_shapes(signature, bindings, arguments), strict=True
            )
        ]
        for parameter in signature.mutated:
            for value in flat((arguments[parameter.name],)):
                outputs.append(jax.ShapeDtypeStruct(value.shape, value.dtype))
        return outputs


def _dtype(signature: Signature, result: Result, bindings: Bindings) -> Any:
    name = signature.dtype_in(result.tensor_type, bindings.dtype)
    assert name is not None
    return jax.numpy.dtype(name)


def _gradient(found: Any, value: Any) -> Any:
    """Return the gradient of one argument in JAX's form; zero if the derivative has none."""

    def one(gradient: Any, array: Any) -> Any:
        if not jax.numpy.issubdtype(array.dtype, jax.numpy.inexact):
            return np.zeros(array.shape, jax.dtypes.float0)
        if gradient is None:
            return jax.numpy.zeros_like(array)
        return jax.numpy.asarray(gradient, array.dtype)

    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(one(g, v) for g, v in zip(found or [None] * len(value), value, strict=True))
    return one(found, value)


def _with_hint(error: ArgumentError) -> ArgumentError:
    """Return the error, with advice on how to enable 64 bits in JAX if they are missing."""
    first = str(error).partition("\n")[0]
    missing = [name for name in _WIDE if f"expected {name}" in first]
    if not missing or jax.dtypes.canonicalize_dtype(np.int64) == np.int64:
        return error
    return ArgumentError(
        f"{error}\n  JAX makes arrays of 64 bits only after "
        'jax.config.update("jax_enable_x64", True)'
    )


def _python_signature(signature: Signature) -> inspect.Signature:
    keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters: list[inspect.Parameter] = []
    optional = False
    for parameter in signature.parameters:
        default = inspect.Parameter.empty if parameter.default is NO_DEFAULT else parameter.default
        # A required parameter may follow one with a default, which Python's own signatures forbid.
        optional = optional or default is not inspect.Parameter.empty
        kind = keyword[parameter.keyword_only or (optional and default is inspect.Parameter.empty)]
        parameters.append(
            inspect.Parameter(
                parameter.name, kind, default=default, annotation=parameter.annotation
            )
        )
    return inspect.Signature(sorted(parameters, key=lambda p: p.kind))


class XlaLibrary:
    """A library that XLA can call.

    Args:
        path: path of the library.
        sha256: digest of the file that was built.
        symbol: name of the function that XLA calls.
        calls: symbol that counts the kernel's calls.

    Attributes:
        target: name of the function in XLA.

    Raises:
        ArtifactError: the file is missing, was changed after the export, or does not load here.
    """

    def __init__(self, path: Path, sha256: str, symbol: str, calls: str) -> None:
        self._handle = runtime.load(path, sha256)
        self._calls = calls
        # Register two copies of an artifact separately, and one copy that is imported twice once.
        place = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]
        self.target = f"{symbol}__{place}"
        jax.ffi.register_ffi_target(
            self.target, jax.ffi.pycapsule(self._handle[symbol]), platform="cpu"
        )

    def calls(self) -> int:
        """Return how often the kernel ran in this process."""
        return ctypes.c_uint64.in_dll(self._handle, self._calls).value


def batched(signature: Signature, call: Call) -> Call:
    """Return `call` with a batching rule: it folds the batch into a parallel dimension, if any.

    Args:
        call: accepts a call's arrays, and returns its results.
    """
    function = jax.custom_batching.custom_vmap(call)

    @function.def_vmap
    def rule(size: int, in_batched: Any, arrays: Arrays) -> tuple[Any, Any]:
        (marks,) = in_batched
        named = zip(signature.tensors, marks, strict=True)
        names = [parameter.name for parameter, mark in named if _any(mark)]
        along = None if signature.mutated else fold(signature, names)
        if along is None or size == 0:
            results = _one_by_one(function, marks, arrays)
        else:
            results = _folded(signature, function, along, size, names, arrays)
        return results, jax.tree.map(lambda _: True, results)

    return function


def _any(mark: Any) -> bool:
    return any(mark) if isinstance(mark, tuple) else bool(mark)


def _one_by_one(call: Call, marks: Any, arrays: Arrays) -> tuple[Any, ...]:
    """Make one call per sample, in a loop of XLA's."""
    leaves, structure = jax.tree.flatten(arrays)
    batch = jax.tree.leaves(marks)

    def sample(given: list[Any]) -> tuple[Any, ...]:
        rest = iter(given)
        values = [next(rest) if mark else leaf for leaf, mark in zip(leaves, batch, strict=True)]
        return call(jax.tree.unflatten(structure, values))

    moved = [leaf for leaf, mark in zip(leaves, batch, strict=True) if mark]
    results: tuple[Any, ...] = jax.lax.map(sample, moved)
    return results


def _folded(
    signature: Signature, call: Call, along: Fold, size: int, names: list[str], arrays: Arrays
) -> tuple[Any, ...]:
    def laid(name: str, value: Any) -> Any:
        axis = along.axes.get(name)
        if axis is None or value is None:
            return value
        if name in names:
            value = jnp.moveaxis(value, 0, axis)
        else:
            wide = (*value.shape[:axis], size, *value.shape[axis:])
            value = jnp.broadcast_to(jnp.expand_dims(value, axis), wide)
        if along.variadic:
            return value
        # A size of -1 is ambiguous if another size is 0.
        both = value.shape[axis] * value.shape[axis + 1]
        return value.reshape(*value.shape[:axis], both, *value.shape[axis + 2 :])

    tensors = zip(signature.tensors, arrays, strict=True)
    results = call(tuple(laid(parameter.name, value) for parameter, value in tensors))

    def opened(value: Any, axis: int) -> Any:
        if not along.variadic:
            sizes = (size, value.shape[axis] // size)
            value = value.reshape(*value.shape[:axis], *sizes, *value.shape[axis + 1 :])
        return jnp.moveaxis(value, axis, 0)

    return tuple(map(opened, results, along.out_axes))
