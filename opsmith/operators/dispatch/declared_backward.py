"""A backward that is itself an operator: match its parameters with the forward call by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from opsmith.errors import DeclarationError
from opsmith.operators.core.operator import Operator
from opsmith.operators.core.rule import Rule
from opsmith.signature import Signature, checking
from opsmith.signature.dtypes import COMPLEX, FLOATING
from opsmith.signature.parameters import NO_DEFAULT, Parameter, Result, TensorListType, TensorType
from opsmith.untyped import Arguments, Context, Value

_GRAD, _RESULT = "grad", "result"


@dataclass(frozen=True)
class Given:
    """The value that one parameter of the backward receives.

    Attributes:
        name: the backward's parameter.
        kind: an ``"argument"`` or ``"result"`` of the call, or the ``"gradient"`` of a result.
        position: position among the arguments, or among the results.
    """

    name: str
    kind: Literal["argument", "result", "gradient"]
    position: int


@dataclass(frozen=True)
class DeclaredBackward:
    """A pair of operators, of which the second computes the gradients of the first.

    Attributes:
        given: the values of its arguments.
        gradients: for each argument of `forward`, the result of `backward` that is its gradient, or
            `None`.

    Raises:
        DeclarationError: the two operators do not match; the message says where.
    """

    forward: Operator
    backward: Operator
    given: tuple[Given, ...]
    gradients: tuple[int | None, ...]

    @property
    def recordable(self) -> bool:
        """Return whether C++ can record the calls; else a Python function does it."""
        signature = self.forward.signature
        if signature.mutated:
            return False
        results = [result.type for result in signature.results]
        lists = [
            parameter.is_tensor_list
            for parameter, place in zip(signature.parameters, self.gradients, strict=True)
            if place is not None
        ]
        wanted = [results[one.position] for one in self.given if one.kind == "gradient"]
        return not any(lists) and all(
            isinstance(type_, TensorType) and set(type_.dtypes.names) <= set(FLOATING + COMPLEX)
            for type_ in [*wanted, *results]
        )

    def rule(self, before: Rule) -> Rule:
        """Return the backward as a pair of functions for ``torch.library.register_autograd``."""
        signature = self.forward.signature
        # torch.library counts positional arguments; keyword-only arguments have no gradient.
        positional = [p for p in signature.parameters if not p.keyword_only]
        kept = [one for one in self.given if one.kind != "gradient"]

        def setup_context(
            ctx: Context, inputs: Value, output: Value, keyword_only_inputs: Arguments | None = None
        ) -> None:
            from opsmith.operators.core.arguments import holds_tensors

            values = dict(zip((p.name for p in positional), inputs, strict=True))
            values.update(keyword_only_inputs or {})
            arguments = [values[p.name] for p in signature.parameters]
            results = list(output) if isinstance(output, list | tuple) else [output]
            sources = {"argument": arguments, "result": results}
            saved: list[object] = []
            ctx.opsmith_plain = {}
            for one in kept:
                value = sources[one.kind][one.position]
                if isinstance(value, Tensor):
                    saved.append(value)
                    ctx.opsmith_plain[one.name] = _Saved(None)
                elif holds_tensors(value):
                    saved += value
                    ctx.opsmith_plain[one.name] = _Saved(len(value))
                else:
                    ctx.opsmith_plain[one.name] = value
            ctx.save_for_backward(*saved)

        def backward(ctx: Context, *grads: object) -> tuple[object, ...]:
            tensors = iter(ctx.saved_tensors)
            values = {}
            for name, value in ctx.opsmith_plain.items():
                values[name] = value.taken(tensors) if isinstance(value, _Saved) else value
            for one in self.given:
                if one.kind == "gradient":
                    values[one.name] = grads[one.position]
            returned = self.backward(**values)
            results = list(returned) if isinstance(returned, list | tuple) else [returned]
            places = zip(signature.parameters, self.gradients, strict=True)
            return tuple(
                None if place is None else results[place]
                for parameter, place in places
                if not parameter.keyword_only
            )

        # Messages that locate the backward show the source of this function.
        backward.__wrapped__ = self.backward.reference  # type: ignore[attr-defined]
        return Rule(backward, setup_context, before.reference)


@dataclass(frozen=True)
class _Saved:
    """The shape of a value that autograd saves: one tensor, or a list of `count` tensors."""

    count: int | None

    def taken(self, tensors: Value) -> object:
        """Take this value from an iterator over the saved tensors."""
        return next(tensors) if self.count is None else [next(tensors) for _ in range(self.count)]


def declared(
    forward: Operator, backward: object, saves: Sequence[str] | None, grads: Mapping[str, int | str]
) -> DeclaredBackward:
    """Match an operator with the operator that computes its gradients.

    Args:
        backward: an operator of opsmith. Its parameters are matched by name: an argument of
            `forward`, ``result``, or ``grad``, the result's gradient (``result_NAME`` and
            ``grad_NAME`` where `forward` has several results, or an argument `grad`). Other
            parameters need a default, and are not passed.
        saves: the names of arguments and results to save, to be compared with the parameters.
        grads: for each argument that has a gradient, the position or name of the result of
            `backward` that is the gradient.

    Raises:
        DeclarationError: the operators do not match; the message says where.
    """
    name = forward.name
    if not isinstance(backward, Operator):
        raise DeclarationError(
            f"{name}: register_backward takes an operator, got {backward!r}. A function is "
            "registered by register_autograd."
        )
    theirs = backward.signature
    # If both declarations were checked before, parse no shapes to compare them again.
    known = checking.was_checked(name) and checking.was_checked(backward.name)
    given = tuple(
        one
        for parameter in theirs.parameters
        if (one := _given(forward.signature, parameter, backward.name, known)) is not None
    )
    kept = [one.name for one in given if one.kind != "gradient"]
    if saves is not None and sorted(saves) != sorted(kept):
        raise DeclarationError(
            f"{name}: register_backward: saves is {tuple(saves)}, and {backward.name} has "
            f"parameters for {', '.join(kept) or 'none'}"
        )
    if not any(one.kind == "gradient" for one in given):
        raise DeclarationError(
            f"{name}: register_backward: {backward.name} has no parameter for a gradient; call it "
            f"{' or '.join(_names_for(_GRAD, forward.signature))}"
        )
    found: dict[str, int] = {}
    for argument, result in grads.items():
        found[argument] = _result(forward.signature, backward, argument, result, known)
    _compare_gradients(forward.signature, backward.name, given)
    _require_gradients(forward.signature, found)
    gradients = tuple(found.get(p.name) for p in forward.signature.parameters)
    return DeclaredBackward(forward, backward, given, gradients)


def _compare_gradients(signature: Signature, backward: str, given: Sequence[Given]) -> None:
    """Refuse a backward that does not take exactly the gradients that exist.

    The gradient of a result that the backward does not take would silently count as zero.
    """
    what = f"{signature.qualname}: register_backward: {backward}"
    taken = {one.position for one in given if one.kind == "gradient"}
    names = _names_for(_GRAD, signature)
    owners: list[Result | Parameter] = [*signature.results, *signature.mutated]
    for position, owner in enumerate(owners):
        kind = "argument" if isinstance(owner, Parameter) else "result"
        if position in taken and not owner.differentiable:
            raise DeclarationError(
                f"{what} takes {names[position]!r}, and the {kind} {owner.name!r} is declared "
                "NonDifferentiable. Leave out the parameter, or the mark."
            )
        if position not in taken and owner.differentiable and owner.inexact:
            raise DeclarationError(
                f"{what} does not take {names[position]!r}, so that a gradient of the {kind} "
                f"{owner.name!r} would be lost. Take it, or declare that there is none: "
                f"Annotated[{owner.type}, NonDifferentiable()]."
            )


def _require_gradients(signature: Signature, found: Mapping[str, int]) -> None:
    """Refuse a backward that leaves out an argument which can have a gradient."""
    for parameter in signature.parameters:
        if parameter.name in found or parameter.keyword_only or not parameter.differentiable:
            continue
        if parameter.inexact:
            raise DeclarationError(
                f"{signature.qualname}: register_backward: grads names no gradient of "
                f"{parameter.name!r}, which would be lost. Name the backward's result that is the "
                f"gradient, or declare that there is none: Annotated[{parameter.type}, "
                "NonDifferentiable()]."
            )


def _names_for(kind: str, signature: Signature) -> list[str]:
    """Return what a backward may call the forward's results, or their gradients, in their order.

    The gradients of the new contents of arguments that the forward writes come last. A backward
    that is differentiated itself has an argument `grad`, which takes the short name.
    """
    several = [f"{kind}_{result.name}" for result in signature.results]
    several = [kind] if len(several) == 1 and kind not in signature.by_name else several
    written = signature.mutated if kind == _GRAD else ()
    return [*several, *(f"{kind}_{parameter.name}" for parameter in written)]


def _given(signature: Signature, parameter: Parameter, backward: str, known: bool) -> Given | None:
    """Return the value that one parameter of the backward receives in a call."""
    what = f"{signature.qualname}: register_backward: {backward} takes {parameter.name!r}"
    names = [p.name for p in signature.parameters]
    results, gradients = _names_for(_RESULT, signature), _names_for(_GRAD, signature)

    def compare(type_: object, whose: str) -> None:
        if not known and not _fits(parameter.type, type_):
            raise DeclarationError(f"{what} as {parameter.type}, and {whose} is {type_}")

    if parameter.name in names:
        position = names.index(parameter.name)
        compare(signature.parameters[position].type, "the argument")
        return Given(parameter.name, "argument", position)
    if parameter.name in gradients:
        position = gradients.index(parameter.name)
        owners: list[Result | Parameter] = [*signature.results, *signature.mutated]
        owner = owners[position]
        compare(owner.type, "the argument" if isinstance(owner, Parameter) else "the result")
        return Given(parameter.name, "gradient", position)
    if parameter.name in results:
        position = results.index(parameter.name)
        compare(signature.results[position].type, "the result")
        return Given(parameter.name, "result", position)
    if parameter.default is not NO_DEFAULT:
        return None
    there = ", ".join([*names, *results, *gradients])
    raise DeclarationError(f"{what}, and a call has nothing of that name; there are {there}")


def _fits(one: object, other: object) -> bool:
    """Return whether values of one type may be passed where the other is declared."""
    if isinstance(one, TensorListType) and isinstance(other, TensorListType):
        one, other = one.element, other.element
    if isinstance(one, TensorType) and isinstance(other, TensorType):
        ranks = {_rank(one), _rank(other)}
        return bool(set(one.dtypes.names) & set(other.dtypes.names)) and (
            None in ranks or len(ranks) == 1
        )
    return bool(one == other)


def _rank(type_: TensorType) -> int | None:
    """Return a tensor's number of dimensions; `None` if it is not fixed."""
    shape = type_.shape
    return None if shape is None or shape.variadic is not None else shape.rank


def _result(
    forward: Signature, backward: Operator, argument: str, result: int | str, known: bool
) -> int:
    """Return the position of the backward's result that is an argument's gradient."""
    what = f"{forward.qualname}: register_backward: grads"
    results = backward.signature.results
    names = [one.name for one in results]
    if argument not in forward.by_name:
        raise DeclarationError(
            f"{what} names {argument!r}, which is not an argument; there are "
            f"{', '.join(forward.by_name)}"
        )
    parameter = forward.parameter(argument)
    if parameter.tensor_type is None or parameter.keyword_only or not parameter.differentiable:
        raise DeclarationError(f"{what} names {argument!r}, which has no gradient")
    if isinstance(result, str) and result in names:
        result = names.index(result)
    if not isinstance(result, int) or not 0 <= result < len(results):
        raise DeclarationError(
            f"{what}[{argument!r}] is {result!r}, and {backward.name} gives "
            f"{', '.join(f'{i} ({name})' for i, name in enumerate(names))}"
        )
    if not known and not _fits(results[result].type, parameter.type):
        raise DeclarationError(
            f"{what}[{argument!r}] is {results[result].type}, and the argument is {parameter.type}"
        )
    return result
