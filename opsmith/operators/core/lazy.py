"""Create or import functions on their first call, so that declaring costs little."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from opsmith.compat import torch_modules
from opsmith.errors import OpsmithError
from opsmith.untyped import Value


def late(make: Callable[[], Callable[..., object]]) -> Callable[..., Value]:
    """Return a function that calls the function which `make` returns, created on the first call."""
    made: Callable[..., object] | None = None

    def call(*args: object, **kwargs: object) -> object:
        nonlocal made
        if made is None:
            made = make()
        return made(*args, **kwargs)

    return call


def refusal() -> Callable[..., OpsmithError | None]:
    """Return the function `argument_errors.refusal`, out of Dynamo's reach.

    After a call that Dynamo could not trace, it compiles the functions that the call enters. Its
    guards on their arguments crash the process at a nested tensor, and it fails to read an array of
    several numbers as one. So `Operator.__call__` passes a call's arguments to no other function.
    """
    from opsmith.operators.core.argument_errors import refusal as found

    return torch.compiler.disable(found) if torch_modules.COMPILER in sys.modules else found
