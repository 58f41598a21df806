"""Refuse sizes and cases that checks cannot use, where they are registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

from opsmith.errors import DeclarationError
from opsmith.operators.core.source_location import where_written
from opsmith.signature import Signature


def checked_sizes(signature: Signature, sizes: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Return copies of the mappings given to `register_sizes`.

    Raises:
        DeclarationError: no argument has a dimension of that name, or a size is not a non-negative
            int.
    """
    label = f"{signature.qualname}: register_sizes"
    known = signature.dims
    for one in sizes:
        if not isinstance(one, Mapping):
            raise DeclarationError(
                f'{label}: expected sizes by dimension, as in {{"N": 4096}}, got {one!r}'
            )
        for name, size in one.items():
            if name not in known:
                raise DeclarationError(
                    f"{label} names the dimension {name!r}; the arguments have "
                    f"{', '.join(known) or 'no named dimension'}"
                )
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise DeclarationError(
                    f"{label} gives {name} the size {size!r}, expected an int that is not negative"
                )
    return [dict(one) for one in sizes]


def require_case_arguments(name: str, function: Callable[..., object]) -> None:
    """Refuse a function that cannot be called with a dtype and a seed.

    Args:
        name: the operator's name.
        function: as given to ``register_cases``.

    Raises:
        DeclarationError: it takes more arguments, or fewer.
    """
    try:
        inspect.signature(function).bind(None, None)
    except ValueError:
        return  # a function of C++ does not say what it takes
    except TypeError as error:
        raise DeclarationError(
            f"{name}: register_cases: {where_written(function)}: the function is called with a "
            f"dtype and a seed, but it does not take these: {error}. Write "
            f"{getattr(function, '__name__', 'cases')}(dtype, seed)."
        ) from None
