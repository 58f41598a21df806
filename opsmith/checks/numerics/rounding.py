"""Rounding errors of a formula, found by rounding each operator's results up or down at random.

Running a formula in a kernel's dtype shows the rounding errors of one order of evaluation. Where
terms cancel, these errors may all happen to be zero at an element (``x - x * y * y`` with y = 1),
while an equivalent formula has the rounding errors of the terms, and no change of the arguments
shows the size of the terms. The formula is therefore run in double precision, and the results of
each PyTorch operator are rounded to the kernel's dtype, up or down at random: stochastic arithmetic
(Vignes, "A stochastic arithmetic for reliable scientific computation", Math. Comput. Simul. 35,
1993). Numbers that are exact in the kernel's dtype stay exact.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from opsmith.compat.torch_ops import overload_schema
from opsmith.compat.torch_pytree import tree_leaves
from opsmith.compat.torch_tracing import TorchDispatchMode, all_decompositions

_aten, _prims = torch.ops.aten, torch.ops.prims
#: Operators that return the sum or the mean of the first argument's elements.
_SUMS = (_aten.sum, _prims.sum, _aten.mean)
#: Sums of products. PyTorch decomposes others (``addmm``, ``einsum``, ``linear``) to these.
_PRODUCTS = (_aten.mm, _aten.bmm)
#: Sums of terms that each go to a place of their own.
_SCATTERS = (
    *(_aten.index_add, _aten.index_add_, _aten.scatter_add, _aten.scatter_add_),
    *(_aten.index_put, _aten.index_put_, _aten._unsafe_index_put),
)
#: Operators of a single step, so that none of their decompositions, which take long, is needed.
_SINGLE = tuple(
    getattr(_aten, name)
    for name in "abs add div eq exp ge gt le lt maximum minimum mul ne neg sqrt sub where".split()
)
#: Operators of LAPACK, whose errors are relative to the norm of a matrix and not to its elements.
_MATRIX = frozenset(
    f"aten::{name}"
    for name in (
        "_linalg_det _linalg_eigh _linalg_slogdet _linalg_solve_ex _linalg_svd cholesky "
        "cholesky_inverse cholesky_solve geqrf linalg_cholesky_ex linalg_eig linalg_eigh "
        "linalg_eigvals linalg_householder_product linalg_inv_ex linalg_ldl_factor_ex "
        "linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor_ex linalg_lu_solve "
        "linalg_matrix_exp linalg_qr linalg_solve_triangular lu_solve ormqr triangular_solve"
    ).split()
)
#: Largest number of products whose rounding errors are sampled one by one.
_MOST_PRODUCTS = 1 << 20
#: Largest number of terms that a kernel may add up in half precision.
_MOST_TERMS = 256
#: Operators whose results come as near to a number as one likes, and never reach it.
_LIMITS = {_prims.tanh: 1.0, _prims.erf: 1.0, _prims.erfc: 2.0}
#: Operators whose decompositions need memory for the square of the length.
_RUNNING = (_aten.cumsum, _aten.cumprod)


class StepByStep(TorchDispatchMode):
    """A dispatch mode that changes the results of every operator right after its call.

    An operator that stands for a formula (``native_layer_norm``) is decomposed first.
    """

    #: Names of PyTorch's operators that are not decomposed: ``aten::sigmoid``.
    whole: frozenset[str] = frozenset()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator, and change its results in place."""
        packet = func.overloadpacket
        if packet is _aten._efficientzerotensor:  # whose results have no memory to look at
            return torch.zeros(*args, **(kwargs or {}))
        args, named = self.takes(func, args, dict(kwargs or {}))
        whole = (*_SUMS, *_PRODUCTS, *_RUNNING)
        kept = packet in whole or overload_schema(func).name in self.whole
        kept |= packet in _SINGLE and not named
        parts = None if kept else _formula(func, args, named)
        if parts is not None:
            with self:
                return parts(*args, **named)
        returned = func(*args, **named)
        self.took(func, args, named, returned)
        many = returned if isinstance(returned, tuple) else (returned,)
        for declared, value in zip(overload_schema(func).returns, many, strict=False):
            alias = declared.alias_info
            if alias is not None and not alias.is_write:
                continue  # a view has no new values
            for tensor in value if isinstance(value, list) else [value]:
                if is_wide(tensor):
                    self.gave(tensor)
        return returned

    def takes(self, func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Change the arguments of an operator."""
        return args, kwargs

    def took(self, func: Any, args: Any, kwargs: Mapping[str, Any], returned: Any) -> None:
        """Change the results of an operator, given its arguments."""

    def gave(self, tensor: Tensor) -> None:
        """Change a result in double precision."""


class RandomRounding(StepByStep):
    """A dispatch mode that rounds float64 results of every operator to a kernel's dtype at random.

    If the kernel's dtype is float64, the mode cannot detect which results are exact. It treats
    results as exact if single precision represents them, or if an argument of the operator has the
    same digits.

    Sums get the rounding errors of their partial sums. This includes cumulative sums and, in single
    and double precision, sums of products. Numbers among the arguments are rounded too: a kernel
    stores ``1 / 3`` in its own dtype.

    Args:
        dtype: the floating-point dtype to round to.
        generator: source of the random directions.
        times: factor for the error of each step.
        any_size: whether numbers that are too large or too small for `dtype` are rounded to its
            number of digits.
        in_order: whether sums in single precision add one term after the other, each partial sum
            rounded to the nearest. The roundings of equal terms then all go in one direction.
        to_nearest: whether each step is rounded to the nearest, so that equal terms stay equal.
        beside_one: operators whose results are rounded like 1, even if they are small, and the
            largest error in units in the last place of 1 (half a unit for rounding to the nearest).
            For coarser dtypes, these operators are computed in single precision.
        partial_sums: whether the partial sums of a sum are rounded, not only its terms and itself.
        may_cancel: whether an infinite sum becomes NaN, as in a formula that subtracts one infinite
            term from another; otherwise, it stays infinite.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        generator: torch.Generator,
        times: float = 1.0,
        *,
        any_size: bool = False,
        in_order: bool = False,
        to_nearest: bool = False,
        beside_one: Mapping[str, float] | None = None,
        partial_sums: bool = True,
        may_cancel: bool = False,
    ) -> None:
        super().__init__()
        self._beside_one = beside_one or {}
        self.whole = frozenset(self._beside_one)
        self._times = times
        self._dtype = dtype
        self._is_double = dtype == torch.float64
        self._digits = torch.empty(0, dtype=torch.float64)
        self._eps = torch.finfo(dtype).eps
        # Kernels in half precision are expected to sum in single precision.
        self._is_coarse = self._eps > torch.finfo(torch.float32).eps
        self._generator = generator
        self._any_size = any_size
        # Numbers below the normal ones lie further apart than their digits say.
        self._least = 0.0 if any_size else torch.finfo(dtype).smallest_normal * self._eps
        self._partial_sums = partial_sums
        self._in_order = in_order and dtype == torch.float32
        self._to_nearest = to_nearest and dtype == torch.float32
        self._of_infinite = math.nan if may_cancel else 0.0

    def takes(self, func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Round the numbers among the arguments of an operator."""
        name = overload_schema(func).name
        change = self._matrix if name in _MATRIX else self._number
        if name == "aten::linalg_matrix_exp":
            # Each of its squarings doubles what was lost before (Higham 2008, 10.3).
            change = functools.partial(self._matrix, steps=args[0].shape[-1])
        return tuple(map(change, args)), {name: change(one) for name, one in kwargs.items()}

    def _matrix(self, value: Any, steps: int = 1) -> Any:
        """Move every element of a matrix by a unit of the matrix's norm (Higham 2002, 19.3)."""
        if not is_wide(value) or value.dim() < 2:
            return value
        norm = value.norm(dim=(-2, -1), keepdim=True)
        noise = torch.rand(value.shape, generator=self._generator, dtype=torch.float64) - 0.5
        return value + self._times * self._eps * steps * norm * noise

    def _number(self, value: Any) -> Any:
        if not isinstance(value, float) or not math.isfinite(value) or self._is_double:
            return value
        return self._rounded(torch.tensor(value, dtype=torch.float64)).item()

    def took(self, func: Any, args: Any, kwargs: Mapping[str, Any], returned: Any) -> None:
        """Add the rounding errors of partial sums."""
        packet = func.overloadpacket
        if self._is_double:
            given = [_digits(one).flatten() for one in tree_leaves((args, kwargs)) if is_wide(one)]
            self._digits = torch.cat([self._digits[:0], *given])
        if packet in _SUMS and args[0].dtype == torch.float64:
            self._round_partial_sums(packet, args, returned)
        if packet in _PRODUCTS and returned.dtype == torch.float64:
            self._round_products(args[0], args[1], returned)
        scattered = _scattered(packet, args, kwargs)
        if scattered is not None and args[0].dtype == torch.float64:
            self._round_scattered(*scattered, returned)
        if overload_schema(func).name in _MATRIX:
            for one in filter(is_wide, tree_leaves(returned)):
                one.copy_(self._matrix(one))
        if overload_schema(func).name in self.whole and is_wide(returned):
            noise = torch.rand(returned.shape, generator=self._generator, dtype=torch.float64)
            unit = min(self._eps, torch.finfo(torch.float32).eps)
            size = self._times * unit * self._beside_one[overload_schema(func).name]
            returned.add_(size * (2 * noise - 1))
        seems_exact = _seems_exact(packet, args, returned)
        if seems_exact is not None and bool(seems_exact.any()):
            down = torch.rand(returned.shape, generator=self._generator) < 0.5
            below = returned * (1 - self._times * self._eps / 2)
            returned.copy_(torch.where(seems_exact & down, below, returned))
        if packet is _aten.cumsum and is_wide(returned) and self._partial_sums:
            self._round_running_sums(returned, args[1])

    def gave(self, tensor: Tensor) -> None:
        """Round a result of an operator."""
        real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        real.copy_(self._rounded(real))

    def _rounded(self, real: Tensor) -> Tensor:
        noise: Tensor | float = 0.0
        if not self._to_nearest:
            noise = torch.rand(real.shape, generator=self._generator, dtype=torch.float64) - 0.5
        if self._is_double:
            exact = (real.float().double() == real) | torch.isin(_digits(real), self._digits)
            return torch.where(exact, real, real * (1 + self._times * self._eps * noise))
        exact = self._nearest(real) == real
        moved = real + (self._eps * real.abs()).clamp_min(self._least) * noise
        rounded = self._nearest(moved)
        # A kernel may compute in a wider dtype, in which the number does not overflow.
        rounded = torch.where(rounded.isinf(), moved, rounded)
        return torch.where(exact, real, real + self._times * (rounded - real))

    def _nearest(self, real: Tensor) -> Tensor:
        return (
            with_precision(real, self._dtype) if self._any_size else real.to(self._dtype).double()
        )

    def _round_partial_sums(self, packet: Any, args: Any, total: Tensor) -> None:
        terms = args[0]
        every = range(terms.dim())
        dims = args[1] if len(args) > 1 and args[1] else list(every)
        last = [dim % terms.dim() for dim in dims] if terms.dim() else []
        first = [dim for dim in every if dim not in last]
        count = math.prod(terms.shape[dim] for dim in last)
        rows = terms.permute(first + last).reshape(total.numel(), count)
        error = self._error_of_sums(rows).view(total.shape)
        total.add_(error / max(rows.shape[1], 1) if packet is _aten.mean else error)

    def _round_products(self, first: Tensor, second: Tensor, total: Tensor) -> None:
        """Add rounding errors to a matrix product, different ones for equal rows.

        If two rows have the same terms, a later step may cancel them. An equivalent formula adds up
        all terms, and its rounding errors do not cancel.
        """
        many = first.numel() * second.shape[-1] > _MOST_PRODUCTS
        if many or (self._is_coarse and self._partial_sums):
            return
        products = first.unsqueeze(-1) * second.unsqueeze(-3)
        rows = products.transpose(-1, -2).reshape(total.numel(), first.shape[-1])
        each = self._errors(rows).sum(1)
        total.add_((each + self._error_of_sums(rows)).view(total.shape))

    def _round_scattered(self, places: Tensor, terms: Tensor, total: Tensor) -> None:
        """Add the rounding errors of sums of terms that each go to a place of their own."""
        places, order = places.flatten().sort(stable=True)
        terms = terms.flatten()[order]
        base = total.flatten().index_add(0, places, -terms)  # what they were added to
        found, counts = places.unique_consecutive(return_counts=True)
        ends, sizes = counts.cumsum(0), counts.log2().long()
        sums = total.flatten()
        for size in sizes.unique():  # sums of about as many terms at once
            chosen = sizes == size
            last, count = ends[chosen, None], counts[chosen, None]
            at = last + torch.arange(-int(count.max()), 0)
            rows = torch.where(at >= last - count, terms[at.clamp(0)], 0.0)  # zeros come first
            rows = torch.cat([base[found[chosen], None], rows], 1)
            sums[found[chosen]] += self._error_of_sums(rows)
        total.copy_(sums.view_as(total))

    def _round_running_sums(self, sums: Tensor, dim: int) -> None:
        """Add the rounding errors of the sums before, and of a tree that adds up each sum anew."""
        errors = self._errors(sums)
        if sums.dim():
            size = torch.nan_to_num(sums.abs(), posinf=0.0).cummax(dim).values
            noise = torch.rand(sums.shape, generator=self._generator, dtype=torch.float64) - 0.5
            height = self._times * math.log2(sums.shape[dim] + 1)
            rounded = (errors != 0).cumsum(dim) > 0
            sums.add_(torch.where(rounded, height * self._eps * size * noise, 0.0))
            sums.add_(errors.cumsum(dim))

    def _error_of_sums(self, rows: Tensor) -> Tensor:
        """Return the rounding error of each row's sum."""
        if not self._partial_sums or (rows.shape[1] > _MOST_TERMS and self._is_coarse):
            return torch.where(rows.sum(1).isfinite(), 0.0, self._of_infinite)
        if self._in_order and rows.shape[1]:
            error = self._times * _error_in_order(rows)
            return torch.where(rows.sum(1).isfinite(), error, self._of_infinite)
        return self._errors(rows.cumsum(1)).sum(1)

    def _errors(self, real: Tensor) -> Tensor:
        """Return the rounding error of each number."""
        return torch.where(real.isfinite(), self._rounded(real) - real, self._of_infinite)


def _scattered(
    packet: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Tensor, Tensor] | None:
    """Return the place in the first argument that each term is added to, and the terms.

    For operators that do not add up scattered terms, return `None`.
    """
    if packet not in _SCATTERS:
        return None
    base, *rest = args
    places = torch.arange(base.numel()).view(base.shape)
    if packet in (_aten.index_add, _aten.index_add_):
        return places.index_select(rest[0], rest[1]), rest[2] * kwargs.get("alpha", 1)
    if packet in (_aten.scatter_add, _aten.scatter_add_):
        return places.gather(rest[0], rest[1]), rest[2][tuple(map(slice, rest[1].shape))]
    if (*rest, kwargs.get("accumulate"))[2]:
        places = _aten.index(places, rest[0])
        return places, rest[1].expand_as(places)
    return None


def _seems_exact(packet: Any, args: Sequence[Any], returned: Tensor) -> Tensor | None:
    """Return where a result is a round number only because double precision ends there.

    So does a function near a limit that it never reaches, or a sum one term of which is too small
    to change it.
    For other operators, return `None`.
    """
    if not is_wide(returned) or returned.is_complex():
        return None
    if packet in _LIMITS:
        return torch.logical_and(returned.abs() == _LIMITS[packet], args[0].isfinite())
    if packet in (_prims.add, _prims.sub, _aten.add, _aten.sub):
        lost = torch.zeros_like(returned, dtype=torch.bool)
        for sum_, term in (args[:2], args[1::-1]):
            lost |= (returned.abs() == abs(sum_)) & (term != 0) & (abs(term) < abs(sum_))
        return lost
    return None


def _error_in_order(rows: Tensor) -> Tensor:
    """Return the rounding error of each row's sum, added in order in single precision."""
    terms = rows.float()
    # On the CPU, PyTorch computes cumulative sums in double precision, so use NumPy's.
    added = np.add.accumulate(terms.numpy(), axis=1)[:, -1]
    return torch.from_numpy(added).double() - terms.double().sum(1)


def with_precision(real: Tensor, dtype: torch.dtype) -> Tensor:
    """Round float64 numbers to the number of digits of `dtype`, without limiting their range."""
    mantissa, exponent = torch.frexp(real)
    return torch.ldexp(mantissa.to(dtype).double(), exponent)


def _digits(value: Tensor) -> Tensor:
    """Return the mantissas of numbers, without exponents and signs."""
    real = torch.view_as_real(value) if value.is_complex() else value
    return torch.frexp(real.detach()).mantissa.abs()


class Widening(TorchDispatchMode):
    """A dispatch mode that detects operators with more precise results than a dtype has.

    Attributes:
        found: whether an operator gave such results.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.found = False
        self._eps = torch.finfo(dtype).eps

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operator, and inspect the dtypes of its results."""
        returned = func(*args, **(kwargs or {}))
        for value in tree_leaves(returned):
            if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex()):
                self.found |= torch.finfo(value.dtype).eps < self._eps
        return returned


