"""The dtype variables of a signature: sets of dtypes, of which each call chooses one."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opsmith.errors import DeclarationError
from opsmith.signature.dtypes import ALL_DTYPES, COMMON, COMPLEX, FLOATING, DTypes
from opsmith.untyped import Hint

#: The complex dtype of each precision.
COMPLEX_OF = {"float32": "complex64", "float64": "complex128"}
_REAL_OF = {complex_: real for real, complex_ in COMPLEX_OF.items()}
#: Stands for a variable that no argument of a call bound, in the text of the call's dtypes.
UNBOUND = "any"
_SEPARATOR = "+"


@dataclass(frozen=True)
class DtypeVariable:
    """A dtype that each call chooses: all tensors of its classes have that dtype.

    Attributes:
        names: the dtypes to choose from, in the order of `ALL_DTYPES`.
        label: the name of the class that covers the fewest dtypes (``Float``, ``Ids``).
        classes: the classes of tensors that the variable decides.
    """

    names: tuple[str, ...]
    label: str
    classes: tuple[DTypes, ...]

    def is_complex(self, class_: DTypes) -> bool:
        """Return whether tensors of a class are complex where the variable is real."""
        return set(class_.names) <= set(COMPLEX) and not set(self.names) <= set(COMPLEX)

    def dtype_of(self, class_: DTypes, chosen: str) -> str:
        """Return the dtype of tensors of a class where the variable is `chosen`."""
        return COMPLEX_OF[chosen] if self.is_complex(class_) else chosen

    def chosen_by(self, class_: DTypes, dtype: str) -> str:
        """Return the dtype of the variable where a tensor of a class has `dtype`."""
        return _REAL_OF.get(dtype, "") if self.is_complex(class_) else dtype

    def expected(self, class_: DTypes) -> str:
        """Return the dtypes of a class as messages list them, with the author's name of them."""
        listed = ", ".join(self.dtype_of(class_, name) for name in self.names)
        return f"{listed} ({self.label})" if class_.own else listed

    @property
    def shared(self) -> str:
        """The rule that messages state where two tensors differ."""
        real = [one for one in self.classes if not self.is_complex(one)]
        if len(real) < len(self.classes):
            return f"every {self.label} and Complex tensor of a call has one precision"
        return f"every {self.label} tensor of a call has one dtype"


def DtypeVar(name: str, *dtypes: object) -> Hint:
    """Return a class of dtypes, one of which each call chooses: a dtype variable.

    It is subscripted as jaxtyping's classes are, and is the same as a subclass of
    ``jaxtyping.AbstractDtype``, which type checkers accept as an annotation.

    Args:
        name: the name of the variable in messages, which C++ headers have too.
        dtypes: jaxtyping's classes (``Int32``, ``Float``), PyTorch's dtypes, or their names.

    Raises:
        DeclarationError: the name is not an identifier, or fewer than two dtypes are covered.

    Example:
        >>> from torch import Tensor
        >>> from jaxtyping import Int32, Int64
        >>> Ids = DtypeVar("Ids", Int32, Int64)
        >>> Ids[Tensor, "N"].dtypes
        ('int32', 'int64')
    """
    from jaxtyping import AbstractDtype

    if not (isinstance(name, str) and name.isidentifier() and name.isascii()):
        raise DeclarationError(f"DtypeVar({name!r}): the name of a dtype variable is an identifier")
    found: list[str] = []
    for one in dtypes:
        text = str(one).removeprefix("torch.")
        names = getattr(one, "dtypes", [text] if text in ALL_DTYPES else None)
        if isinstance(one, type) and isinstance(names, list | tuple):
            # As elsewhere, names of several dtypes leave out those that PyTorch only stores.
            names = [item for item in names if len(names) == 1 or item in COMMON]
        wrong = [item for item in names if item not in ALL_DTYPES] if names else [one]
        if not isinstance(names, list | tuple) or wrong:
            raise DeclarationError(
                f"DtypeVar({name!r}): {wrong[0]!r} is no dtype that operators carry; write "
                f"jaxtyping's classes (Int32, Float) or names of {', '.join(ALL_DTYPES)}"
            )
        found += names
    if len(set(found)) < 2:
        raise DeclarationError(
            f"DtypeVar({name!r}): a dtype variable has at least two dtypes to choose from, as in "
            f"DtypeVar({name!r}, Int32, Int64); got {', '.join(found) or 'none'}"
        )
    return type(name, (AbstractDtype,), {"dtypes": list(dict.fromkeys(found))})


