"""Declare operators of the corpus: PyTorch's own, under declarations that `opsmith adopt` drafted.

`adopted` is the draft as it is; its reference is the operator in double precision. `kernel` takes
the declaration for a new operator: its kernel calls PyTorch's operator, its reference is PyTorch's
decomposition of it, where there is one, and both run the test suite's samples. `numpy` has the test
suite's own reference, in NumPy or SciPy. `onnx` has the cases of ONNX's backend tests, and its
evaluator as the reference. `library` and `formula` have kernels in C++, of `corpus_compiled`.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import corpus_compiled
import corpus_jax
import corpus_onnx
import torch
from corpus_suite import DRAFTS, Drafted, entries, index, stem_of
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._pytree import tree_map

import opsmith
from opsmith import Operator
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.subject import Subject, registered
from opsmith.errors import OpsmithError
from opsmith.operators.adoption.adopted import AdoptedOperator
from opsmith.operators.core.arguments import case_dtype
from opsmith.operators.core.value_checks import check_values
from opsmith.signature import bind

#: What a module of the corpus is: how it takes the operator, and the overload's name.
MODULE = '''"""Declares an operator of the corpus."""

import sys

sys.path[:0] = [{here!r}]

import corpus_taken  # noqa: E402

operator = corpus_taken.{kind}({name!r}, __name__)
'''


def draft_of(name: str) -> AdoptedOperator:
    """Return the operator that the draft of an overload declares."""
    stem = stem_of(name)
    module = sys.modules.get(stem)
    if module is None:
        spec = importlib.util.spec_from_file_location(stem, DRAFTS / f"{stem}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[stem] = module
        spec.loader.exec_module(module)
    (found,) = [one for one in vars(module).values() if isinstance(one, AdoptedOperator)]
    return found


def adopted(name: str, module: str) -> AdoptedOperator:
    """Return the draft as it is."""
    return draft_of(name)


def kernel(name: str, module: str, namespace: str = "corpus", **given: Any) -> Operator:
    """Return an operator whose kernel is PyTorch's operator, and its reference a decomposition."""
    draft = draft_of(name)
    reference = decomposed(draft)
    differentiable = has_gradient(draft, draft.overload)
    dtypes = Subject(draft, "reference", "cpu").floats
    if differentiable and not all(has_gradient(draft, reference, one) for one in dtypes):
        # It decomposes into ``prims``, which have no derivatives, perhaps in half precision alone.
        reference = draft.overload
    return _declared(namespace, draft, reference, module, differentiable=differentiable, **given)


def library(name: str, module: str) -> Operator:
    """Return the same operator with a kernel in C++ that calls PyTorch's function."""
    source = opsmith.cpp(corpus_compiled.library())
    return kernel(name, module, "corpus_library", source=source, api="torch", flags=("-O1",))


def formula(name: str, module: str) -> Operator:
    """Return the same operator with a kernel in C++ that calls C++'s standard functions."""
    text = corpus_compiled.formula_of(draft_of(name), stem_of(name).removeprefix("aten_"), name)
    return kernel(name, module, "corpus_formula", source=opsmith.cpp(text))


def numpy(name: str, module: str) -> Operator:
    """Return an operator whose kernel is PyTorch's operator, and its reference the test suite's."""
    draft = draft_of(name)
    entry = entry_of(index()[name])

    def reference(*args: Any, **kwargs: Any) -> Any:
        numbers = [_to_numpy(one) for one in args]
        found = entry.ref(*numbers, **{key: _to_numpy(one) for key, one in kwargs.items()})
        like = draft.overload(*args, **kwargs)
        return _like(found, like)

    return _declared("corpus_numpy", draft, reference, module, differentiable=False)


def jax(name: str, module: str) -> Operator:
    """Return an operator whose kernel is PyTorch's operator, and its reference JAX's formula."""
    draft = draft_of(name)

    def reference(*args: Any, **kwargs: Any) -> Any:
        arguments = draft.arguments(args, kwargs)
        found = corpus_jax.called(name, {key: _to_numpy(one) for key, one in arguments.items()})
        return _like(found, draft.overload(*args, **kwargs))

    return _declared("corpus_jax", draft, reference, module, differentiable=False)


