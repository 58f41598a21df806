"""The arguments of one call: create them as often as a check needs, and describe them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases import layouts
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import (
    dtype_name,
    every_tensor_in,
    generic_dtype,
    holds_tensors,
    map_named_tensors,
    map_tensors,
    with_own_lists,
)
from opsmith.signature import Signature, TensorInfo

#: The origin of a case that failed in an earlier run.
FAILED_BEFORE = "failed before"
#: Largest number of elements of a tensor whose values are shown.
_SHOWN = 8
#: Where the largest number of a tensor lies mostly: others are worth telling.
_USUAL = (1e-4, 1e4)


@dataclass(frozen=True)
class Case:
    """Arguments for one call.

    Attributes:
        values: every argument by name; tensors are on the CPU and are never written into.
        layouts: the memory layout of tensors by parameter; contiguous by default.
        origin: source of the arguments; empty for sampled ones.
        same: two arguments that are the same tensor.
        shift: number of elements by which the second tensor of `same` starts behind the first in
            shared memory; with 0, both are one tensor.
    """

    signature: Signature
    values: Mapping[str, Any]
    layouts: Mapping[str, str] = field(default_factory=dict)
    origin: str = ""
    same: tuple[str, str] | tuple[()] = ()
    shift: int = 0

    def make(self, device: str = HOST) -> dict[str, Any]:
        """Return the arguments by name, every tensor a fresh copy in its layout on `device`."""
        made: dict[str, Any] = {}
        for name, value in with_own_lists(self.values).items():
            layout = self.layouts.get(name, layouts.CONTIGUOUS)
            made[name] = map_tensors(value, functools.partial(_laid_out, layout, device))
        if self.same:
            one, other = self.same
            if self.shift:
                made[one], made[other] = layouts.in_one_memory(made[one], made[other], self.shift)
            else:
                made[other] = made[one]
        return made

    def with_layouts(self, wanted: Mapping[str, str]) -> Case:
        """Return the case with other memory layouts."""
        return replace(self, layouts=dict(wanted))

    @property
    def is_strided(self) -> bool:
        """Return whether any tensor is in another layout than contiguous."""
        return any(
            layouts.possible(tensor, self.layouts.get(name.partition("[")[0], layouts.CONTIGUOUS))
            for name, tensor in self.tensors()
        )

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over the tensors with their names (``x``, ``xs[0]``)."""
        return every_tensor_in(self.values)

    def described(self) -> dict[str, Any]:
        """Return the arguments for `opsmith.signature.bind`: tensors by shape and dtype."""
        return map_named_tensors(
            self.values, lambda _, tensor: TensorInfo(tuple(tensor.shape), dtype_name(tensor.dtype))
        )

    @property
    def dtype(self) -> str | None:
        """Return the dtype of the call's generic tensors; `None` if all dtypes are fixed."""
        return generic_dtype(self.signature, self.values)

    @property
    def sampled(self) -> bool:
        """Return whether the case was sampled, in this or an earlier run, and not registered."""
        return self.origin in ("", FAILED_BEFORE)

    @cached_property
    def numel(self) -> int:
        """Return the total number of elements of all tensors."""
        return sum(tensor.numel() for _, tensor in self.tensors())

    @cached_property
    def digest(self) -> str:
        """Return a hash of the arguments that is the same in every process and for every origin."""
        sha = hashlib.sha1(self._text.encode(), usedforsecurity=False)
        for _, tensor in self.tensors():
            sha.update(layouts.bits(tensor).numpy().tobytes())
        return sha.hexdigest()

    def describe(self) -> str:
        """Describe the arguments in one line: ``x: float32 (3, 4) transposed, scale=1.0``."""
        return f"{self._text} ({self.origin})" if self.origin else self._text

    @cached_property
    def _text(self) -> str:
        parts = []
        for name, value in self.values.items():
            layout = self.layouts.get(name, layouts.CONTIGUOUS)
            if isinstance(value, Tensor):
                parts.append(f"{name}: {show_tensor(value, layout)}")
            elif holds_tensors(value):
                inner = ", ".join(show_tensor(item, layout) for item in value)
                parts.append(f"{name}: [{inner}]")
            else:
                parts.append(f"{name}={value!r}")
        text = ", ".join(parts) or "no arguments"
        if self.same:
            one, other = self.same
            text += (
                f"; {other} begins {self.shift} element{'s' * (self.shift > 1)} behind {one} in "
                "one memory"
                if self.shift
                else f"; {one} and {other} are the same tensor"
            )
        return text


def _laid_out(layout: str, device: str, tensor: Tensor) -> Tensor:
    return layouts.lay_out(tensor.to(device), layout)


def show_tensor(tensor: Tensor, layout: str = layouts.CONTIGUOUS) -> str:
    """Describe a tensor: dtype, shape, layout, its values if few, else NaN or infinity in it."""
    words = [dtype_name(tensor.dtype), show_shape(tensor.shape)]
    if layouts.possible(tensor, layout):
        words.append(layouts.taken(tensor, layout))
    if 0 < tensor.numel() <= _SHOWN:
        words.append(show_values(tensor.tolist()))
    else:
        sizes = _sizes(tensor)
        some = sizes[sizes.isfinite() & (sizes > 0)]
        special = {"NaN": sizes.isnan(), "infinity": sizes.isinf()}
        held = [kind for kind, where in special.items() if bool(where.any())]
        if held:
            words.append(f"with {' and '.join(held)}")
        elif sizes.numel() and not some.numel():
            words.append("of zeros")
        if some.numel() and not _USUAL[0] < some.max() < _USUAL[1]:
            real = tensor.is_floating_point()
            sign = "±" if real and bool((tensor.double() < 0).any()) else ""
            words.append(f"of {sign}{some.min():.2g} to {sign}{some.max():.2g}")
    return " ".join(words)


def _sizes(tensor: Tensor) -> Tensor:
    """Return the magnitudes of a tensor's numbers; none of integers."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return torch.zeros(0)
    # Which functions take float8 depends on the release of PyTorch.
    return (tensor.float() if tensor.element_size() == 1 else tensor).abs()


def show_shape(shape: Any) -> str:
    """Format a shape as a tuple: ``(3, 4)``, ``(3,)`` or ``()``."""
    return str(tuple(int(size) for size in shape))


def show_values(values: Any) -> str:
    """Format nested lists of numbers, floats with four digits."""
    if isinstance(values, list):
        return "[" + ", ".join(show_values(value) for value in values) + "]"
    return f"{values:.4g}" if isinstance(values, float | complex) else str(values)
