"""Adopt existing operators: declare, map and check them without defining them again.

An operator of PyTorch (``aten::asinh``, ``torchvision::deform_conv2d``) is not changed; it gets a
signature and a reference, on which targets rely. A ``torch.autograd.Function`` is not an operator,
so ``torch.export`` traces through it and today's ONNX exporter ignores its ``symbolic``; adopting
defines an operator for it.
"""

from __future__ import annotations

import dis
import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from opsmith.compat.torch_dispatch import all_operators, parse_schema
from opsmith.compat.torch_onnx import in_torchscript_export
from opsmith.compat.torch_ops import OpOverload, is_written, overload_schema
from opsmith.errors import ArgumentError, DeclarationError, OpsmithError
from opsmith.operators.adoption.adopted import AdoptedOperator, add_adopted
from opsmith.operators.core.arguments import memory_of
from opsmith.operators.core.onnx_translation import OnnxTranslation
from opsmith.operators.core.operator import Operator
from opsmith.operators.core.source_location import where_written
from opsmith.operators.decorator import op as declare, refuse
from opsmith.operators.dispatch.fake import give_fake
from opsmith.signature import Signature, hints, signature_of
from opsmith.untyped import Args, Arguments, Hint, Untyped, Value

#: The instructions of a function without a body, in each Python version.
_CONSTANTS = ("LOAD_CONST", "RETURN_CONST")


def adopt(
    what: str | type[torch.autograd.Function],
    second: Callable[..., object] | str | None = None,
    /,
    *,
    mutates_args: Sequence[str] = (),
    data_dependent: Sequence[str] = (),
    parallel_dims: Sequence[str] = (),
    where: Sequence[str] = (),
    batch_invariant: Sequence[str] = (),
    annotations: Callable[..., object] | None = None,
) -> Any:  # the function, or without one a decorator
    """Adopt an existing operator, or define an operator for a ``torch.autograd.Function``.

    Args:
        what: the name of an operator of PyTorch, ``aten::asinh`` or ``aten::add.Tensor``; or a
            ``torch.autograd.Function``, or its ``apply``.
        second: for a name, a function with the operator's parameters, annotated as for
            `opsmith.op`, that computes the same in PyTorch; without it `adopt` is a decorator.
            Trailing parameters with defaults may be left out, and keep their defaults. An empty
            body (``...``) stands for a call of the operator itself. For a Function, the new
            operator's name.
        mutates_args: see `opsmith.op`.
        data_dependent: see `opsmith.op`.
        parallel_dims: see `opsmith.op`.
        where: see `opsmith.op`.
        batch_invariant: see `opsmith.op`.
        annotations: for a Function, another function that provides the annotations; by default
            ``forward``, whose parameters without annotation are tensors. If it has a body, it is
            the reference, with whose gradient `opsmith check` compares ``backward``: a gradient
            that is deliberately not the derivative (straight through) is stated by ``detach``.

    Returns:
        An operator. For a Function, ``backward`` and ``symbolic`` are kept, and its ``apply`` calls
        the operator from now on, so that models need no change, under torch.compile either. (An
        ``apply`` read before adopting, ``my_add = MyAdd.apply``, still calls the Function: read it
        afterwards. The TorchScript exporter, if called directly, sees the Function and its
        ``symbolic`` as before.) A ``forward`` that takes ``ctx`` runs a second time where a
        gradient is needed, to save what ``backward`` reads. An operator of another library without
        a fake kernel gets the one that follows from the declaration.

    Raises:
        DeclarationError: the operator does not exist, its parameters differ from the declaration,
            or the Function does something that an operator cannot do.

    Example:
        >>> import opsmith
        >>> from jaxtyping import Float
        >>> from torch import Tensor
        >>> @opsmith.adopt("aten::asinh")
        ... def asinh(self: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        ...     return torch.sign(self) * torch.log(abs(self) + torch.sqrt(self * self + 1))
        >>> asinh.register_onnx("Asinh", opset=9)
    """
    options: dict[str, Value] = {
        "mutates_args": mutates_args,
        "data_dependent": data_dependent,
        "parallel_dims": parallel_dims,
        "where": where,
        "batch_invariant": batch_invariant,
    }
    owner = getattr(what, "__self__", what)  # of the Function's `apply`, the Function
    if isinstance(owner, type) and issubclass(owner, torch.autograd.Function):
        what = owner
        if not isinstance(second, str):
            raise DeclarationError(
                f"adopt({what.__name__}): give the new operator a name, "
                f'adopt({what.__name__}, "my_ops::{what.__name__.lower()}")'
            )
        return _adopt_function(what, second, annotations, options)
    if not isinstance(what, str):
        raise DeclarationError(
            f"adopt({what!r}): takes an operator's name or a torch.autograd.Function"
        )
    if second is None:
        return functools.partial(adopt, what, **options)
    assert callable(second)
    overload = overload_of(what)
    signature = signature_of(second, overload_schema(overload).name, **options)
    _compare(signature, overload)
    explained = not _is_empty(second)
    operator = AdoptedOperator(
        signature, second if explained else _itself(second, overload), overload
    )
    operator.explained = explained
    add_adopted(operator)
    give_fake(signature, overload)
    return operator


