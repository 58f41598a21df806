"""In an installed package, in place of ``jaxtyping``: annotations that say what opsmith reads.

That one imports NumPy's types and compiles dataclasses, which would be a fifth of what importing an
installed package takes, and has to be installed. Where somebody asks whether a value fits an
annotation, jaxtyping answers.
"""

from __future__ import annotations

import types
from typing import Any, TypeVar, Union, get_args, get_origin

_UINTS = tuple(f"uint{bits}" for bits in (2, 4, 8, 16, 32, 64))
_INTS = tuple(f"int{bits}" for bits in (2, 4, 8, 16, 32, 64))
_FLOAT8 = {
    "Float8e4m3b11fnuz": "float8_e4m3b11fnuz",
    "Float8e4m3fn": "float8_e4m3fn",
    "Float8e4m3fnuz": "float8_e4m3fnuz",
    "Float8e5m2": "float8_e5m2",
    "Float8e5m2fnuz": "float8_e5m2fnuz",
}
_WIDE = ("bfloat16", "float16", "float32", "float64")
_FLOATS = ("float4_e2m1fn", *_FLOAT8.values(), *_WIDE)
_COMPLEX = ("complex64", "complex128")

DTYPES: dict[str, tuple[str, ...] | None] = {
    **{name.replace("uint", "UInt"): (name,) for name in _UINTS},
    **{name.capitalize(): (name,) for name in (*_INTS, *_WIDE[1:], *_COMPLEX)},
    **{name: (dtype,) for name, dtype in _FLOAT8.items()},
    "BFloat16": ("bfloat16",),
    "Bool": ("bool", "bool_"),
    "UInt": _UINTS,
    "Int": _INTS,
    "Integer": _UINTS + _INTS,
    "Float": _FLOATS,
    "Complex": _COMPLEX,
    "Inexact": _FLOATS + _COMPLEX,
    "Real": _FLOATS + _UINTS + _INTS,
    "Num": _UINTS + _INTS + _FLOATS + _COMPLEX,
    "Shaped": None,
    "Key": ("prng_key",),
}
"""What each name of jaxtyping's stands for, `None` for any."""
_SCALARS = (bool, int, float, complex)


class _Array(type):
    """The class of annotations."""

    dtype: _Dtype
    array_type: Any
    dim_str: str
    dtypes: tuple[Any, ...] | None

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _by_jaxtyping(cls))


class _Dtype(type):
    """The class of what annotations are made of."""

    dtypes: Any

    def __getitem__(cls, item: Any) -> Any:
        if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[1], str):
            raise ValueError(f'write the tensor and its shape, {cls.__name__}[Tensor, "N C"]')
        array_type, shape = _plain(item[0]), item[1].strip()
        union = get_origin(array_type) in (Union, types.UnionType)
        some = map(_plain, get_args(array_type)) if union else (array_type,)
        if found := [_array(cls, one, shape) for one in some if _may_be(cls, one, shape)]:
            return Union[tuple(found)]  # noqa: UP007  # of as many as there are
        raise ValueError(f'{cls.__name__}[{array_type}, "{shape}"] is nothing')


class AbstractDtype(metaclass=_Dtype):
    """What a package's own names of dtypes are derived from."""

    def __init_subclass__(cls) -> None:
        given = cls.dtypes
        if isinstance(given, str) or hasattr(given, "pattern"):
            given = (given,)
        cls.dtypes = None if given is None else tuple(given)


def __getattr__(name: str) -> Any:
    if name not in DTYPES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Classes take their time, and a package needs few of them.
    own = {"dtypes": DTYPES[name], "__module__": "jaxtyping", "__qualname__": name}
    found = globals()[name] = _Dtype(name, (AbstractDtype,), own)
    return found


def _plain(array_type: Any) -> Any:
    """A type, or a union of types, in place of a name that stands for it."""
    if isinstance(array_type, TypeVar):
        some = array_type.__constraints__ or (Any,)
        return _plain(array_type.__bound__ or Union[some])  # noqa: UP007
    if type(array_type).__name__ == "TypeAliasType":  # from Python 3.12 on
        return _plain(array_type.__value__)
    return array_type


def _may_be(dtype: _Dtype, array_type: Any, shape: str) -> bool:
    """Whether a type has such values, as ``float`` has where no dimension must be there."""
    if array_type not in _SCALARS:
        return True
    names = [array_type.__name__] if dtype.dtypes is None else dtype.dtypes
    return all(word.lstrip("#_?").startswith(("*", "...")) for word in shape.split()) and any(
        name.startswith(array_type.__name__) for name in names
    )


def _array(dtype: _Dtype, array_type: Any, shape: str) -> Any:
    if array_type in _SCALARS:
        return array_type
    array_type = get_origin(array_type) or array_type
    dtypes = dtype.dtypes
    if hasattr(array_type, "dim_str"):  # of an array, which gets more dimensions
        inner = array_type.dtypes if isinstance(array_type.dtypes, tuple) else None
        if dtypes is None or inner is None:
            dtypes = dtypes or inner
        elif not (dtypes := tuple(name for name in dtypes if name in inner)):
            raise ValueError(f"{dtype.__name__}[{array_type.__name__}, ...] has no dtype")
        shape, array_type = f"{shape} {array_type.dim_str}", array_type.array_type
    name = f"{dtype.__name__}[{getattr(array_type, '__name__', array_type)}, {shape!r}]"
    said = {"dtype": dtype, "array_type": array_type, "dim_str": shape, "dtypes": dtypes}
    return _Array(name, (), {**said, "__module__": "jaxtyping"})


def _by_jaxtyping(array: _Array) -> Any:
    """The same annotation of jaxtyping's, which values are compared with."""
    try:
        import jaxtyping
    except ImportError:
        raise ImportError(
            f"whether a value is a {array.__name__} is for jaxtyping to say, which is not "
            "installed: pip install jaxtyping. A package brings it along if its [project] "
            "dependencies name it."
        ) from None
    dtype: Any = jaxtyping.Shaped
    if array.dtypes is not None:
        own = {"dtypes": array.dtypes}
        dtype = type(array.dtype.__name__, (jaxtyping.AbstractDtype,), own)
    return dtype[array.array_type, array.dim_str]