def is_wide(value: Any) -> bool:
    """Return whether a value is a tensor of double precision."""
    return isinstance(value, Tensor) and value.dtype in (torch.float64, torch.complex128)


def _variance(x: Tensor, dims: Any, correction: float = 1) -> Tensor:
    """Compute the variance in two passes.

    If all elements are equal, the variance is the square of the mean's rounding error. The first
    derivative is zero then, so that perturbing the arguments does not show this error.
    """
    centred = x - x.mean(dims, keepdim=True)
    total = (centred * centred).sum(dims)
    return total / max(x.numel() / max(total.numel(), 1) - correction, 0)


def _resized(
    grad: Tensor, size: Sequence[int], input_size: Sequence[int], align: bool, *scales: float | None
) -> Tensor:
    """Compute the gradient of linear resizing by its weights, whose coordinates are rounded."""
    given = (*scales, None, None, None)  # calls leave out what is None
    for axis, (out, count, scale) in enumerate(zip(size, input_size[2:], given, strict=False), 2):
        step = (count - 1) / max(out - 1, 1) if align else 1 / scale if scale else count / out
        at = torch.arange(out, dtype=grad.dtype)
        at = at * step if align else (at + 0.5) * step - 0.5
        weights = 1 - (at.clamp(0, count - 1)[:, None] - torch.arange(count)).abs()
        grad = (grad.movedim(axis, -1) @ weights.clamp(0)).movedim(-1, axis)
    return grad