def _is_empty(function: Callable[..., object]) -> bool:
    """Return whether a function has no body but ``...`` or a docstring."""
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    words = {instruction.opname for instruction in dis.get_instructions(code)}
    returned = {i.argval for i in dis.get_instructions(code) if i.opname in _CONSTANTS}
    return words <= {*_CONSTANTS, "RESUME", "NOP", "RETURN_VALUE"} and returned == {None}


def _itself(function: Callable[..., object], overload: OpOverload) -> Callable[..., object]:
    @functools.wraps(function)
    def reference(*args: object, **kwargs: object) -> object:
        return overload(*args, **kwargs)

    return reference


def adopt_as(overload: OpOverload, declared: Operator) -> AdoptedOperator:
    """Adopt an operator with the declaration, the reference and the cases of another operator.

    Raises:
        DeclarationError: the parameters of the two operators differ.
    """
    namespace, name = overload_schema(overload).name.split("::")
    signature = replace(declared.signature, namespace=namespace, name=name)
    _compare(signature, overload)
    operator = AdoptedOperator(signature, declared.reference, overload)
    operator.cases, operator.sizes = declared.cases, declared.sizes
    operator.only_registered_cases = declared.only_registered_cases
    if declared.cost is not None:
        operator.cost = replace(declared.cost, signature=signature)
    add_adopted(operator)
    give_fake(signature, overload)
    return operator


def overload_of(name: str) -> OpOverload:
    """Return the overload ``namespace::name``, or ``namespace::name.overload``.

    Raises:
        DeclarationError: PyTorch has no overload of this name.
    """
    qualname, _, wanted = name.partition(".")
    namespace, _, short = qualname.partition("::")
    packet = getattr(getattr(torch.ops, namespace), short, None) if short else None
    if packet is None:
        has_some = any(one.startswith(f"{namespace}::") for one in all_operators())
        absent = not has_some and namespace.isidentifier() and find_spec(namespace) is None
        raise DeclarationError(
            f"{name}: PyTorch has no such operator. Import the package that defines it first."
            + (f" No package {namespace} is installed here." if short and absent else "")
        )
    overloads = packet.overloads()
    if (wanted or "default") not in overloads:
        known = ", ".join(f"{qualname}.{o}" if o != "default" else qualname for o in overloads)
        raise DeclarationError(f"{name}: there is no such overload; there are {known}")
    overload: OpOverload = getattr(packet, wanted or "default")
    return overload


def _compare(signature: Signature, overload: OpOverload) -> None:
    """Refuse a declaration whose parameters differ from the operator's."""
    ours = parse_schema(f"{signature.namespace}::{signature.schema()}")
    theirs = overload_schema(overload)
    difference = _difference(ours, theirs)
    if difference:
        raise DeclarationError(
            f"{signature.qualname}: the declaration differs from the operator.\n"
            f"  declared: {ours}\n  operator: {theirs}\n  {difference}"
        )


def _difference(ours: Untyped, theirs: Untyped) -> str:
    """Describe the first difference between two schemas that matters; empty if there is none."""
    pairs = zip(ours.arguments, theirs.arguments, strict=False)
    for position, (own, other) in enumerate(pairs, 1):
        if own.name != other.name:
            return f"argument {position} is called {other.name!r}, declared as {own.name!r}"
        declared, is_ = _kind(own.type), _kind(other.type)
        numbers = declared.replace("int", "number"), declared.replace("float", "number")
        if declared != is_ and is_ not in numbers:  # schemas may accept any number
            return f"argument {own.name!r} is {is_}, declared as {declared}"
        if is_written(own) != is_written(other):
            what = ("is written into", "is not written into")
            return f"argument {own.name!r} {what[is_written(own)]}, and mutates_args says otherwise"
    count, declared_count = len(theirs.returns), len(ours.returns)
    if count != declared_count:
        return f"the operator has {count} returns, the declaration {declared_count}"
    # Trailing arguments with defaults may be left out of the declaration, and keep their defaults.
    left = theirs.arguments[len(ours.arguments) :]
    if len(ours.arguments) > len(theirs.arguments) or any(
        not one.has_default_value() for one in left
    ):
        return (
            f"the operator has {len(theirs.arguments)} arguments, the declaration "
            f"{len(ours.arguments)}"
        )
    return ""


def _kind(type_: object) -> str:
    return str(type_).replace("SymInt", "int").replace("Scalar", "number")


class _ExportThread(threading.local):
    """A flag per thread: it runs a TorchScript export that supports opsmith's operators."""

    exports_operators = False


_thread = _ExportThread()


@contextmanager
def functions_call_operators() -> Iterator[None]:
    """Make adopted Functions call their operators in a block that exports by TorchScript."""
    before, _thread.exports_operators = _thread.exports_operators, True
    try:
        yield
    finally:
        _thread.exports_operators = before


