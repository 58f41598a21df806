"""What else people check with: one shape and allclose, opcheck, gradcheck."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
from typing import Any

import torch
from torch import Tensor

from opsmith import Operator
from opsmith.checks.numerics.gradients import has_gradient
from opsmith.operators.core.arguments import every_tensor_in, map_tensors


def sample(operator: Operator) -> dict[str, Any]:
    """Arguments as a test by hand has them: one shape, contiguous, normally distributed."""
    made: dict[str, Any] = {}
    torch.manual_seed(0)
    sizes: dict[str, int] = {}
    for parameter in operator.signature.parameters:
        type_ = parameter.tensor_type
        if type_ is None or type_.shape is None:
            made[parameter.name] = parameter.default
            continue
        # Make sizes small where there are many dimensions: six large ones would be gigabytes.
        first, step = (16, 8) if len(type_.shape.dims) < 4 else (2, 1)
        shape = [sizes.setdefault(str(dim), first + step * len(sizes)) for dim in type_.shape.dims]
        names = type_.dtypes.names
        dtype = torch.float32 if type_.dtypes.generic else getattr(torch, names[0])
        tensor = torch.randn(shape) * (1 if dtype.is_floating_point else 10)
        value = tensor.to(dtype)
        made[parameter.name] = [value, value.clone()] if parameter.is_tensor_list else value
    return made


def allclose(operator: Operator, arguments: dict[str, Any]) -> bool:
    """Whether one comparison with the reference finds the fault."""
    other = {k: map_tensors(v, Tensor.clone) for k, v in arguments.items()}
    gave, expected = operator(**arguments), operator.reference(**other)
    if expected is None:
        gave, expected = ([t for _, t in every_tensor_in(one)] for one in (arguments, other))
    pairs = zip(_several(gave), _several(expected), strict=True)
    return not all(torch.allclose(a.double(), b.double(), 1e-2, 1e-2) for a, b in pairs)


def opcheck(operator: Operator, arguments: dict[str, Any]) -> bool:
    """Whether `torch.library.opcheck` finds it."""
    if has_gradient(operator) and not operator.signature.mutated:
        arguments = {
            k: v.requires_grad_() if isinstance(v, Tensor) and v.is_floating_point() else v
            for k, v in arguments.items()
        }
    torch.library.opcheck(operator.overload, (), arguments)
    return False


def gradcheck(operator: Operator, arguments: dict[str, Any]) -> bool:
    """Whether `torch.autograd.gradcheck` finds it."""
    if operator.signature.mutated or not has_gradient(operator):
        return False
    small = {
        k: v[tuple(slice(0, 3) for _ in v.shape)].double().requires_grad_()
        if isinstance(v, Tensor) and v.is_floating_point()
        else v
        for k, v in arguments.items()
    }
    names = [k for k, v in small.items() if isinstance(v, Tensor) and v.requires_grad]

    def call(*tensors: Tensor) -> Any:
        return operator(**{**small, **dict(zip(names, tensors, strict=True))})

    return not torch.autograd.gradcheck(call, [small[name] for name in names])


def _several(results: Any) -> list[Tensor]:
    return [results] if isinstance(results, Tensor) else list(results)


def _apart(peer: Any) -> Any:
    """Run in a process of its own: what finds a fault by dying has found it."""

    def run(operator: Operator, arguments: dict[str, Any]) -> bool:
        def work() -> None:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                try:
                    wrong = peer(operator, arguments)
                except NotImplementedError:
                    wrong = False
                except Exception as error:
                    # A checker that cannot take the operator at all has found nothing.
                    wrong = not isinstance(error, ValueError | TypeError)
            raise SystemExit(42 if wrong else 41)

        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join(60)
        if process.is_alive():
            process.kill()
            process.join()
            return True
        return process.exitcode != 41

    return run


_PEERS = {"allclose": _apart(allclose), "opcheck": _apart(opcheck), "gradcheck": _apart(gradcheck)}
NAMES = tuple(_PEERS)


def found_by(wrong: Operator, right: Operator) -> list[str]:
    """Who tells a wrong operator from its right twin."""
    return [
        name
        for name, peer in _PEERS.items()
        if peer(wrong, sample(wrong)) and not peer(right, sample(right))
    ]
