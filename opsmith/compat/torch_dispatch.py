"""PyTorch's dispatcher: its keys, what is registered with it, and where a call is in it.

Every name is in ``torch._C``, in each release from 2.10 on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

#: Private: ``torch._C._AutoDispatchBelowAutograd``. A block below the derivatives of PyTorch's own
#: operators. Without it, a kernel's steps are recorded beside its operator's derivative.
below_autograd: Any = torch._C._AutoDispatchBelowAutograd

#: Private: ``torch._C._after_autograd_keyset``. The keys that follow those of derivatives. Without
#: it, an operator with a derivative cannot call its own kernel.
after_autograd: Any = torch._C._after_autograd_keyset

#: Private: ``torch._C._AutoDispatchBelowADInplaceOrView``. A block below the count of versions.
#: Without it, that a tensor was written into is not noticed, and gradients are silently wrong.
below_versions: Any = torch._C._AutoDispatchBelowADInplaceOrView

#: Private: ``torch._C._after_ADInplaceOrView_keyset``. The keys that follow that of versions. See
#: `below_versions`.
after_versions: Any = torch._C._after_ADInplaceOrView_keyset

#: Private: ``torch._C._ExcludeDispatchKeyGuard``. A block that passes keys over. Without it, a cast
#: by autocast calls itself without an end.
passing_over: Any = torch._C._ExcludeDispatchKeyGuard

#: Private: ``torch._C._dispatch_tls_is_dispatch_key_excluded``. Without it, a kernel may see
#: tensors whose numbers are conjugated, or negated, when they are read.
is_passed_over: Any = torch._C._dispatch_tls_is_dispatch_key_excluded

#: Private: ``torch._C._SetExcludeDispatchKeyGuard``. A block that passes one key over, or no
#: longer. See `is_passed_over`.
set_passed_over: Any = torch._C._SetExcludeDispatchKeyGuard

#: Private: ``torch._C.DispatchKey.Conjugate``. See `is_passed_over`.
CONJUGATE: Any = torch._C.DispatchKey.Conjugate

#: Private: ``torch._C.DispatchKey.Negative``. See `is_passed_over`.
NEGATIVE: Any = torch._C.DispatchKey.Negative

#: Private: ``torch._C.DispatchKey.Meta``. Without it, an adopted operator with a fake kernel of its
#: library's is given a second.
META: Any = torch._C.DispatchKey.Meta

#: Private: ``torch._C.DisableTorchFunctionSubclass``. A block in which subclasses of tensors are
#: asked as tensors. Without it, one that refuses questions has no message of ours.
subclasses_as_tensors: Any = torch._C.DisableTorchFunctionSubclass

#: Private: ``torch._C._any_output_is_alias_to_input_or_output``, `None` where a release lacks it.
#: Without it, what a Python kernel returned is looked through in Python, which takes longer.
share_memory: Any = getattr(torch._C, "_any_output_is_alias_to_input_or_output", None)

#: Private: ``torch._C.parse_schema``. Without it, what an author declares is not compared with an
#: operator that exists.
parse_schema: Any = torch._C.parse_schema

#: Private: ``torch._C._dispatch_has_kernel_for_dispatch_key``. Without it, opsmith does not know
#: which devices an adopted operator runs on, nor whether it can be traced.
has_kernel: Any = torch._C._dispatch_has_kernel_for_dispatch_key


def key_set(*names: str) -> Any:
    """Return the set of some keys.

    Private: ``torch._C.DispatchKeySet``, ``torch._C.DispatchKey``. Without them, autocast casts no
    argument, and an operator without tensors finds no kernel.
    """
    found = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, names[0]))
    for name in names[1:]:
        found = found.add(getattr(torch._C.DispatchKey, name))
    return found


def is_known(operator: str) -> bool:
    """Return whether something is registered for an operator, ``namespace::name``.

    Private: ``torch._C._dispatch_has_kernel``. Without it, an operator that another library has
    defined is not refused by name.
    """
    return bool(torch._C._dispatch_has_kernel(operator))


def is_defined(operator: str) -> bool:
    """Return whether an operator has a schema, beyond kernels that wait for one.

    Private: ``torch._C._dispatch_find_schema_or_throw``. See `is_known`.
    """
    # Nearly all have none, and each of PyTorch's errors writes down the stack that led to it.
    if not is_known(operator):
        return False
    try:
        torch._C._dispatch_find_schema_or_throw(operator, "")
    except RuntimeError:
        return False
    return True


def schema_of(operator: str) -> Any:
    """Return the schema of an operator, ``namespace::name`` or one with ``.overload``.

    Private: ``torch._C._get_schema``. Without it, an AOTInductor artifact does not say what its
    libraries define.
    """
    name, _, overload = operator.partition(".")
    return torch._C._get_schema(name, overload)


def is_taken(namespace: str) -> bool:
    """Return whether a ``TORCH_LIBRARY`` block of this process has a namespace.

    Private: ``torch._C._dispatch_library``. Without it, two libraries of one namespace end the
    process that loads an artifact.
    """
    try:
        torch._C._dispatch_library("DEF", namespace, "")  # given back at once
    except RuntimeError:
        return True
    return False


def all_operators() -> Iterable[str]:
    """Return the names of every operator of this process.

    Private: ``torch._C._dispatch_get_all_op_names``. See `schema_of`.
    """
    return torch._C._dispatch_get_all_op_names()


def is_watched() -> bool:
    """Return whether something of PyTorch's sees each operator that is called here: a trace, say.

    Private: ``torch._C._len_torch_dispatch_stack``, ``torch._C._functorch.maybe_current_level``.
    Without them, `opsmith.monitoring` compares calls that have no values.
    """
    return bool(torch._C._len_torch_dispatch_stack() or torch._C._functorch.maybe_current_level())


def name_of_privateuse1() -> str:
    """Return what this process calls the device type that PyTorch leaves to others.

    Private: ``torch._C._get_privateuse1_backend_name``. Without it, kernels for such a device are
    compiled for one of another name.
    """
    return str(torch._C._get_privateuse1_backend_name())
