"""PyTorch's dispatcher: its keys, its registrations, and the keys that are active in a call.

Every name is in ``torch._C``, in each release from 2.10 on.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from opsmith.untyped import Untyped

#: Private: ``torch._C._AutoDispatchBelowAutograd``. A block below the derivatives of PyTorch's own
#: operators. Without it, the steps of a kernel are recorded in addition to its operator's
#: derivative.
below_autograd: Untyped = torch._C._AutoDispatchBelowAutograd

#: Private: ``torch._C._after_autograd_keyset``. The keys after those of derivatives. Without it, an
#: operator with a derivative cannot call its own kernel.
after_autograd: Untyped = torch._C._after_autograd_keyset

#: Private: ``torch._C._AutoDispatchBelowADInplaceOrView``. A block below the counting of versions.
#: Without it, writes into tensors go unnoticed, and gradients are silently wrong.
below_versions: Untyped = torch._C._AutoDispatchBelowADInplaceOrView

#: Private: ``torch._C._after_ADInplaceOrView_keyset``. The keys after that of versions. See
#: `below_versions`.
after_versions: Untyped = torch._C._after_ADInplaceOrView_keyset

#: Private: ``torch._C._ExcludeDispatchKeyGuard``. A block that skips keys. Without it, a cast by
#: autocast calls itself endlessly.
passing_over: Untyped = torch._C._ExcludeDispatchKeyGuard

#: Private: ``torch._C._dispatch_tls_is_dispatch_key_excluded``. Without it, a kernel may receive
#: tensors that are conjugated or negated lazily.
is_passed_over: Untyped = torch._C._dispatch_tls_is_dispatch_key_excluded

#: Private: ``torch._C._SetExcludeDispatchKeyGuard``. A block that skips one key, or no longer skips
#: it. See `is_passed_over`.
set_passed_over: Untyped = torch._C._SetExcludeDispatchKeyGuard

#: Private: ``torch._C.DispatchKey.Conjugate``. See `is_passed_over`.
CONJUGATE: Untyped = torch._C.DispatchKey.Conjugate

#: Private: ``torch._C.DispatchKey.Negative``. See `is_passed_over`.
NEGATIVE: Untyped = torch._C.DispatchKey.Negative

#: Private: ``torch._C.DispatchKey.ZeroTensor``. Without it, each recorded call would examine all of
#: its tensors for zero tensors without memory.
ZERO_TENSOR: Untyped = torch._C.DispatchKey.ZeroTensor

#: Private: ``torch._C.DispatchKey.Meta``. Without it, an adopted operator gets a second fake kernel
#: besides that of its library.
META: Untyped = torch._C.DispatchKey.Meta

#: Private: ``torch._C._EnablePythonDispatcher``. A block in which PyTorch's operators take symbolic
#: sizes as they do in traces. Without it, some refuse them or turn them into numbers.
as_in_traces: Untyped = torch._C._EnablePythonDispatcher

#: Private: ``torch._C.DisableTorchFunctionSubclass``. A block in which tensor subclasses are
#: treated as plain tensors. Without it, opsmith has no message for a subclass that refuses access.
subclasses_as_tensors: Untyped = torch._C.DisableTorchFunctionSubclass

#: Private: ``torch._C._any_output_is_alias_to_input_or_output``, `None` in a release without it.
#: Then the results of a Python kernel are examined in Python, which takes longer.
share_memory: Untyped = getattr(torch._C, "_any_output_is_alias_to_input_or_output", None)

#: Private: ``torch._C.parse_schema``. Without it, a declaration is not compared with the operator
#: that exists.
parse_schema: Untyped = torch._C.parse_schema

#: Private: ``torch._C._dispatch_has_kernel_for_dispatch_key``. Without it, opsmith cannot tell
#: which devices an adopted operator runs on, nor whether it can be traced.
has_kernel: Untyped = torch._C._dispatch_has_kernel_for_dispatch_key


def key_set(*names: str) -> Untyped:
    """Return the set of some dispatch keys.

    Private: ``torch._C.DispatchKeySet``, ``torch._C.DispatchKey``. Without them, autocast does not
    cast arguments, and an operator without tensors finds no kernel.
    """
    found = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, names[0]))
    for name in names[1:]:
        found = found.add(getattr(torch._C.DispatchKey, name))
    return found


def is_known(operator: str) -> bool:
    """Return whether anything is registered for an operator, ``namespace::name``.

    Private: ``torch._C._dispatch_has_kernel``. Without it, an operator that another library has
    defined is not refused by name.
    """
    return bool(torch._C._dispatch_has_kernel(operator))


def is_added(key: str) -> bool:
    """Return whether a package has added the device type of a dispatch key to this process.

    Private: ``torch._C._dispatch_has_backend_fallback``. Without it, a second one raises.
    """
    return bool(torch._C._dispatch_has_backend_fallback(getattr(torch._C.DispatchKey, key)))


def is_defined(operator: str) -> bool:
    """Return whether an operator has a schema; kernels may be registered before it.

    Private: ``torch._C._dispatch_find_schema_or_throw``. See `is_known`.
    """
    # Most operators have none, and each of PyTorch's errors records a stack trace, which is slow.
    if not is_known(operator):
        return False
    try:
        torch._C._dispatch_find_schema_or_throw(operator, "")
    except RuntimeError:
        return False
    return True


def schema_of(operator: str) -> Untyped:
    """Return the schema of an operator, ``namespace::name``, perhaps with ``.overload``.

    Private: ``torch._C._get_schema``. Without it, an AOTInductor artifact does not list the
    operators that its libraries define.
    """
    name, _, overload = operator.partition(".")
    return torch._C._get_schema(name, overload)


def is_taken(namespace: str) -> bool:
    """Return whether a ``TORCH_LIBRARY`` block in this process owns a namespace.

    Private: ``torch._C._dispatch_library``. Without it, two libraries of one namespace end the
    process that loads an artifact.
    """
    try:
        torch._C._dispatch_library("DEF", namespace, "")  # released at once
    except RuntimeError:
        return True
    return False


def all_operators() -> Iterable[str]:
    """Return the names of all operators in this process.

    Private: ``torch._C._dispatch_get_all_op_names``. See `schema_of`.
    """
    return torch._C._dispatch_get_all_op_names()


def is_watched() -> bool:
    """Return whether a mode of PyTorch's, such as a trace, intercepts the operators called here.

    Private: ``torch._C._len_torch_dispatch_stack``, ``torch._C._functorch.maybe_current_level``.
    Without these names, a call with out= compares where tensors lie that have no memory.
    """
    return bool(torch._C._len_torch_dispatch_stack() or torch._C._functorch.maybe_current_level())


def name_of_privateuse1() -> str:
    """Return this process's name for PrivateUse1, PyTorch's device type for extensions.

    Private: ``torch._C._get_privateuse1_backend_name``. Without it, kernels for such a device are
    compiled for a device of another name.
    """
    return str(torch._C._get_privateuse1_backend_name())


def storage_id(storage: torch.UntypedStorage) -> int:
    """Return an identifier of a storage, also of an empty one, whose address is 0.

    Private: ``torch.UntypedStorage._cdata``. Without it, empty tensors of different memory count as
    views of each other.
    """
    return int(storage._cdata)
