"""The element types of declarations, by their PyTorch names, without importing PyTorch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

FLOATING = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
_COMMON_INTEGRAL = ("uint8", "int8", "int16", "int32", "int64")
COMMON = ("bool", *_COMMON_INTEGRAL, *FLOATING, *COMPLEX)
"""The dtypes of names such as ``Float`` and ``Num``: PyTorch computes in all of them."""
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
UNSIGNED = ("uint16", "uint32", "uint64")
INTEGRAL = (*_COMMON_INTEGRAL, *UNSIGNED)
ALL_DTYPES = (*COMMON, *FLOAT8, *UNSIGNED)


@dataclass(frozen=True)
class DTypes:
    """The dtypes that a tensor may have.

    Attributes:
        names: PyTorch's names of the dtypes, in the order of `ALL_DTYPES`.
        label: the declaration's name of them (``Float``, ``Int32``).
        own: whether the author wrote the class, rather than jaxtyping.
    """

    names: tuple[str, ...]
    label: str
    own: bool = False

    @property
    def generic(self) -> bool:
        """Return whether each call chooses the dtype, rather than the declaration."""
        return len(self.names) > 1

    def __contains__(self, name: object) -> bool:
        return name in self.names


ANY = DTypes(ALL_DTYPES, "Tensor")


def known_dtypes(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in `names` that opsmith supports, in the order of `ALL_DTYPES`."""
    wanted = set(names)
    return tuple(name for name in ALL_DTYPES if name in wanted)


def annotation(name: str) -> str:
    """Return jaxtyping's name of a dtype: ``UInt8``, ``BFloat16``, ``Float8e4m3fn``."""
    word = name.replace("_", "")
    capitals = 2 if word.startswith(("uint", "bfloat")) else 1
    return word[:capitals].upper() + word[capitals:]


def not_carried(label: str, names: Iterable[str]) -> str:
    """Say that a class of arrays has no dtype that opsmith supports, and what to do."""
    narrow = [name for name in names if name.startswith(("float", "int", "uint"))]
    # PyTorch has float8 with other exponents, and numbers of four bits and fewer.
    said = f": {', '.join(narrow)}. Declare UInt8, and pass x.view(torch.uint8)" if narrow else ""
    return f"{label} has no dtype that operators carry{said}; there are {', '.join(ALL_DTYPES)}"
