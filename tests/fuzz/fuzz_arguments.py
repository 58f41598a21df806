"""Calls that fit each operator, and the same calls with arguments spoiled."""

from __future__ import annotations

import decimal
import fractions
import operator as operators
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
import torch
from fuzz_tensors import TENSORS, THINGS, Wrapper
from torch import Tensor

from opsmith import Operator
from opsmith.signature import Parameter, ScalarType

#: Where these have one more element, or one fewer, they fit no longer.
_BOUND = frozenset("bias total mask".split())
_FIXED_RANK = frozenset("x bias total mask rows".split())


@dataclass
class Call:
    """One call.

    Attributes:
        arguments: by name.
        spoiled: what was done to which argument.
        must_refuse: whether the call may not be accepted where tensors are real.
        undefined: whether the arguments have no values that one could compare with.
        malformed: whether arguments are missing, or there are others.
    """

    arguments: dict[str, Any]
    spoiled: dict[str, str] = field(default_factory=dict)
    must_refuse: bool = False
    undefined: bool = False
    malformed: bool = False


def fitting(
    operator: Operator, rng: Random, dtypes: tuple[torch.dtype, ...], length: int | None
) -> dict[str, Any]:
    """The arguments of a call that fits, with lists of tensors of this length, or of any."""
    dtype = rng.choice(dtypes)

    def some(*shape: int) -> Tensor:
        count = int(np.prod(shape)) if shape else 1
        values = [rng.uniform(-4, 4) for _ in range(count)]
        return torch.tensor(values, dtype=dtype).reshape(shape)

    def size(least: int = 0) -> int:
        return rng.randint(least, 5)

    n, m, p = size(), size(), size()
    match operator.signature.name:
        case "scale":
            shape = [size(1) for _ in range(rng.randint(0, 3))]
            return {"x": some(*shape), "k": rng.uniform(-3, 3), "flip": rng.random() < 0.5}
        case "take" | "in_python":
            n = max(n, 1)
            rows = torch.tensor([rng.randrange(n) for _ in range(p)], dtype=torch.int64)
            more = {}
            if operator.signature.name == "in_python":
                more = {"bias": rng.choice([None, some(m)]), "k": rng.uniform(-3, 3)}
            return {"x": some(n, m), "rows": rows, **more}
        case "blend":
            weight = rng.choice([None, rng.randint(-5, 5)])
            return {"x": some(n, m), "bias": rng.choice([None, some(m)]), "weight": weight}
        case "total":
            xs = [some(n, m) for _ in range(length or rng.randint(1, 3))]
            return {"xs": xs, "mode": rng.choice(["sum", "mean"])}
        case "add_to":
            return {"x": some(n, m), "total": some(m), "factor": rng.randint(-5, 5)}
        case "patch":
            return {"x": some(n, m), "size": (size(), size())}
        case "positive":
            return {"x": some(n)}
        case "peak":
            return {"x": some(n, m), "mask": some(n, m) > 0}
        case "spread":
            weights = [rng.uniform(-2, 2) for _ in range(size())]
            return {"x": some(n), "weights": weights, "shift": rng.uniform(-2, 2)}
    raise LookupError(operator.name)


def draw(
    operator: Operator,
    rng: Random,
    *,
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64),
    tensors_only: bool = False,
    length: int | None = None,
) -> Call:
    """A call, four times in five with one argument spoiled, or two, or with others than declared.

    Args:
        operator: of which.
        rng: decides.
        dtypes: those of floating tensors.
        tensors_only: whether to leave numbers and texts as they fit.
        length: of lists of tensors that fit; any by default.
    """
    call = Call(fitting(operator, rng, dtypes, length))
    kind = rng.random()
    if kind < 0.2:
        return call
    if kind < 0.24 and not tensors_only:
        return _malformed(operator, call, rng)
    names = [
        p.name
        for p in operator.signature.parameters
        if not tensors_only or p.tensor_type is not None
    ]
    for name in rng.sample(names, min(len(names), 1 if kind < 0.85 else 2)):
        _spoil(call, operator.signature.by_name[name], rng)
    sizes = [how for how in call.spoiled.values() if how in ("one more", "empty")]
    if len(sizes) == len(call.spoiled) == 2:  # they may fit each other
        call.must_refuse = False
    return call


def _malformed(operator: Operator, call: Call, rng: Random) -> Call:
    call.malformed = call.must_refuse = True
    kind = rng.randrange(2)
    if kind == 0:
        first = operator.signature.parameters[0].name
        del call.arguments[first]
        call.spoiled[first] = "missing"
    else:
        call.arguments["nothing_so_called"] = rng.choice(THINGS)
        call.spoiled["nothing_so_called"] = "unknown"
    return call


def _spoil(call: Call, parameter: Parameter, rng: Random) -> None:
    name, value = parameter.name, call.arguments[parameter.name]
    if isinstance(value, Tensor):
        call.arguments[name] = _other_tensor(call, name, value, rng)
    elif parameter.is_tensor_list:
        if rng.random() < 0.75:
            at = rng.randrange(len(value))
            other = _other_tensor(call, f"{name}[{at}]", value[at], rng)
            call.arguments[name] = [*value[:at], other, *value[at + 1 :]]
        else:
            call.arguments[name], call.spoiled[name] = rng.choice(
                [([], "empty"), (None, "None"), (tuple(value), "tuple"), (value[0], "tensor"),
                 ([*value, None], "hole"), (iter(value), "iterator"), ({0: value[0]}, "dict"),
                 (rng.choice(THINGS), "thing"), ([value], "nested")]
            )  # fmt: skip
    else:
        other = _other_sequence(value, rng) if isinstance(value, list | tuple) else _scalar(rng)
        call.arguments[name] = other
        # The declaration says so, and the reference would make so large a result.
        items = other if name == "size" and isinstance(other, list | tuple) else ()
        call.must_refuse |= any(isinstance(i, int) and not 0 <= i <= 64 for i in items)
        call.spoiled[name] = f"{type(other).__name__} {str(other)[:40]!r}"


