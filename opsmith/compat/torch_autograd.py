"""PyTorch's derivatives: whether one is requested, its node, and a tensor's writes and views.

Every name exists in each release from 2.10 on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch._functorch.autograd_function import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.function import _SingleLevelFunction

from opsmith.untyped import Arguments, Untyped

_is_grad_enabled = torch.is_grad_enabled

#: Private: ``torch._functorch.autograd_function.enable_single_level_autograd_function``. A block in
#: which `SingleLevelFunction` may be applied.
single_level = enable_single_level_autograd_function

#: Private: ``torch.autograd.function._SingleLevelFunction``. A node for the current transform of
#: `torch.func` only. Without it, operators have no gradient under ``torch.func.vjp``.
SingleLevelFunction: Untyped = _SingleLevelFunction

#: Private: ``torch._C._any_requires_grad``. Without it, no call can tell whether
#: to record a gradient.
any_requires_grad: Untyped = torch._C._any_requires_grad

#: Private: ``torch._C._are_functorch_transforms_active``. Without it, tangents under
#: ``torch.func.jvp`` are lost.
in_transform: Untyped = torch._C._are_functorch_transforms_active

#: Private: ``torch._C.TensorBase``, whose ``data`` detaches a tensor from the graph. Without it, a
#: reference that uses ``.data`` silently has a gradient of zeros.
data_of_tensor: Untyped = vars(torch._C.TensorBase)["data"].__get__


def needs_derivative(args: Sequence[object], kwargs: Arguments) -> bool:
    """Return whether a call is recorded, or may carry tangents.

    Private: ``torch.autograd.forward_ad._current_level``. Without it, tangents under
    ``forward_ad.dual_level`` are lost.
    """
    # The same as `may_have_tangents`, without another call.
    if forward_ad._current_level >= 0 or in_transform():
        return True
    return _is_grad_enabled() and any_requires_grad(*args, *kwargs.values())


@contextmanager
def recording() -> Iterator[None]:
    """Record derivatives in the block, also where autograd turned recording off to call a node.

    Private: ``torch.autograd.forward_ad._set_fwd_grad_enabled``. Without it, ``torch.func.jvp`` of
    ``torch.func.grad`` loses tangents.
    """
    with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True):
        yield


def may_have_tangents() -> bool:
    """Return whether a ``dual_level``, ``jvp`` or ``jacfwd`` is active.

    Private: ``torch.autograd.forward_ad._current_level``, -1 if none is active. In a graph compiled
    from such code, only a transform is active.
    """
    return forward_ad._current_level >= 0 or in_transform()


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor's memory was written.

    Private: ``torch.Tensor._version``. Without it, checks do not see that a kernel wrote into an
    argument what was there before, or wrote without telling PyTorch.
    """
    return tensor._version


def is_view(tensor: Tensor) -> bool:
    """Return whether a tensor is a view of another one.

    Private: ``torch.Tensor._is_view``. Without it, gradients through a written view are wrong in
    silence, and an operator that writes into one is exported to TorchScript.
    """
    return tensor._is_view()


def is_zero_tensor(tensor: Tensor) -> bool:
    """Return whether a tensor is zero everywhere and has no storage.

    Private: ``torch.Tensor._is_zerotensor``. Without it, some of PyTorch's operators crash on such
    an incoming gradient.
    """
    return tensor._is_zerotensor()