def onnx(name: str, module: str) -> Operator:
    """Return an operator whose kernel is PyTorch's operator, and its reference ONNX's evaluator."""
    draft = draft_of(name)
    node = corpus_onnx.evaluator(name)

    def reference(*args: Any, **kwargs: Any) -> Any:
        found = node([_to_numpy(one) for one in (*args, *kwargs.values())])
        return _like(found, draft.overload(*args, **kwargs))

    samples = corpus_onnx.model_of(name).with_suffix(".pt")
    return _declared("corpus_onnx", draft, reference, module, differentiable=False, samples=samples)


def decomposed(draft: AdoptedOperator) -> Callable[..., Any]:
    """Return PyTorch's decomposition of an operator into others; the operator where none is."""
    if draft.signature.mutated:
        return draft.overload
    return decomposition_table.get(draft.overload, draft.overload)


def entry_of(one: Drafted) -> Any:
    """Return the test suite's entry of an overload."""
    (found,) = [
        entry
        for entry in entries()
        if f"{entry.name}.{entry.variant_test_name}".rstrip(".") == one.entry
    ]
    return found


def _declared(
    namespace: str,
    draft: AdoptedOperator,
    reference: Callable[..., Any],
    module: str,
    *,
    differentiable: bool,
    samples: Path | None = None,
    **given: Any,
) -> Operator:
    declared = draft.reference.__wrapped__
    signature = draft.signature
    reference, kernel = _owned(_refusing(reference, draft), draft), _owned(draft.overload, draft)

    def split(args: Any, kwargs: Any) -> Any:
        # Decompositions have other names for some arguments.
        return draft.split(draft.arguments(args, kwargs))

    @functools.wraps(declared)
    def body(*args: Any, **kwargs: Any) -> Any:
        positional, named = split(args, kwargs)
        return reference(*positional, **named)

    def call(*args: Any, **kwargs: Any) -> Any:
        positional, named = split(args, kwargs)
        found = kernel(*positional, **named)
        # The fake kernel that follows from a declared shape promises contiguous results.
        return tree_map(torch.Tensor.contiguous, found) if signature.shaped else found

    def of_suite(dtype: Any, seed: int) -> Iterator[dict[str, Any]]:
        yield from _samples(draft, dtype, samples)

    body.__module__ = call.__module__ = of_suite.__module__ = module
    operator = opsmith.op(
        f"{namespace}::{stem_of(draft.name).removeprefix('aten_')}",
        body,
        mutates_args=[one.name for one in signature.mutated],
        data_dependent=signature.data_dependent,
        where=signature.where,
        autograd="reference" if differentiable else None,
    )
    if given:
        operator.register_kernel("cpu", **given)
    else:
        operator.register_kernel("cpu")(call)
    if not signature.shaped:
        operator.register_fake(call)
    for function in draft.cases:
        operator.register_cases(function, only=draft.only_registered_cases)
    operator.register_cases(of_suite)
    return operator


def _refusing(function: Callable[..., Any], draft: AdoptedOperator) -> Callable[..., Any]:
    """Return a reference that refuses what PyTorch's operator refuses: it defines what is right."""
    if function is draft.overload:
        return function

    def refusing(*args: Any, **kwargs: Any) -> Any:
        # PyTorch's operator may have no derivative of a kind that the reference has.
        plain, named = tree_map(_detached, (args, kwargs))
        draft.overload(*plain, **named)
        return function(*args, **kwargs)

    return refusing


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, Tensor) else value


def _owned(function: Callable[..., Any], draft: AdoptedOperator) -> Callable[..., Any]:
    """Return a function whose results share no memory with its arguments, as an operator's must."""
    for arguments in _plain(draft):
        args, kwargs = draft.split(arguments)
        memory = {one.untyped_storage().data_ptr() for one in _tensors([args, kwargs])} - {0}
        found = _tensors(draft.overload(*args, **kwargs))
        if any(one.untyped_storage().data_ptr() in memory for one in found):
            return lambda *args, **kwargs: tree_map(torch.clone, function(*args, **kwargs))
    return function


