"""Build constants of references by operations: PyTorch's decompositions lose constant tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from opsmith.compat import torch_pytree as pytree
from opsmith.compat.torch_tracing import is_functional, unseen_by_traces
from opsmith.errors import ExportError
from opsmith.kernels import HOST

#: Largest number of elements of a constant; each may become an operation.
_MOST = 1024
_MAKERS = (torch.tensor, torch.as_tensor, torch.asarray)


class MakesConstants(TorchFunctionMode):
    """Builds ``torch.tensor([2])`` in a reference, and tensors from outside it, by operations."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = None
        if func in _MAKERS and args:
            made = _made(args[0], kwargs.get("dtype"), kwargs.get("device"))
        elif func is Tensor.new_tensor and len(args) > 1:
            like = {"dtype": args[0].dtype, "device": args[0].device, **kwargs}
            made = _made(args[1], like["dtype"], like["device"])
        if made is not None:
            return made
        args, kwargs = pytree.tree_map(_rebuilt, (tuple(args), dict(kwargs)))
        return func(*args, **kwargs)


def _made(data: Any, dtype: torch.dtype | None, device: Any) -> Tensor | None:
    """Return a tensor of Python numbers, or `None` if `data` contains anything else."""
    leaves = pytree.tree_leaves(data, is_leaf=lambda item: not isinstance(item, list | tuple))
    if not all(isinstance(leaf, bool | int | float | complex) for leaf in leaves):
        return None
    with unseen_by_traces():
        value = torch.tensor(data, dtype=dtype, device=HOST)
    return _of(value, device or torch.get_default_device())


def _rebuilt(value: Any) -> Any:
    # Traced tensors are instances of subclasses.
    if type(value) is not Tensor or is_functional(value):
        return value
    return _of(value, value.device)


def _of(value: Tensor, device: Any) -> Tensor:
    """Return the numbers of `value` as operations that build it on `device`."""
    if value.numel() > _MOST:
        raise ExportError(
            f"a reference uses a constant of {value.numel()} elements, and an inlined reference "
            f"may have at most {_MOST}. Pass the constant as an argument."
        )
    with unseen_by_traces():
        numbers: Sequence[Any] = value.detach().cpu().flatten().tolist()
    shape, dtype = value.shape, value.dtype
    # Compare texts, since 0.0 == -0.0.
    if len(set(map(repr, numbers))) <= 1:
        return torch.full(shape, numbers[0] if numbers else 0, dtype=dtype, device=device)
    single = [torch.full((), number, dtype=dtype, device=device) for number in numbers]
    return torch.stack(single).reshape(shape)
