"""The operator that is drafted: its parameters, and calls of it that may fail."""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args, get_origin

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from opsmith.checks.isolation.forked_probe import Copy
from opsmith.compat.torch_autograd import version_of
from opsmith.compat.torch_library import has_fake_kernel
from opsmith.compat.torch_ops import OpOverload, is_written, overload_schema
from opsmith.compat.torch_tracing import fake_mode
from opsmith.errors import DeclarationError
from opsmith.kernels import HOST
from opsmith.operators.adoption.adopt import guess
from opsmith.operators.core.arguments import map_tensors
from opsmith.signature import hints

Kind = Literal["tensor", "tensors", "int", "float", "bool", "str", "ints", "floats", "bools"]

#: The kind of an argument, by the type in the schema.
KINDS: dict[str, Kind] = {
    "Tensor": "tensor",
    "List[Tensor]": "tensors",
    "int": "int",
    "SymInt": "int",
    "float": "float",
    "number": "float",
    "Scalar": "float",
    "bool": "bool",
    "str": "str",
    "List[int]": "ints",
    "List[SymInt]": "ints",
    "List[float]": "floats",
    "List[bool]": "bools",
}
#: The time limit for the calls of one question to a copy of this process.
_SECONDS = 30


@dataclass(frozen=True)
class Spec:
    """The shape and dtype of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class DraftArgument:
    """One parameter of the operator.

    Attributes:
        default: the default value; `inspect.Parameter.empty` if there is none.
        length: number of elements of a list, if the schema fixes it.
    """

    name: str
    kind: Kind
    optional: bool = False
    default: Any = inspect.Parameter.empty
    keyword_only: bool = False
    written: bool = False
    length: int | None = None

    @property
    def required(self) -> bool:
        """Return whether a call has to pass the argument."""
        return self.default is inspect.Parameter.empty and not self.optional

    @property
    def is_tensors(self) -> bool:
        """Return whether the argument is a tensor or a list of tensors."""
        return self.kind in ("tensor", "tensors")


@dataclass(frozen=True)
class Origin:
    """The operator or function for which a declaration is drafted.

    Attributes:
        name: the name that the user gave.
        arguments: its parameters, without those in `left_out`.
        function: the function to call.
        left_out: parameters that keep their defaults, since no declaration can express them.
    """

    name: str
    arguments: tuple[DraftArgument, ...]
    function: Callable[..., Any]
    left_out: tuple[str, ...] = field(default=())

    def call(self, values: Mapping[str, Any], device: str, seed: int = 0) -> Any:
        """Call the function with tensors that are created from their `Spec`.

        Integers are 0 and floating-point numbers are drawn from [0, 1), so that a number used as an
        index points to the first element.

        Args:
            values: each argument by name, tensors as a `Spec` or as they are.
            device: the device of created tensors; ``"meta"`` runs the fake kernel.
            seed: seed of the numbers; unless it is 0, some of them are set to 0.

        Raises:
            Exception: whatever exception the operator raises.
        """
        made = self.made(values, device, seed)
        positional = [made[one.name] for one in self.arguments if not one.keyword_only]
        keywords = {one.name: made[one.name] for one in self.arguments if one.keyword_only}
        with torch.no_grad():
            return self.function(*positional, **keywords)

    def made(self, values: Mapping[str, Any], device: str = HOST, seed: int = 0) -> dict[str, Any]:
        """Return the arguments of a call, with a tensor created for each `Spec`; see `call`."""
        generator = torch.Generator().manual_seed(seed)

        def make(value: Any) -> Any:
            if isinstance(value, list):
                return [make(item) for item in value]
            if not isinstance(value, Spec):
                return value.to(device) if isinstance(value, Tensor) else value
            if device == "meta":
                return torch.empty(value.shape, dtype=value.dtype, device="meta")
            if not (value.dtype.is_floating_point or value.dtype == torch.bool):
                return torch.zeros(value.shape, dtype=value.dtype)
            drawn = torch.rand(value.shape, generator=generator)
            return (drawn * (drawn > 0.5) if seed else drawn).to(value.dtype)

        return {name: make(value) for name, value in values.items()}

    def results(self, values: Mapping[str, Any], device: str, seed: int = 0) -> list[Any] | None:
        """Return a `Spec`, or a list, for each result; `None` if the call raises or crashes."""
        if device == HOST and not self.takes([self.made(values, HOST, seed)])[0]:
            return None
        return self._results(values, device, seed)

    def _results(self, values: Mapping[str, Any], device: str, seed: int = 0) -> list[Any] | None:
        try:
            returned = self.call(values, device, seed)
        except Exception:
            return None
        if returned is None:
            return []
        several = returned if isinstance(returned, tuple) else (returned,)
        return [map_tensors(one, _spec) for one in several]

    @property
    def has_python_fake(self) -> bool:
        """Return whether a fake kernel was registered from Python, which may leave sizes open."""
        if not isinstance(self.function, OpOverload):
            return False
        return has_fake_kernel(overload_schema(self.function).name)

    def traced(self, values: Mapping[str, Any]) -> list[Any] | None:
        """Return `results` of the fake kernel, with -1 for sizes that depend on values.

        A fake kernel with such a size fails on ``"meta"`` tensors, so trace with symbolic sizes.
        """
        with fake_mode(shape_env=ShapeEnv(), allow_non_fake_inputs=True):
            return self._results(values, HOST)

    def takes(self, calls: Sequence[Mapping[str, Any]], *, traced: bool = False) -> list[bool]:
        """Return for each call whether it succeeds; with `traced`, the fake kernel must agree.

        The calls run in a copy of this process, because an operator that does not check its indices
        may crash.
        """
        answers: list[bool] = []
        while len(answers) < len(calls):
            said = self._copy.answers([(one, traced) for one in calls[len(answers) :]])
            # If the copy gave fewer answers than there were calls, the next call crashed it.
            answers += [*said, False]
        return answers[: len(calls)]

    def survives(self, calls: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether no call crashes its process, as reading at a bad index may."""
        said = self._copy.answers([(one, False) for one in calls])
        self._copy.renew()  # the calls may have corrupted its memory
        return len(said) == len(calls)

    @cached_property
    def _copy(self) -> Copy:
        # Held weakly, so that the copy ends with this object.
        says = weakref.WeakMethod(self._says)
        return Copy(lambda call: says()(call), _SECONDS)  # type: ignore[misc]

    def _says(self, call: tuple[Mapping[str, Any], bool]) -> bool:
        """Return whether a call succeeds and, if wanted, whether the fake kernel gives the same."""
        values, traced = call
        given = self._results(values, HOST)
        return given is not None and (not traced or given == self._results(values, "meta"))