def has_gradient(
    draft: AdoptedOperator, function: Callable[..., Any], dtype: str | None = None
) -> bool:
    """Return whether PyTorch differentiates a function that computes an operator, in a dtype."""
    for arguments in _plain(draft, dtype):
        made = {
            key: one.detach().requires_grad_()
            if isinstance(one, Tensor) and one.is_floating_point()
            else one
            for key, one in arguments.items()
        }
        args, kwargs = draft.split(made)
        try:
            found = list(_tensors(function(*args, **kwargs)))
            ends = [one for one in found if one.requires_grad]
            leaves = [one for one in _tensors(made) if one.requires_grad]
            if not ends:
                return False
            torch.autograd.grad(
                ends, leaves, [torch.ones_like(one) for one in ends], allow_unused=True
            )
        except (RuntimeError, NotImplementedError):
            return False
        return True
    return False


def _plain(draft: AdoptedOperator, dtype: str | None = None) -> Iterator[dict[str, Any]]:
    dtype = dtype or Subject(draft, "reference", "cpu").favourite
    yield from registered(draft, dtype, 0)
    yield from _samples(draft, case_dtype(draft.signature, dtype))


def _samples(
    draft: AdoptedOperator, dtype: Any, file: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the samples in a file that the declaration allows: by default the test suite's."""
    several = dtype if isinstance(dtype, Mapping) else {"": dtype}
    floating = next((one for one in several.values() if one and one.is_floating_point), None)
    whole = next((one for one in several.values() if one and not one.is_floating_point), None)

    def fit(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return (
                [fit(one) for one in value]
                if any(isinstance(one, Tensor) for one in value)
                else type(value)(value)
            )
        if not isinstance(value, Tensor):
            return value
        value = value.detach()
        if value.is_floating_point() and floating is not None:
            return value.to(floating)
        is_whole = not (
            value.is_floating_point() or value.is_complex() or value.dtype == torch.bool
        )
        return value.to(whole) if is_whole and whole is not None else value.clone()

    file = file or DRAFTS / f"{stem_of(draft.name)}.pt"
    for args, kwargs in torch.load(file, weights_only=False):
        try:
            given = {key: fit(one) for key, one in kwargs.items()}
            arguments = draft.arguments(tuple(fit(one) for one in args), given)
            _require_allowed(draft, arguments)
            positional, named = draft.split(tree_map(_cloned, arguments))
            # The suite may have the sample for other dtypes alone.
            draft.overload(*positional, **named)
        except (OpsmithError, TypeError, ValueError, RuntimeError):
            continue
        yield arguments


def _require_allowed(draft: AdoptedOperator, arguments: dict[str, Any]) -> None:
    """Require that a draft allows some arguments; raise `OpsmithError` or `ValueError` if not."""
    signature = draft.signature
    bindings = bind(signature, Case(signature, arguments, {}).described())
    for parameter in signature.parameters:
        value = arguments[parameter.name]
        if parameter.tensor_type is not None:
            check_values(signature, parameter, arguments, bindings)
        elif parameter.ranges and value is not None:
            low, high = parameter.limits(bindings.dims, arguments)
            for one in value if isinstance(value, tuple | list) else (value,):
                if (low is not None and one < low) or (high is not None and one > high):
                    raise ValueError(f"{parameter.name} is {one}")


def _cloned(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _to_numpy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return (
            value.detach()
            .to(torch.float32 if value.dtype == torch.bfloat16 else value.dtype)
            .numpy()
        )
    if isinstance(value, tuple | list):
        return type(value)(map(_to_numpy, value))
    return value


def _like(found: Any, like: Any) -> Any:
    if isinstance(like, tuple | list):
        return tuple(_like(*pair) for pair in zip(found, like, strict=True))
    import numpy

    made = torch.from_numpy(numpy.array(found, copy=True))
    return made.to(like.dtype).reshape(like.shape)
