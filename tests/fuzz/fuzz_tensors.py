"""Tensors as they come in real programs, and as nobody would pass them on purpose."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

warnings.filterwarnings("ignore", module="torch")


class Exotic(NamedTuple):
    """A way of replacing a tensor that fits.

    Attributes:
        make: the replacement, from the tensor that fits.
        refused: whether no runtime may accept it where tensors are real.
    """

    make: Callable[[Tensor, Random], Any]
    refused: bool = False


class Plain(Tensor):
    """A subclass that adds nothing."""


class Wrapper(Tensor):
    """A subclass that holds another tensor, and sees every call in ``__torch_dispatch__``."""

    inner: Tensor

    @staticmethod
    def __new__(cls: Any, inner: Tensor) -> Any:
        made = Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=inner.device
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def bare(value: Any) -> Any:
            return value.inner if isinstance(value, Wrapper) else value

        def wrapped(value: Any) -> Any:
            return Wrapper(value) if type(value) is Tensor else value

        args, kwargs = tree_map(bare, args), tree_map(bare, kwargs or {})
        return tree_map(wrapped, func(*args, **kwargs))


class Refusing(Tensor):
    """A subclass whose ``__torch_function__`` declines every call."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


def _other_dtype(t: Tensor, rng: Random) -> Tensor:
    names = (
        "bool uint8 uint16 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64 "
        "complex64 complex128 float8_e4m3fn"
    ).split()
    others = [name for name in names if getattr(torch, name) is not t.dtype]
    return t.detach().to(getattr(torch, rng.choice(others)))


def _freed(t: Tensor, rng: Random) -> Tensor:
    copy = t.detach().clone() if t.numel() else torch.ones(3, dtype=t.dtype)
    copy.untyped_storage().resize_(0)
    return copy


def _cut_short(t: Tensor, rng: Random) -> Tensor:
    copy = t.detach().clone() if t.numel() else torch.ones(3, dtype=t.dtype)
    copy.untyped_storage().resize_(copy.untyped_storage().nbytes() - copy.element_size())
    return copy


def _noncontiguous(t: Tensor, rng: Random) -> Tensor:
    if t.dim() < 2:
        return torch.stack([t, t], -1)[..., 0]
    return t.transpose(0, 1).contiguous().transpose(0, 1)


def _offset(t: Tensor, rng: Random) -> Tensor:
    if t.dim() == 0:
        return torch.stack([t, t])[1]
    return torch.cat([t[:1], t])[min(1, t.shape[0]) :]


def _expanded(t: Tensor, rng: Random) -> Tensor:
    return t[:1].expand(t.shape) if t.dim() and t.shape[0] else t


def _overlapping(t: Tensor, rng: Random) -> Tensor:
    if t.dim() == 0:
        return t
    storage = torch.arange(sum(t.shape) + 1).to(t.dtype).remainder(2).to(t.dtype)
    return torch.as_strided(storage, t.shape, [1] * t.dim())


def _negative(t: Tensor, rng: Random) -> Any:
    return torch._neg_view(t) if t.is_floating_point() else t


def _imaginary(t: Tensor, rng: Random) -> Any:
    return torch.complex(t, t).conj().imag if t.is_floating_point() else t


def _conjugate(t: Tensor, rng: Random) -> Any:
    return torch.complex(t, t).conj() if t.is_floating_point() else t.to(torch.complex64).conj()


def _leaf(t: Tensor, rng: Random) -> Tensor:
    return t.detach().clone().requires_grad_(t.is_floating_point())


def _non_leaf(t: Tensor, rng: Random) -> Tensor:
    return _leaf(t, rng) * 1 if t.is_floating_point() else t


def _parameter(t: Tensor, rng: Random) -> Any:
    return torch.nn.Parameter(t.detach(), requires_grad=t.is_floating_point())


def _quantized(t: Tensor, rng: Random) -> Any:
    flat = t.detach().to(torch.float32)
    if rng.random() < 0.3 and flat.dim() and flat.shape[0]:
        scales = torch.ones(flat.shape[0])
        zeros = torch.zeros(flat.shape[0], dtype=torch.int64)
        return torch.quantize_per_channel(flat, scales, zeros, 0, torch.qint8)
    return torch.quantize_per_tensor(
        flat, 0.1, 0, rng.choice([torch.quint8, torch.qint8, torch.qint32])
    )


def _sparse(t: Tensor, rng: Random) -> Any:
    t = t.detach()
    if t.dim() == 2 and rng.random() < 0.6:
        layout = rng.choice([torch.sparse_csr, torch.sparse_csc])
        return t.to_sparse(layout=layout)
    # An element of a sparse vector is dense, and vmap passes these of tensors of no dimensions.
    return t.reshape(t.shape or 1).to_sparse()


def _blocks(t: Tensor, rng: Random) -> Any:
    return torch.ones(2, 2, dtype=t.dtype).to_sparse_bsr((1, 1))


def _nested(t: Tensor, rng: Random) -> Any:
    layout = rng.choice([torch.strided, torch.jagged])
    size = tuple(t.shape[1:]) or (2,)
    items = [torch.ones(n, *size).to(t.dtype) for n in (1, 2)]
    return torch.nested.nested_tensor(items, layout=layout)


def _fake(t: Tensor, rng: Random) -> Any:
    from torch._subclasses import FakeTensorMode

    return FakeTensorMode().from_tensor(t.detach())


def _functional(t: Tensor, rng: Random) -> Any:
    return torch._to_functional_tensor(t.detach())


def _mkldnn(t: Tensor, rng: Random) -> Any:
    return t.detach().to(torch.float32).to_mkldnn()


def _inference(t: Tensor, rng: Random) -> Tensor:
    with torch.inference_mode():
        return t.detach().clone()