def _spec(tensor: Tensor) -> Spec:
    """Return the `Spec` of a tensor, with -1 for a symbolic size."""
    return Spec(tuple([size if type(size) is int else -1 for size in tensor.shape]), tensor.dtype)


def argument_of(argument: Any) -> DraftArgument | None:
    """Return the parameter for a schema's argument; `None` if no declaration can express it."""
    real = str(argument.real_type)
    optional = re.fullmatch(r"Optional\[(.*)\]", real)
    kind = KINDS.get(optional[1] if optional else real)
    if kind is None or (optional and kind == "tensors"):
        return None
    return DraftArgument(
        argument.name,
        kind,
        bool(optional),
        argument.default_value if argument.has_default_value() else inspect.Parameter.empty,
        argument.kwarg_only,
        is_written(argument),
        argument.N if kind == "ints" else None,
    )


def of_overload(name: str, overload: OpOverload) -> Origin:
    """Return the subject for an operator of PyTorch.

    Raises:
        DeclarationError: a declaration cannot express its parameters or results.
    """
    schema = overload_schema(overload)
    problems = []
    for result in schema.returns:
        if result.alias_info is not None and not result.alias_info.is_write:
            problems.append(
                "returns a view of its argument, and the results of a declared operator are "
                "tensors of their own. Declare an operator that copies (opsmith.op)."
            )
        elif result.alias_info is not None:
            inplace = schema.name.endswith("_")
            names = " and ".join(one.name for one in schema.arguments if is_written(one))
            problems.append(
                f"returns the argument that it writes into ({names}), and a declared operator that "
                "writes returns nothing else. Adopt its form without "
                f"{'the underscore' if inplace else names}."
            )
        elif str(result.type) not in ("Tensor", "List[Tensor]"):
            problems.append(f"returns {result.type}, expected tensors")
    found, left_out = [], []
    for argument in schema.arguments:
        known = argument_of(argument)
        if known is None and not argument.has_default_value():
            word = str(argument.real_type).removeprefix("Optional[").removesuffix("]")
            problems.append(f"argument {argument.name!r} is {word}, which no declaration can carry")
        elif known is None:
            left_out.append(argument.name)
        elif left_out:
            problems.append(
                f"argument {left_out[0]!r}, which no declaration can carry, stands before "
                f"{argument.name!r}, which is to be declared"
            )
            left_out.clear()
        else:
            found.append(known)
    if problems:
        raise DeclarationError("\n".join(f"{name}: {one}" for one in dict.fromkeys(problems)))
    return Origin(name, tuple(found), overload, tuple(left_out))