#: Decompositions of operators that PyTorch does not decompose although they have several steps.
PARTS: dict[Any, Callable[..., Tensor]] = {
    _prims.var: _variance,
    _aten.upsample_linear1d_backward: _resized,
    _aten.upsample_bilinear2d_backward: _resized,
    _aten.upsample_trilinear3d_backward: _resized,
}


def _formula(func: Any, args: Any, kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """Return the decomposition of an operator, if it is known and has the same results."""
    found = PARTS.get(func.overloadpacket) or all_decompositions().get(func)
    views = any(declared.alias_info is not None for declared in overload_schema(func).returns)
    if found is None or views or overload_schema(func).is_mutable:
        return None
    try:
        whole = tree_leaves(func(*args, **kwargs))
        if not any(map(is_wide, whole)):
            return None
        parts = tree_leaves(found(*args, **kwargs))
    except Exception:
        return None
    # Where terms cancel, only rounding errors remain, so compare relative to the largest number.
    size = max(map(_largest, tree_leaves((args, kwargs, whole))), default=0.0)
    same = len(whole) == len(parts) and all(
        _nearly_equal(*pair, size) for pair in zip(whole, parts, strict=True)
    )
    return found if same else None


def _largest(value: Any) -> float:
    """Return the largest finite magnitude in a tensor of double precision; 0 for other values."""
    if not is_wide(value) or not value.numel():
        return 0.0
    return float(torch.nan_to_num(value.detach().abs(), nan=0.0, posinf=0.0).max())


def _nearly_equal(first: Any, second: Any, size: float) -> bool:
    if not isinstance(first, Tensor) or not isinstance(second, Tensor):
        return bool(first == second)
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if not is_wide(first) or not first.numel():
        return torch.equal(first, second)
    return torch.allclose(first, second, rtol=1e-9, atol=1e-9 * size, equal_nan=True)