def _escaped_batch(t: Tensor, rng: Random) -> Any:
    kept: list[Any] = []
    torch.vmap(lambda x: (kept.append(x), x)[1])(torch.stack([t.detach(), t.detach()]))
    return kept[0]


def _escaped_grad(t: Tensor, rng: Random) -> Any:
    kept: list[Any] = []
    torch.func.grad(lambda x: (kept.append(x), x.sum())[1])(t.detach().to(torch.float32))
    return kept[0]


def _dual(t: Tensor, rng: Random) -> Any:
    """A dual tensor whose level has ended."""
    if not t.is_floating_point():
        return t
    with torch.autograd.forward_ad.dual_level():
        return torch.autograd.forward_ad.make_dual(t.detach(), torch.ones_like(t.detach()))


def _masked(t: Tensor, rng: Random) -> Any:
    return torch.masked.masked_tensor(t.detach(), torch.ones_like(t, dtype=torch.bool))


def _array(t: Tensor, rng: Random) -> Any:
    return t.detach().numpy().copy()


def _odd_array(t: Tensor, rng: Random) -> Any:
    array = t.detach().numpy().copy()
    kind = rng.randrange(6)
    if kind == 0:
        array.flags.writeable = False
    elif kind == 1:
        array = array.astype(array.dtype.newbyteorder(">"))
    elif kind == 2:
        array = array.astype(object)
    elif kind == 3:
        array = array.astype(str)
    elif kind == 4:
        return np.ma.masked_array(array)
    else:
        return array.view(np.recarray) if array.ndim else array[()]
    return array


def _unaligned(t: Tensor, rng: Random) -> Any:
    array = t.detach().numpy()
    memory = np.zeros(array.nbytes + 1, np.uint8)
    odd = memory[1:].view(array.dtype).reshape(array.shape)
    odd[...] = array
    return odd


def _wrong_values(t: Tensor, rng: Random) -> Tensor:
    if t.dtype is torch.int64 and t.numel():
        t = t.clone()
        t.view(-1)[rng.randrange(t.numel())] = rng.choice([-1, 100, 2**62, -(2**63), 2**63 - 1])
        return t
    if t.is_floating_point():
        return torch.full_like(t, rng.choice([float("nan"), float("inf"), -0.0, 1e-45]))
    return t


def _special(t: Tensor, rng: Random) -> Any:
    kind = rng.randrange(5)
    if kind == 0:
        return torch._efficientzerotensor(tuple(t.shape), dtype=t.dtype)
    if kind == 1:
        return torch.nn.parameter.UninitializedParameter()
    if kind == 2:
        return torch.nn.Buffer(t.detach())
    if kind == 3:
        return torch.empty(1).expand(2**40).to(t.dtype) if t.dtype is torch.float32 else t
    return torch.ones(3, dtype=t.dtype)[torch.tensor([], dtype=torch.int64)]


def _thing(t: Tensor, rng: Random) -> Any:
    return rng.choice(THINGS)


THINGS: list[Any] = [
    None, 3, 2.5, True, 1j, "x", b"x", "\ud800", [], [1.0], (), {}, {"a": 1}, 2**70, float("nan"),
    object(), torch.float32, torch.Size([2]), range(3), iter([1]), torch.device("cpu"),
    np.float32(1), np.int64(3), len, Tensor, slice(None), ..., NotImplemented, np.array(["a"]),
    memoryview(b"abc"),
]  # fmt: skip

TENSORS: dict[str, Exotic] = {
    "noncontiguous": Exotic(_noncontiguous),
    "offset": Exotic(_offset),
    "expanded": Exotic(_expanded),
    "overlapping": Exotic(_overlapping),
    "negative bit": Exotic(_negative),
    "imaginary part": Exotic(_imaginary),
    "conjugate": Exotic(_conjugate, True),
    "requires grad": Exotic(_leaf),
    "non-leaf": Exotic(_non_leaf),
    "parameter": Exotic(_parameter),
    "subclass": Exotic(lambda t, rng: t.detach().as_subclass(Plain)),
    "wrapper subclass": Exotic(lambda t, rng: Wrapper(t.detach())),
    "refusing subclass": Exotic(lambda t, rng: t.detach().as_subclass(Refusing)),
    "another dtype": Exotic(_other_dtype),
    "one dimension more": Exotic(lambda t, rng: t.unsqueeze(0)),
    "no dimension": Exotic(lambda t, rng: torch.ones((), dtype=t.dtype)),
    "one more": Exotic(lambda t, rng: torch.cat([t, t[:1]]) if t.dim() and t.shape[0] else t),
    "empty": Exotic(lambda t, rng: torch.empty((0,) * t.dim(), dtype=t.dtype)),
    "freed": Exotic(_freed),
    "cut short": Exotic(_cut_short),
    "sparse": Exotic(_sparse, True),
    "blocks": Exotic(_blocks, True),
    "quantized": Exotic(_quantized, True),
    "nested": Exotic(_nested, True),
    "meta": Exotic(lambda t, rng: t.detach().to("meta")),
    "fake": Exotic(_fake),
    "functional": Exotic(_functional),
    "mkldnn": Exotic(_mkldnn, True),
    "inference": Exotic(_inference),
    "escaped from vmap": Exotic(_escaped_batch),
    "escaped from grad": Exotic(_escaped_grad),
    "dual of an ended level": Exotic(_dual),
    "masked": Exotic(_masked),
    "array": Exotic(_array),
    "odd array": Exotic(_odd_array),
    "unaligned array": Exotic(_unaligned),
    "wrong values": Exotic(_wrong_values),
    "special": Exotic(_special),
    "thing": Exotic(_thing),
}