def _other_tensor(call: Call, place: str, value: Tensor, rng: Random) -> Any:
    kind = rng.choice(list(TENSORS))
    exotic = TENSORS[kind]
    try:
        other = exotic.make(value, rng)
    except Exception:  # PyTorch makes no such tensor of this dtype or shape
        return value
    call.spoiled[place] = kind
    name = place.partition("[")[0]
    refused = exotic.refused and (not isinstance(other, Tensor) or other is not value)
    # PyTorch's own operators read past the end of both.
    call.undefined |= kind in ("freed", "cut short")
    if kind in ("no dimension", "one dimension more"):
        refused = name in _FIXED_RANK and other.dim() != value.dim() and value.dim() > 0
    if kind in ("one more", "empty"):
        refused = name in _BOUND and other.shape != value.shape
    if kind == "another dtype":
        refused = not other.is_floating_point()
        refused = refused or value.dtype in (torch.int64, torch.bool)
    if kind == "wrong values":
        refused = value.dtype is torch.int64 and value.numel() > 0
    call.must_refuse |= refused
    # The rank of `scale` is free.
    if name == "x" and "k" in call.arguments and "rows" not in call.arguments and "dim" in kind:
        call.must_refuse = False
    return other


class _Indexed:
    def __index__(self) -> int:
        return 3


class _Raising:
    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __float__(self) -> float:
        raise RuntimeError("no float")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")


_NUMBERS: list[Any] = [
    0, 1, -1, 3, True, 2**31, 2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**64, 2**70, 10**400,
    1.5, float("nan"), float("inf"), -float("inf"), 1e308, 1e39, 2.0, 1j, "1", "sum", "mean", "",
    "\ud800", "summe", b"sum", None, np.int32(2), np.uint64(2**64 - 1), np.float32(1.5),
    np.float64(0.5), np.bool_(True), np.array(2), np.array(2.5), np.array([2]), np.array([1, 2]),
    torch.tensor(2),
    torch.tensor(2.5), torch.tensor([2]), torch.tensor([1, 2]), torch.tensor(True),
    torch.tensor(1j), torch.tensor(2, device="meta"), torch.tensor(2.0, requires_grad=True),
    torch.tensor(1.0).to_sparse(), fractions.Fraction(1, 2), decimal.Decimal("0.5"), _Indexed(),
    _Raising(), object(), [], [1], (1, 2), {}, torch.float32, int, len,
]  # fmt: skip


def _scalar(rng: Random) -> Any:
    return rng.choice(_NUMBERS)


def _other_sequence(value: Any, rng: Random) -> Any:
    kind = rng.randrange(8)
    if kind < 4 and value:
        at = rng.randrange(len(value))
        items = [*value[:at], _scalar(rng), *value[at + 1 :]]
        return tuple(items) if rng.random() < 0.5 else items
    if kind == 4:
        return [*value, 1]
    if kind == 5:
        return np.array(value)
    if kind == 6:
        return torch.tensor(value)
    return _scalar(rng)


class NotPlain(Exception):
    """An argument that no reference could take: accepting it is wrong."""


def plain(operator: Operator, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as dense tensors of their own memory, and as Python's numbers.

    Raises:
        NotPlain: one of them is none.
    """
    found = {}
    for parameter in operator.signature.parameters:
        if parameter.name not in arguments:
            continue
        value = arguments[parameter.name]
        if value is None:
            found[parameter.name] = None
        elif parameter.is_tensor:
            found[parameter.name] = plain_tensor(value)
        elif parameter.is_tensor_list:
            found[parameter.name] = [plain_tensor(item) for item in value]
        elif isinstance(parameter.type, ScalarType):
            found[parameter.name] = _plain_number(parameter.type.kind, value)
        else:
            kind = parameter.type.kind  # type: ignore[union-attr]
            found[parameter.name] = tuple(_plain_number(kind, item) for item in value)
    return found


def plain_tensor(value: Any) -> Tensor:
    """A tensor or an array as a dense tensor of its own memory."""
    if isinstance(value, Tensor):
        if isinstance(value, Wrapper):
            value = value.inner
        if torch._is_functional_tensor(value):
            value = torch._from_functional_tensor(value)
        if value.layout is not torch.strided or value.is_quantized or value.is_nested:
            raise NotPlain("not dense")
        value = value.detach().as_subclass(Tensor)
        if value.device.type != "cpu":
            return value
        if not value.numel():
            return torch.empty(value.shape, dtype=value.dtype)
        return value.resolve_conj().resolve_neg().contiguous().clone()
    try:
        array = np.array(value)
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
    except Exception as error:
        raise NotPlain(str(error)) from error


def _plain_number(kind: str, value: Any) -> Any:
    if value is None and kind == "bool":
        return False
    if isinstance(value, Tensor | np.ndarray | np.generic) and kind != "str":
        value = value.item()
        if kind == "int" and isinstance(value, float) and value.is_integer():
            return int(value)
    try:
        if kind == "int":
            return operators.index(value)
        if kind == "float":
            return float(value)
        if kind == "bool":
            return bool(value)
    except Exception as error:
        raise NotPlain(f"{value!r} for {kind}") from error
    if isinstance(value, bytes):  # which PyTorch takes for a text
        return value.decode()
    if not isinstance(value, str):
        raise NotPlain(f"{value!r} for str")
    return value
