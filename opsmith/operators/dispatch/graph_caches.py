"""Invalidate PyTorch's caches of compiled graphs when a traced part of an operator changes.

The caches identify an operator in a graph by its name only. But the graph contains what was traced
through the operator: the fake kernel's sizes and strides, the backward. A process in which these
have changed would reuse the old graph, with wrong sizes or with gradients of an old formula.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType

from opsmith.system.version import version

#: The digest of each part of each operator; `_all` combines them all.
_TRACED: dict[str, dict[str, int]] = {}
_all = 0
# The text that was added to the tag last. The rest of the tag belongs to the user, or to a copy of
# opsmith in an installed package.
_told = ""


def begin(operator: str, *traced: Callable[..., object] | str) -> None:
    """Invalidate cached graphs compiled with another declaration of an operator.

    All parts recorded for an earlier operator of this name are forgotten.

    Args:
        operator: the operator's name.
        traced: the declaration's traced parts, as in `tell`.
    """
    global _all
    for before in _TRACED.pop(operator, {}).values():
        _all ^= before
    tell(operator, "declaration", *traced)


def tell(operator: str, role: str, *traced: Callable[..., object] | str | None) -> None:
    """Invalidate cached graphs compiled with another version of one part of an operator.

    Args:
        operator: the operator's name.
        role: the name of the part; a later call with the same role replaces it.
        traced: the functions or texts that tracing runs or follows. A function is identified by its
            code and by the file, or the notebook cell, that contains it.
    """
    global _all, _told
    import torch.compiler.config as config

    digest = hashlib.sha256(f"{version()} {operator} {role}".encode())
    for one in traced:
        digest.update("".join([one] if isinstance(one, str) else _written(one)).encode())
    parts, found = _TRACED.setdefault(operator, {}), int.from_bytes(digest.digest(), "big")
    # XOR makes the digest independent of the order in which operators are declared.
    _all ^= parts.get(role, 0) ^ found
    parts[role] = found
    before = config.cache_key_tag.replace(_told, "") if _told else config.cache_key_tag
    _told = f"|opsmith:{_all:x}"
    config.cache_key_tag = f"{before}{_told}"


def _written(function: Callable[..., object] | None) -> Iterator[str]:
    while isinstance(function, functools.partial):
        yield _plain([*function.args, *function.keywords.values()])
        function = function.func
    code = getattr(function, "__code__", None)
    if not isinstance(function, FunctionType) or code is None:
        yield getattr(function, "__qualname__", type(function).__qualname__)
        return
    yield from _of_code(code)
    filled = [cell for cell in function.__closure__ or () if cell != CellType()]
    yield _plain([cell.cell_contents for cell in filled])
    yield _file(code.co_filename)


def _file(name: str) -> str:
    """Return the digest of a file that contains a function; the text of a notebook cell."""
    try:
        found = os.stat(name)
        return _digest(name, found.st_mtime_ns, found.st_size)
    except OSError:
        return "".join(linecache.getlines(name))


@functools.lru_cache
def _digest(name: str, *state: int) -> str:
    # Cached: a package declares many operators in a file, each with several functions.
    del state
    with open(name, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _plain(values: list[object]) -> str:
    """Show the numbers and texts among some values; other values are identified by their code."""
    return repr([value for value in values if isinstance(value, int | float | str)])


def _of_code(code: CodeType) -> Iterator[str]:
    yield repr((code.co_code, code.co_names))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)
        elif isinstance(constant, frozenset):  # its order differs between processes
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)
