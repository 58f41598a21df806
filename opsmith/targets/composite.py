"""PyTorch's operators that are made of others, which are looked for once.

To take a program apart, PyTorch wants to know all of them. For every namespace that has operators
it asks the dispatcher for those of all namespaces, and has Python know each: where a process has
operators in many namespaces, that takes longer than to export a small model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opsmith.targets.replacement import Replacement


def _utils() -> Any:
    from torch._export import utils

    return utils


def _once(function: Callable[[], None]) -> Callable[[], None]:
    done = False

    def run() -> None:
        nonlocal done
        if not done:
            function()
            done = True

    return run


#: A block in which PyTorch looks once for what was registered as made of other operators.
found_once = Replacement(_utils, "_materialize_cpp_cia_ops", _once)