def variables_of(classes: Iterable[DTypes]) -> tuple[DtypeVariable, ...]:
    """Return the dtype variables of the tensors of a call, in order of first appearance.

    A class that the author wrote is a variable. Classes of jaxtyping that have a dtype in common
    share a variable, and ``Complex`` shares the variable of ``Float``: both have one precision. A
    variable without dtypes is a mistake in the declaration.

    Args:
        classes: the classes of all tensors, in order; fixed ones are left out.
    """
    groups: list[list[DTypes]] = []
    for class_ in dict.fromkeys(one for one in classes if one.generic):
        alike = [group for group in groups if _share(group, class_)]
        merged = [one for group in alike for one in group] + [class_]
        position = groups.index(alike[0]) if alike else len(groups)
        groups = [group for group in groups if group not in alike]
        groups.insert(position, merged)
    return _with_one_precision([_variable(group) for group in groups])


def _share(group: Sequence[DTypes], class_: DTypes) -> bool:
    if class_.own or group[0].own:
        return False
    return any(set(one.names) & set(class_.names) for one in group)


def _variable(group: Sequence[DTypes]) -> DtypeVariable:
    common = tuple(name for name in group[0].names if all(name in other for other in group))
    label = min(group, key=lambda class_: len(class_.names)).label
    return DtypeVariable(common, label, tuple(group))


def _with_one_precision(variables: Sequence[DtypeVariable]) -> tuple[DtypeVariable, ...]:
    """Return `variables` with those of ``Float`` and ``Complex`` as one, if both are there."""

    def of(dtypes: Sequence[str]) -> DtypeVariable | None:
        every = (v for v in variables if not v.classes[0].own and v.names)
        return next((v for v in every if set(v.names) <= set(dtypes)), None)

    floating, complex_ = of(FLOATING), of(COMPLEX)
    if floating is None or complex_ is None:
        return tuple(variables)
    names = tuple(n for n in floating.names if COMPLEX_OF.get(n) in complex_.names)
    both = DtypeVariable(names, floating.label, (*floating.classes, *complex_.classes))
    first = min(variables.index(floating), variables.index(complex_))
    rest = [one for one in variables if one not in (floating, complex_)]
    return (*rest[:first], both, *rest[first:])


def combinations(variables: Sequence[DtypeVariable]) -> tuple[str, ...]:
    """Return every choice of dtypes as a text: ``float32``, or ``float32+int64``."""
    every = itertools.product(*(variable.names for variable in variables))
    return tuple(map(_SEPARATOR.join, every))


def joined(chosen: Sequence[str | None]) -> str | None:
    """Return the dtypes of a call's variables as a text; `None` if no argument bound any."""
    if not any(chosen):
        return None
    return _SEPARATOR.join(one or UNBOUND for one in chosen)


def parts(dtypes: str | None) -> tuple[str, ...]:
    """Return the dtypes in a text that `joined` or `combinations` made."""
    return () if dtypes is None else tuple(dtypes.split(_SEPARATOR))


def fit(found: str | None, wanted: str | None) -> bool:
    """Return whether the dtypes `found` of a call are the `wanted` dtypes; `UNBOUND` fits any."""
    if found is None or wanted is None:
        return True
    pairs = zip(parts(found), parts(wanted), strict=True)
    return all(one in (other, UNBOUND) for one, other in pairs)
