"""The constants, dtypes and assumptions that a kernel is compiled for ahead of time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opsmith.errors import DeclarationError, MissingDependencyError
from opsmith.kernels.languages.triton.kernel import OPTIONS, Taken, TritonKernel
from opsmith.kernels.languages.triton.sizes import Size, traced, unknown_sizes
from opsmith.signature.dtypes import FLOATING, INTEGRAL
from opsmith.signature.parameters import ScalarType, TensorType
from opsmith.untyped import Arguments, Value

#: Triton's names of the dtypes that it supports.
TRITON_DTYPES = {
    "bool": "i1",
    **{name: name.replace("uint", "u").replace("int", "i") for name in INTEGRAL},
    **{name: name.replace("bfloat", "bf").replace("float", "fp") for name in FLOATING},
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}
_DIVISOR = 16


@dataclass(frozen=True)
class Passed:
    """A value that a launch passes to the kernel, rather than one that is compiled in.

    Attributes:
        name: the name of the kernel's parameter.
        kind: ``"pointer"``, ``"integer"``, ``"real"`` or ``"boolean"``.
        value: the tensor's name, or the number: a `Size`, an int, a float, a scalar's name.
    """

    name: str
    kind: str
    value: Value


@dataclass(frozen=True)
class Configuration:
    """A choice of sizes, and everything that follows from it.

    Attributes:
        sizes: the dimensions that the kernel is compiled for, and their sizes.
        constants: the kernel's constexpr parameters.
        options: Triton's options, such as ``num_warps``.
        grid: the number of programs in each dimension, an int or a `Size`.
        hints: sets of parameters that are multiples of 16 at a served size.
    """

    sizes: Mapping[str, int]
    constants: Arguments
    options: Arguments
    grid: tuple[Value, ...]
    given: tuple[Passed, ...]
    hints: tuple[frozenset[str], ...]

    def assumptions(self) -> list[tuple[frozenset[str], bool]]:
        """Return the assumptions to compile for, the strongest first; every call meets the last.

        Each is the set of parameters that are multiples of 16, and whether integers have 32 bits.
        """
        pointers = frozenset(one.name for one in self.given if one.kind == "pointer")
        found = [(pointers | hint, True) for hint in sorted(self.hints, key=len, reverse=True)]
        found += [(pointers, True), (frozenset(), False)]
        return list(dict.fromkeys(found))


def configurations(
    kernel: TritonKernel, served: Sequence[Mapping[str, int]]
) -> list[Configuration]:
    """Return the configurations that a kernel is compiled for.

    Args:
        served: the sizes given to ``register_sizes``.

    Raises:
        DeclarationError: the kernel cannot be compiled ahead of time; the message says what to
            change.
        MissingDependencyError: the kernel is compiled for a dimension, and no served size names it.
    """
    for parameter in kernel.signature.parameters:
        if parameter.optional and any(t.of == parameter.name for t in kernel.taken):
            raise DeclarationError(
                f"{kernel.what}: argument {parameter.name!r} is optional, and ahead-of-time Triton "
                "kernels do not support optional arguments"
            )
    deciding = kernel.deciding
    for name in deciding:
        if name not in kernel.signature.dims:
            raise DeclarationError(
                f"{kernel.what}: ahead of time, the Triton kernel cannot be compiled for the value "
                f"of the argument {name!r}: give it in meta=, or do not make it a constexpr"
            )
    chosen = [{name: one[name] for name in deciding} for one in served if set(deciding) <= set(one)]
    if deciding and not chosen:
        example = ", ".join(f'"{name}": 64' for name in deciding)
        raise MissingDependencyError(
            f"{kernel.what}: the Triton kernel is compiled for the sizes of "
            f"{', '.join(deciding)}, and register_sizes names none of them: "
            f"{kernel.signature.name}.register_sizes({{{example}}})"
        )
    unique = list({tuple(one.items()): one for one in chosen or [{}]}.values())
    return [_configuration(kernel, sizes, served) for sizes in unique]


def _configuration(
    kernel: TritonKernel, sizes: Mapping[str, int], served: Sequence[Mapping[str, int]]
) -> Configuration:
    values = {**unknown_sizes(kernel.signature), **sizes}
    constants = kernel.constants(values)
    compiled_in, given = {}, []
    for taken in kernel.taken:
        if taken.constexpr:
            if taken.kind != "default":
                compiled_in[taken.name] = _constant(kernel, taken, values, constants)
        elif taken.kind != "default":
            given.append(_given(kernel, taken, values, constants))
    fitting = [one for one in served if all(one.get(n, s) == s for n, s in sizes.items())]
    return Configuration(
        sizes,
        compiled_in,
        {name: constants[name] for name in OPTIONS if name in constants},
        kernel.programs(values, constants, traced),
        tuple(given),
        tuple({hint for one in fitting if (hint := _hint(kernel, given, {**one, **sizes}))}),
    )


def _constant(
    kernel: TritonKernel, taken: Taken, values: Arguments, constants: Arguments
) -> object:
    if taken.kind == "meta":
        if taken.name not in constants:
            raise DeclarationError(f"{kernel.what}: meta gives no {taken.name!r}")
        return constants[taken.name]
    value = values[taken.of] if taken.kind == "number" else None
    if taken.kind == "args":
        value = kernel.computed(taken.name, values, constants, traced)
    if isinstance(value, Size):
        raise DeclarationError(
            f"{kernel.what}: the constexpr {taken.name!r} depends on a size that is not decided: "
            "let meta= take that dimension"
        )
    return value


def _given(kernel: TritonKernel, taken: Taken, values: Arguments, constants: Arguments) -> Passed:
    if taken.kind == "tensor":
        return Passed(taken.name, "pointer", taken.of)
    if taken.kind == "args":
        value = kernel.computed(taken.name, values, constants, traced)
        if isinstance(value, bool):
            return Passed(taken.name, "boolean", value)
        return Passed(taken.name, "real" if isinstance(value, float) else "integer", value)
    parameter = kernel.signature.by_name.get(taken.of)
    kind = parameter.type.kind if parameter and isinstance(parameter.type, ScalarType) else "int"
    if kind == "str":
        raise DeclarationError(
            f"{kernel.what}: argument {taken.of!r} is a string, and ahead-of-time Triton kernels "
            "do not support strings"
        )
    if kind == "int":
        return Passed(taken.name, "integer", values[taken.of])
    return Passed(taken.name, {"float": "real", "bool": "boolean"}[kind], taken.of)


def _hint(kernel: TritonKernel, given: Sequence[Value], sizes: Mapping[str, int]) -> frozenset[str]:
    """Return the integers that are multiples of 16 at the given sizes."""
    from opsmith.signature.sizes import expressions

    found = set()
    for one in given:
        if one.kind != "integer":
            continue
        value = one.value
        if isinstance(value, Size):
            try:
                value = expressions.evaluate(value.expression, sizes, {})
            except (KeyError, ZeroDivisionError):
                continue
        if value % _DIVISOR == 0:
            found.add(one.name)
    return frozenset(found)


def dtypes_of(kernel: TritonKernel) -> tuple[str | None, ...]:
    """Return the generic dtypes that Triton supports; ``(None,)`` if every dtype is fixed."""
    generic = kernel.signature.generic
    if generic is None:
        return (None,)
    found = {name: kernel.signature.dtypes_in(name) for name in generic.names}
    return tuple(name for name, dtypes in found.items() if dtypes <= set(TRITON_DTYPES))


def element_types(kernel: TritonKernel, dtype: str | None) -> Iterator[tuple[str, str]]:
    """Yield each tensor parameter of the kernel with Triton's name of its dtype.

    Raises:
        DeclarationError: Triton does not support the dtype.
    """
    results = {result.name: result.tensor_type for result in kernel.signature.results}
    for taken in kernel.taken:
        if taken.kind != "tensor":
            continue
        if taken.of in results:
            type_: object = results[taken.of]
        else:
            type_ = kernel.signature.by_name[taken.of].type
        assert isinstance(type_, TensorType)
        if type_.shape is None:
            raise DeclarationError(
                f"{kernel.what}: {taken.of!r} is a plain Tensor, whose dtype is unknown ahead of "
                'time; declare it, as in Float[Tensor, "*n"]'
            )
        name = kernel.signature.dtype_in(type_, dtype)
        if name not in TRITON_DTYPES:
            raise DeclarationError(
                f"{kernel.what}: {taken.of!r} has dtype {name}, which Triton does not support"
            )
        yield taken.name, TRITON_DTYPES[name]
