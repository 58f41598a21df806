"""Fake kernels for adopted operators whose own library provides none."""

from __future__ import annotations

import torch
from torch.library import Library

from opsmith.compat.torch_dispatch import META, has_kernel
from opsmith.compat.torch_library import destroy, has_fake_kernel
from opsmith.compat.torch_ops import OpOverload, is_builtin
from opsmith.operators.dispatch.fake import fake_kernel
from opsmith.signature import Signature

_TRACED = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
# A registration ends with its Library; keep it, and replace it when the operator is adopted again.
_GIVEN: dict[str, Library] = {}


def give_fake(signature: Signature, overload: OpOverload) -> None:
    """Derive a fake kernel from the declaration, unless the operator can be traced already.

    Do nothing if the declaration gives no shapes.
    """
    name = overload.name()
    given = _GIVEN.pop(name, None)
    if given is not None:
        destroy(given)
    if not signature.shaped or _has_fake(overload):
        return
    library = Library(overload.namespace, "FRAGMENT")
    torch.library.register_fake(name, fake_kernel(signature), lib=library)
    _GIVEN[name] = library


def _has_fake(overload: OpOverload) -> bool:
    name = overload.name()
    if is_builtin(overload) or META in overload.py_kernels:
        return True
    # The other keys hold kernels for every device, which call other operators.
    if any(has_kernel(name, key) for key in _TRACED):
        return True
    return has_fake_kernel(name)