def of_function(
    name: str, function: type[torch.autograd.Function], *, backward: bool = False
) -> Origin:
    """Return the subject for a ``torch.autograd.Function``.

    A parameter without annotation or default counts as a tensor; with the default `None`, as an
    optional tensor.

    Args:
        name: the Function's name in messages.
        function: the Function.
        backward: whether a call runs the backward, too, and is refused if it fails.

    Raises:
        DeclarationError: a parameter has another type, or is variadic.
    """
    parameters = list(inspect.signature(function.forward).parameters.values())
    if function.setup_context is torch.autograd.Function.setup_context:
        parameters = parameters[1:]

    def refuse(message: str) -> Any:
        raise DeclarationError(f"{name}: {message}")

    resolved = hints.resolve(function.forward, refuse)
    found = []
    for parameter in parameters:
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            raise DeclarationError(
                f"{name}: its forward takes *{parameter.name}; name each argument"
            )
        found.append(_parameter(name, parameter, resolved.get(parameter.name, guess(parameter))))
    return Origin(name, tuple(found), _differentiated(function) if backward else function.apply)


def _parameter(name: str, parameter: inspect.Parameter, hint: Any) -> DraftArgument:
    """Return what a parameter of a Function's forward takes, by its type and its default."""
    default = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
    stripped = hints.strip(hint)
    kind = stripped.base
    if kind is Tensor and not isinstance(default, Tensor | type(None) | type):
        raise DeclarationError(
            f"{name}: argument {parameter.name!r} is {default!r} by default, which no declaration "
            "can carry. Let apply take numbers, texts and tensors, and make the rest of them."
        )
    many = get_args(kind) if get_origin(kind) in (tuple, list, Sequence) else ()
    one = type(get_args(kind)[0]) if get_origin(kind) is Literal else (many or (kind,))[0]
    word = one.__name__ if one in (int, float, bool, str) else "tensor"
    several = f"{word}s" if many else word
    optional = stripped.optional or default is None
    return DraftArgument(parameter.name, several, optional, default)  # type: ignore[arg-type]


def _differentiated(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """Return a Function's ``apply`` that runs its backward, too."""

    def apply(*args: Any) -> Any:
        floating = [
            isinstance(arg, Tensor) and (arg.is_floating_point() or arg.is_complex())
            for arg in args
        ]
        with torch.enable_grad():
            given = [
                arg.detach().requires_grad_() if leaf else arg
                for arg, leaf in zip(args, floating, strict=True)
            ]
            returned = function.apply(*given)
            results = returned if isinstance(returned, tuple) else (returned,)
            ends = [one for one in results if isinstance(one, Tensor) and one.requires_grad]
            leaves = [arg for arg, leaf in zip(given, floating, strict=True) if leaf]
            if ends:
                grads = [torch.ones_like(one) for one in ends]
                torch.autograd.grad(ends, leaves, grads, allow_unused=True)
        return returned

    return apply


def refuse_written(subject: Origin, values: Mapping[str, Any]) -> None:
    """Refuse a Function that writes into an argument of a call.

    Raises:
        DeclarationError: naming the argument.
    """
    made = subject.made(values)
    tensors = {name: value for name, value in made.items() if isinstance(value, Tensor)}
    before = {name: version_of(tensor) for name, tensor in tensors.items()}
    subject.call(made, HOST)
    for name, tensor in tensors.items():
        if version_of(tensor) != before[name]:
            raise DeclarationError(
                f"{subject.name}: its forward writes into its argument {name!r} (mark_dirty), and "
                "an adopted Function may not. Write it as an operator with "
                f'mutates_args=("{name}",) (opsmith.op).'
            )


def with_example(subject: Origin, values: Mapping[str, Any]) -> Origin:
    """Return the subject with the kinds of arguments that the values of an example show."""

    def shown(one: DraftArgument) -> DraftArgument:
        value = values.get(one.name)
        for type_, kind in ((bool, "bool"), (int, "int"), (float, "float"), (str, "str")):
            if one.kind == "tensor" and isinstance(value, type_):
                return replace(one, kind=kind)  # type: ignore[arg-type]
        return one

    return replace(subject, arguments=tuple(shown(one) for one in subject.arguments))