class _Unsaved(FunctionCtx):
    """A ``ctx`` for a forward whose saved values are not needed."""

    def __init__(self, qualname: str, count: int) -> None:
        self._qualname = qualname
        self.needs_input_grad = (False,) * count

    def mark_dirty(self, *tensors: object) -> None:
        raise DeclarationError(
            f"{self._qualname}: its forward writes into its arguments (mark_dirty). Write it as an "
            "operator with mutates_args (opsmith.op)."
        )


def _adopt_function(
    function: Value, qualname: str, annotated: Callable[..., object] | None, options: Arguments
) -> Operator:
    takes_ctx = function.setup_context is torch.autograd.Function.setup_context
    forward = function.forward

    def reference(*args: object) -> object:
        ctx = (_Unsaved(qualname, len(args)),) if takes_ctx else ()
        with torch.no_grad():
            return _own_memory(forward(*ctx, *args), args)

    source = annotated or forward
    parameters = list(inspect.signature(source).parameters.values())
    if annotated is None and takes_ctx:
        parameters = parameters[1:]
    resolved = hints.resolve(source, functools.partial(refuse, qualname))
    reference.__annotations__ = {
        **{p.name: resolved.get(p.name, guess(p)) for p in parameters},
        "return": resolved.get("return", Tensor),
    }
    reference.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(annotation=reference.__annotations__[p.name]) for p in parameters]
    )
    reference.__doc__ = function.__doc__
    reference.__name__ = function.__name__
    reference.__module__ = function.__module__
    reference.__wrapped__ = source  # type: ignore[attr-defined]
    operator = declare(qualname, reference, **options)
    if not operator.signature.shaped:
        operator.register_fake(_fake(qualname, reference))
    if annotated is not None and not _is_empty(annotated):
        operator.reference = annotated

    def setup_context(ctx: object, inputs: tuple[object, ...], output: object) -> None:
        if takes_ctx:
            with torch.no_grad():
                forward(ctx, *inputs)
        else:
            function.setup_context(ctx, inputs, output)

    if not operator.signature.mutated:
        operator.register_autograd(function.backward, setup_context=setup_context)
    if callable(getattr(function, "symbolic", None)):
        operator.onnx_translations.append(
            OnnxTranslation(
                function.symbolic, symbolic=True, where=where_written(function.symbolic)
            )
        )

    applied = function.apply  # bound to the Function

    def apply(*args: object) -> object:
        if in_torchscript_export() and not _thread.exports_operators:
            # torch.onnx.export supports the Function's own symbolic, but not opsmith's operators.
            return applied(*args)
        try:
            return operator(*args)
        except (RuntimeError, TypeError) as error:
            _explain(operator, args, error)
            raise

    # By this attribute of `apply`, the TorchScript exporter finds the Function and its symbolic.
    apply.__self__ = function  # type: ignore[attr-defined]
    function.apply = staticmethod(apply)
    # Dynamo would trace through the Function; call it instead.
    torch.compiler.allow_in_graph(function)
    return operator


def _explain(operator: Operator, args: Args, error: Exception) -> None:
    """Report that an unannotated argument, assumed to be a tensor, is not a tensor."""
    for parameter, value in zip(operator.signature.parameters, args, strict=False):
        if parameter.is_tensor and isinstance(value, bool | int | float | str):
            kind = type(value).__name__
            raise ArgumentError(
                f"{operator.name}: argument {parameter.name!r} is {value!r}, expected a tensor. "
                f"Where it is not a tensor, annotate forward's parameter: {parameter.name}: {kind}."
            ) from error


def _own_memory(returned: object, args: Args) -> object:
    """Copy the results of a forward that are arguments or views of arguments."""
    pointers = {memory_of(arg) for arg in args if isinstance(arg, Tensor)}

    def own(value: Value) -> object:
        shares = isinstance(value, Tensor) and memory_of(value) in pointers
        return value.clone() if shares else value

    if isinstance(returned, tuple | list):
        return tuple(own(value) for value in returned)
    return own(returned)


def guess(parameter: inspect.Parameter) -> Hint:
    """Return the type of a parameter without annotation: its default's type, else a tensor."""
    default, plain = parameter.default, (int, float, bool, str)
    if default is None:
        return Tensor | None
    if (
        isinstance(default, tuple | list)
        and default
        and all(type(one) in plain[:3] for one in default)
    ):
        kinds = {type(one) for one in default}
        return tuple[tuple([kinds.pop() if len(kinds) == 1 else float] * len(default))]  # type: ignore[misc]
    return type(default) if type(default) in plain else Tensor


def _fake(qualname: str, reference: Callable[..., object]) -> Callable[..., object]:
    def fake(*args: object) -> object:
        try:
            return reference(*args)
        except Exception as error:
            raise OpsmithError(
                f"{qualname}: its forward does not run without data, as tracing needs "
                f"({type(error).__name__}: {error}). Annotate it with shapes, as in "
                'Float[Tensor, "N C"], or register_fake.'
            ) from error

    return fake
