"""Check the sizes that an author registers for an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opsmith.errors import DeclarationError
from opsmith.signature import Signature


def checked_sizes(signature: Signature, sizes: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Return copies of the mappings given to `register_sizes`.

    Raises:
        DeclarationError: no argument has a dimension of that name, or a size is not a non-negative
            int.
    """
    label = f"{signature.qualname}: register_sizes"
    known = [name for name in signature.dims if name not in signature.variadic_dims]
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
