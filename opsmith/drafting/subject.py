"""What is drafted: an operator that exists, its parameters, and calls of it that may fail."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from opsmith.checks.isolation.forked_probe import Copy
from opsmith.compat.torch_library import has_fake_kernel
from opsmith.compat.torch_ops import OpOverload
from opsmith.compat.torch_tracing import fake_mode
from opsmith.errors import DeclarationError
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import map_tensors

Kind = Literal["tensor", "tensors", "int", "float", "bool", "str", "ints", "floats", "bools"]

#: What a schema's type is as an argument.
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
#: How long calls in a copy of this process may take together.
_SECONDS = 30


@dataclass(frozen=True)
class Spec:
    """A tensor without its elements."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Argument:
    """One parameter of the operator.

    Attributes:
        default: what it is where a call leaves it out; `inspect.Parameter.empty` if none may.
        length: how many elements a list has, where the schema says so.
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
        """Whether a call has to give it."""
        return self.default is inspect.Parameter.empty and not self.optional

    @property
    def is_tensors(self) -> bool:
        """Whether it is a tensor or a list of them."""
        return self.kind in ("tensor", "tensors")


@dataclass(frozen=True)
class Subject:
    """What a declaration is drafted of.

    Attributes:
        name: as the user named it.
        arguments: its parameters, without those that a declaration leaves out.
        function: what is called.
        left_out: parameters that keep their defaults, since no declaration can carry them.
    """

    name: str
    arguments: tuple[Argument, ...]
    function: Callable[..., Any]
    left_out: tuple[str, ...] = field(default=())

    def call(self, values: Mapping[str, Any], device: str, seed: int = 0) -> Any:
        """Call it with tensors that are made from their `Spec`.

        Integers are 0 and floating-point numbers are drawn from [0, 1), which is an index of the
        first element where somebody takes it for one.

        Args:
            values: each argument by name, tensors as a `Spec` or as they are.
            device: where tensors are made; ``"meta"`` runs the fake kernel.
            seed: what numbers are drawn; but for 0, some are 0.

        Raises:
            Exception: whatever the operator raises.
        """
        made = self.made(values, device, seed)
        positional = [made[one.name] for one in self.arguments if not one.keyword_only]
        keywords = {one.name: made[one.name] for one in self.arguments if one.keyword_only}
        with torch.no_grad():
            return self.function(*positional, **keywords)

    def made(self, values: Mapping[str, Any], device: str = HOST, seed: int = 0) -> dict[str, Any]:
        """The arguments of a call, with a tensor for each `Spec`; see `call`."""
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
        """A `Spec` of each result, or a list of them; `None` where the operator refuses."""
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
        """Whether `torch.library.register_fake` gave it, which may leave sizes open."""
        if not isinstance(self.function, OpOverload):
            return False
        return has_fake_kernel(self.function._schema.name)

    def traced(self, values: Mapping[str, Any]) -> list[Any] | None:
        """`results` by the fake kernel, where a size that only the data decides is -1.

        On ``"meta"`` a fake kernel that leaves a size open refuses.
        """
        with fake_mode(shape_env=ShapeEnv(), allow_non_fake_inputs=True):
            return self.results(values, HOST)

    def takes(self, calls: Sequence[Mapping[str, Any]], *, traced: bool = False) -> list[bool]:
        """Which calls the operator takes; with `traced`, and its fake kernel tells the same.

        They run in a copy of this process: an operator that does not compare its indices may end
        it.
        """
        answers: list[bool] = []
        while len(answers) < len(calls):
            said = self._copy.ask(self._says, [(one, traced) for one in calls[len(answers) :]])
            # A copy that said less than it was asked ended in the next call.
            answers += [*said, False]
        return answers[: len(calls)]

    def survives(self, calls: Sequence[Mapping[str, Any]]) -> bool:
        """Whether no call ends its process: one that reads where a number points may."""
        said = self._copy.ask(self._says, [(one, False) for one in calls])
        self._copy.end()  # they may have written there
        return len(said) == len(calls)

    @cached_property
    def _copy(self) -> Copy:
        return Copy(_SECONDS)

    def _says(self, call: tuple[Mapping[str, Any], bool]) -> bool:
        """Whether the operator takes a call; and its fake kernel the same, if that is asked."""
        values, traced = call
        given = self.results(values, HOST)
        return given is not None and (not traced or given == self.results(values, "meta"))


def _spec(tensor: Tensor) -> Spec:
    """Of a size that is a symbol: -1."""
    return Spec(tuple([size if type(size) is int else -1 for size in tensor.shape]), tensor.dtype)


def argument_of(argument: Any) -> Argument | None:
    """An argument of a schema; `None` if no declaration can carry it."""
    real = str(argument.real_type)
    optional = re.fullmatch(r"Optional\[(.*)\]", real)
    kind = KINDS.get(optional[1] if optional else real)
    if kind is None or (optional and kind == "tensors"):
        return None
    return Argument(
        argument.name,
        kind,
        bool(optional),
        argument.default_value if argument.has_default_value() else inspect.Parameter.empty,
        argument.kwarg_only,
        argument.alias_info is not None and argument.alias_info.is_write,
        argument.N if kind == "ints" else None,
    )


def of_overload(name: str, overload: OpOverload) -> Subject:
    """An operator that PyTorch knows.

    Raises:
        DeclarationError: it takes or returns what no declaration can say.
    """
    schema = overload._schema
    for result in schema.returns:
        if result.alias_info is not None and not result.alias_info.is_write:
            raise DeclarationError(
                f"{name}: returns a view of its argument, and the results of a declared operator "
                "are tensors of their own. Declare one that copies (opsmith.op)."
            )
        if result.alias_info is not None:
            raise DeclarationError(
                f"{name}: returns the argument that it writes into, and a declared operator that "
                "writes returns nothing else. Adopt its form without the underscore."
            )
        if str(result.type) not in ("Tensor", "List[Tensor]"):
            raise DeclarationError(f"{name}: returns {result.type}, expected tensors")
    found, left_out = [], []
    for argument in schema.arguments:
        known = argument_of(argument)
        if known is None:
            if not argument.has_default_value():
                word = str(argument.real_type).removeprefix("Optional[").removesuffix("]")
                raise DeclarationError(
                    f"{name}: argument {argument.name!r} is {word}, which no declaration can carry"
                )
            left_out.append(argument.name)
            continue
        if left_out:
            raise DeclarationError(
                f"{name}: argument {left_out[0]!r}, which no declaration can carry, stands before "
                f"{argument.name!r}, which is to be declared"
            )
        found.append(known)
    return Subject(name, tuple(found), overload, tuple(left_out))


def of_function(name: str, function: type[torch.autograd.Function]) -> Subject:
    """A ``torch.autograd.Function``; a parameter without annotation or default is a tensor.

    Raises:
        DeclarationError: a parameter is something else.
    """
    parameters = list(inspect.signature(function.forward).parameters.values())
    if function.setup_context is torch.autograd.Function.setup_context:
        parameters = parameters[1:]
    words = {"int": "int", "float": "float", "bool": "bool", "str": "str"}
    found = []
    for parameter in parameters:
        written = parameter.annotation
        word = written if isinstance(written, str) else getattr(written, "__name__", "")
        kind = words.get(word) or words.get(type(parameter.default).__name__) or "tensor"
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
            raise DeclarationError(
                f"{name}: its forward takes *{parameter.name}; name each argument"
            )
        found.append(Argument(parameter.name, kind, default=parameter.default))  # type: ignore[arg-type]
    return Subject(name, tuple(found), function.apply)


def with_example(subject: Subject, values: Mapping[str, Any]) -> Subject:
    """The same, with the kinds of arguments that an example shows."""

    def shown(one: Argument) -> Argument:
        value = values.get(one.name)
        for type_, kind in ((bool, "bool"), (int, "int"), (float, "float"), (str, "str")):
            if one.kind == "tensor" and isinstance(value, type_):
                return replace(one, kind=kind)  # type: ignore[arg-type]
        return one

    return replace(subject, arguments=tuple(shown(one) for one in subject.arguments))
