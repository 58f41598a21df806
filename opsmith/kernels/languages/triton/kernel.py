"""A Triton kernel, and the arguments of an operator's call that its parameters are given."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from opsmith.errors import DeclarationError
from opsmith.kernels.languages.triton.missing import require_triton
from opsmith.signature.model import Signature
from opsmith.signature.parameters import ScalarType
from opsmith.signature.sizes import expressions
from opsmith.untyped import Arguments, Untyped, Value

Grid = Callable[..., Value] | tuple[int | str, ...]
Meta = Mapping[str, Value] | Callable[..., Mapping[str, Value]]

#: The options of a launch, which Triton accepts besides a kernel's own parameters.
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
#: The suffixes that tutorials give the pointer to a tensor.
_POINTER_SUFFIXES = ("", "_ptr")
_META = "meta"


@dataclass(frozen=True)
class Taken:
    """A parameter of a Triton kernel.

    Attributes:
        kind: the source of its value: a ``"tensor"``, a ``"number"`` (a dimension or scalar
            argument), a value that ``"args"`` computes, a constant of ``"meta"``, or its own
            ``"default"``.
        of: the name of the tensor or number in the declaration.
        constexpr: whether the kernel is compiled for its value.
    """

    name: str
    kind: Literal["tensor", "number", "args", "meta", "default"]
    of: str
    constexpr: bool


@dataclass(frozen=True)
class TritonKernel:
    """A ``@triton.jit`` function as an operator's kernel.

    Functions for `grid`, `meta` and `args` receive dimensions, arguments and results by parameter
    name. Functions other than `meta` can also receive the constants of `meta`: each by its name, or
    all of them as ``meta``.

    Attributes:
        given: the function, or ``"module:name"``; a module that begins with a dot is relative to
            `package`.
        grid: the number of programs in up to three dimensions: ints and expressions, or a function.
        meta: the values of constexpr parameters, and Triton's options; or a function of dimensions.
        args: the values of other parameters, each an int, a float, an expression, or a function.
        strided: whether tensors may have any strides: all, none, or the named parameters.
        package: the package of the module that declares the operator.

    Raises:
        DeclarationError: a function has a parameter that is not a value of the call, or a parameter
            of the kernel is not in the declaration, or the kernel has no pointer to a result.
    """

    signature: Signature
    device: str
    given: Value
    grid: Grid
    meta: Meta = field(default_factory=dict)
    args: Arguments = field(default_factory=dict)
    strided: bool | tuple[str, ...] = False
    package: str | None = None

    def __post_init__(self) -> None:
        if not self.signature.shaped or self.signature.data_dependent:
            raise DeclarationError(
                f"{self.what}: the results of a Triton kernel are allocated before it runs, so "
                "their shapes must follow from the arguments. Write a function that launches it, "
                "and register that with triton=True"
            )
        for what, function in self._functions():
            self._names(what, function)
        if not isinstance(self.given, str):
            _ = self.taken

    @property
    def what(self) -> str:
        """The operator and the device, for messages."""
        return f"{self.signature.qualname} ({self.device})"

    # --- the function ------------------------------------------------------------------------

    @cached_property
    def function(self) -> Untyped:
        """The ``@triton.jit`` function.

        Raises:
            MissingDependencyError: Triton is not installed.
            DeclarationError: there is no such function, or it is not a ``@triton.jit`` function.
        """
        if not isinstance(self.given, str):
            return self._plain(self.given)
        require_triton(self.what)
        module, _, name = self.given.partition(":")
        try:
            found = getattr(importlib.import_module(module, self.package), name)
        except (ImportError, AttributeError, TypeError) as error:
            raise DeclarationError(
                f"{self.what}: triton={self.given!r} names no kernel: {error}. "
                'Expected "module:name", or ".module:name" for a module beside this one.'
            ) from error
        return self._plain(found)

    def _plain(self, found: object) -> object:
        kind = type(found).__name__
        if kind in ("Autotuner", "Heuristics"):
            raise DeclarationError(
                f"{self.what}: the kernel is decorated with triton."
                f"{'autotune' if kind == 'Autotuner' else 'heuristics'}, and opsmith decides by "
                "the declaration's dimensions: give the function below it, and meta= as a mapping "
                "or a function of dimensions. Or launch it in a function that is registered with "
                "triton=True."
            )
        if not callable(getattr(found, "fn", None)) or not hasattr(found, "arg_names"):
            raise DeclarationError(
                f"{self.what}: triton={found!r} is not a kernel that @triton.jit made. A function "
                "that launches kernels is registered with triton=True."
            )
        return found

    @property
    def where(self) -> str:
        """The file and line of the kernel, for messages."""
        if isinstance(self.given, str):
            return self.given
        code = self.function.fn.__code__
        return f"{code.co_filename}:{code.co_firstlineno}"

    # --- its parameters ----------------------------------------------------------------------

    @cached_property
    def taken(self) -> tuple[Taken, ...]:
        """The kernel's parameters.

        Raises:
            DeclarationError: see the class.
            MissingDependencyError: Triton is not installed.
        """
        parameters = inspect.signature(self.function.fn).parameters.values()
        found = tuple(self._take(parameter) for parameter in parameters)
        for name in self._written:
            if not any(taken.kind == "tensor" and taken.of == name for taken in found):
                raise DeclarationError(
                    f"{self.what}: the Triton kernel {self._name} has no pointer parameter "
                    f"{name!r}, so nothing writes the result; it has "
                    f"{', '.join(taken.name for taken in found)}"
                )
        for name in self.args:
            if name not in self.function.arg_names:
                raise DeclarationError(
                    f"{self.what}: args names {name!r}, which the Triton kernel {self._name} does "
                    f"not take; it takes {', '.join(self.function.arg_names)}"
                )
        return found

    @property
    def _name(self) -> str:
        return str(self.function.fn.__name__)

    @property
    def _written(self) -> list[str]:
        written = [parameter.name for parameter in self.signature.mutated]
        return [*written, *(result.name for result in self.signature.results)]

    def _take(self, parameter: inspect.Parameter) -> Taken:
        name, constexpr = parameter.name, _is_constexpr(parameter.annotation)
        if name in self.args:
            return Taken(name, "args", name, constexpr)
        if constexpr and isinstance(self.meta, Mapping) and name in self.meta:
            return Taken(name, "meta", name, True)
        for suffix in _POINTER_SUFFIXES:
            of = name.removesuffix(suffix)
            if suffix in name and of in self._tensors:
                return Taken(name, "tensor", of, False)
        if name in self._numbers:
            return Taken(name, "number", name, constexpr)
        if constexpr and callable(self.meta):
            return Taken(name, "meta", name, True)
        if parameter.default is not inspect.Parameter.empty:
            return Taken(name, "default", name, constexpr)
        way = (
            f'meta={{"{name}": …}}'
            if constexpr
            else f'args={{"{name}": …}}, an int, an expression, or a function as '
            f"lambda {next(iter(self._tensors), 'x')}: …numel()"
        )
        raise DeclarationError(
            f"{self.what}: the Triton kernel {self._name} takes {name!r}, and the "
            f"declaration has no tensor, number or dimension of that name; there are "
            f"{', '.join([*self._tensors, *self._numbers])}. Say what to pass: {way}"
        )

    @cached_property
    def _tensors(self) -> list[str]:
        inputs = [p.name for p in self.signature.parameters if p.is_tensor]
        return [*inputs, *(result.name for result in self.signature.results)]

    @cached_property
    def _numbers(self) -> list[str]:
        scalars = [p.name for p in self.signature.parameters if isinstance(p.type, ScalarType)]
        dims = [dim for dim in self.signature.dims if dim not in self.signature.variadic_dims]
        return [*scalars, *dims]

    # --- functions of a call -----------------------------------------------------------------

    def _functions(self) -> list[tuple[str, Callable[..., object]]]:
        every = [("grid", self.grid), ("meta", self.meta)]
        every += [(f"args[{name!r}]", value) for name, value in self.args.items()]
        return [(what, value) for what, value in every if callable(value)]

    def _names(self, what: str, function: Callable[..., object]) -> tuple[str, ...]:
        """Return the names of a function's parameters; refuse names that no call has."""
        names = tuple(inspect.signature(function).parameters)
        known = [
            *self.signature.dims,
            *(parameter.name for parameter in self.signature.parameters),
            *(result.name for result in self.signature.results),
        ]
        if what == "meta":
            known = [*self.signature.dims]
        elif isinstance(self.meta, Mapping):
            known += [_META, *self.meta]
        for name in names:
            # The constants that a function `meta` returns are known only in a call.
            if name not in known and (what == "meta" or isinstance(self.meta, Mapping)):
                raise DeclarationError(
                    f"{self.what}: {what} takes {name!r}, which is neither a dimension nor an "
                    f"argument; there are {', '.join(dict.fromkeys(known))}"
                    if what != "meta"
                    else f"{self.what}: meta takes {name!r}, which is not a dimension: constants "
                    f"depend on registered sizes only; there are {', '.join(known) or 'none'}"
                )
        return names

    @property
    def deciding(self) -> tuple[str, ...]:
        """The dimensions that the kernel is compiled for."""
        found = list(self._names("meta", self.meta)) if callable(self.meta) else []
        found += [t.of for t in self.taken if t.constexpr and t.kind == "number"]
        return tuple(dict.fromkeys(found))

    def constants(self, values: Arguments) -> dict[str, object]:
        """Return the constants of `meta` for a call's dimensions."""
        if not callable(self.meta):
            return dict(self.meta)
        names = self._names("meta", self.meta)
        return dict(self.meta(**{name: values[name] for name in names}))

    def programs(
        self, values: Arguments, constants: Arguments, call: Callable[..., object] | None = None
    ) -> tuple[object, ...]:
        """Return the number of programs of a call in three dimensions.

        Args:
            values: the dimensions, arguments and results of the call by name, or placeholders for
                them.
            constants: the result of `constants`.
            call: calls a function, given the function, the values, the names of its parameters and
                its description; by default an ordinary call.
        """
        given = self._evaluate("grid", self.grid, values, constants, call or _plainly)
        many = given if isinstance(given, tuple | list) else (given,)
        if not 1 <= len(many) <= 3:
            raise DeclarationError(
                f"{self.what}: the grid has {len(many)} numbers, expected one to three"
            )
        numbers = [self._evaluate("grid", one, values, constants, _plainly) for one in many]
        return (*numbers, *[1] * (3 - len(numbers)))

    def computed(
        self,
        name: str,
        values: Arguments,
        constants: Arguments,
        call: Callable[..., object] | None = None,
    ) -> object:
        """Return the value of ``args[name]`` for a call; the arguments are those of `programs`."""
        what = f"args[{name!r}]"
        return self._evaluate(what, self.args[name], values, constants, call or _plainly)

    def _evaluate(
        self,
        what: str,
        value: object,
        values: Arguments,
        constants: Arguments,
        call: Callable[..., object],
    ) -> object:
        everything = {**values, **constants, _META: constants}
        if callable(value):
            return call(value, everything, self._names(what, value), f"{self.what}: {what}")
        if isinstance(value, str):
            return self._expression(what, value, everything)
        return value

    def _expression(self, what: str, text: str, values: Arguments) -> object:
        scalars = [
            p.name for p in self.signature.parameters if not (p.is_tensor or p.is_tensor_list)
        ]
        try:
            return expressions.evaluate(expressions.parse(text, scalars), values, values)
        except expressions.ExpressionError as error:
            raise DeclarationError(f"{self.what}: {what}: {error}") from None
        except KeyError as error:
            raise DeclarationError(
                f"{self.what}: {what} is {text!r}, and there is no {error.args[0]!r}"
            ) from None

    def arguments(self, values: Arguments, constants: Arguments) -> dict[str, object]:
        """Return the arguments of a launch by name, for the kernel and for Triton."""
        found = {name: constants[name] for name in OPTIONS if name in constants}
        for taken in self.taken:
            if taken.kind == "args":
                found[taken.name] = self.computed(taken.name, values, constants)
            elif taken.kind == "meta":
                if taken.name not in constants:
                    raise DeclarationError(
                        f"{self.what}: meta gives no {taken.name!r}, which the Triton kernel "
                        f"{self._name} takes; it gives {', '.join(constants) or 'nothing'}"
                    )
                found[taken.name] = constants[taken.name]
            elif taken.kind != "default":
                found[taken.name] = values[taken.of]
        return found


def _plainly(
    function: Callable[..., object], values: Arguments, names: tuple[str, ...], what: str
) -> object:
    for name in names:
        if name not in values:
            raise DeclarationError(f"{what} takes {name!r}, which meta does not give")
    return function(**{name: values[name] for name in names})


def _is_constexpr(annotation: object) -> bool:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return "constexpr" in text  # like Triton, accept an annotation in quotes
