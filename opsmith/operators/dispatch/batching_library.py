"""Register batching rules so that a tensor kept from an ended vmap is refused by name."""

from __future__ import annotations

import functools
from typing import Any

from torch.library import Library

from opsmith.compat.torch_autograd import in_transform
from opsmith.errors import ArgumentError
from opsmith.operators.core.arguments import every_tensor_in
from opsmith.operators.core.unusable import unusable
from opsmith.signature import Signature


class BatchingLibrary(Library):
    """A library whose batching rule refuses, by name, a tensor that was kept from an ended vmap.

    The rule that ``torch.library.register_vmap`` makes asserts that a transform runs.
    """

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature.namespace, "FRAGMENT")
        self._signature = signature

    def impl(self, op_name: Any, fn: Any, *args: Any, **kwargs: Any) -> Any:
        """Register the kernel that calls the rule, with a check before it."""
        signature = self._signature

        @functools.wraps(fn)
        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            if not in_transform():
                from opsmith.signature.calls import named  # few calls come here

                for name, tensor in every_tensor_in(named(signature)(args, kwargs)):
                    problem = unusable(tensor)
                    if problem is not None:
                        raise ArgumentError(f"{signature.qualname}: argument {name!r} {problem}")
            return fn(keyset, *args, **kwargs)

        return super().impl(op_name, kernel, *args, **kwargs)
