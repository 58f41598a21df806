"""What PyTorch's caches of compiled graphs do not know of an operator, and are told.

They know an operator in a graph by its name. What was traced through it (the fake kernel's sizes
and strides, the backward) is compiled into the graph, so a process in which these are others would
get the graph of before: results of wrong sizes, or the gradients of a formula that is no more.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import os
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

from opsmith.kernels.build.version import version

#: A digest of each part of each operator, and of them all.
_TRACED: dict[str, dict[str, int]] = {}
_all = 0
# What was told last. Whatever else is in the tag is the user's, or that of another opsmith, which
# an installed package may have brought along.
_told = ""


def begin(operator: str, *traced: Callable[..., Any] | str) -> None:
    """Have graphs compiled anew where an operator is declared otherwise than it was for them.

    Whatever was registered with an operator of this name before counts no more.

    Args:
        operator: its name.
        traced: see `tell`.
    """
    global _all
    for before in _TRACED.pop(operator, {}).values():
        _all ^= before
    tell(operator, "declaration", *traced)


def tell(operator: str, role: str, *traced: Callable[..., Any] | str | None) -> None:
    """Have graphs compiled anew where this is not what they were compiled with.

    Args:
        operator: its name.
        role: which part of it this is; a later one of that role takes its place.
        traced: what tracing runs or follows. Of a function counts its code and the file, or the
            cell of a notebook, that it is written in.
    """
    global _all, _told
    import torch.compiler.config as config

    digest = hashlib.sha256(f"{version()} {operator} {role}".encode())
    for one in traced:
        digest.update("".join([one] if isinstance(one, str) else _written(one)).encode())
    parts, found = _TRACED.setdefault(operator, {}), int.from_bytes(digest.digest(), "big")
    # The same in whichever order operators are declared.
    _all ^= parts.get(role, 0) ^ found
    parts[role] = found
    before = config.cache_key_tag.replace(_told, "") if _told else config.cache_key_tag
    _told = f"|opsmith:{_all:x}"
    config.cache_key_tag = f"{before}{_told}"


def _written(function: Callable[..., Any] | None) -> Iterator[str]:
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
    """The digest of a file that a function is written in; of a notebook's cell, its text."""
    try:
        found = os.stat(name)
        return _digest(name, found.st_mtime_ns, found.st_size)
    except OSError:
        return "".join(linecache.getlines(name))


@functools.lru_cache
def _digest(name: str, *state: int) -> str:
    # A package declares many operators in a file, each with several functions.
    del state
    with open(name, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _plain(values: list[Any]) -> str:
    """Those of some values that are what they show; of others it is the code that counts."""
    return repr([value for value in values if isinstance(value, int | float | str)])


def _of_code(code: CodeType) -> Iterator[str]:
    yield repr((code.co_code, code.co_names))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant)
        elif isinstance(constant, frozenset):  # in an order of its own in each process
            yield repr(sorted(map(repr, constant)))
        else:
            yield repr(constant)
