"""Ways in which PyTorch lets an operator be called: each takes a function and its arguments.

What a way returns is compared with the reference: see `Way`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

Arguments = Mapping[str, Any]
Way = Callable[[Callable[..., Any], Arguments, Random], Any]

#: What a way returns whose results are no numbers to compare.
UNSEEN = object()


def _by_name(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    return call(**arguments)


def _by_position(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    by_name = {"shift", "nothing_so_called"}
    if next(iter(arguments), None) not in ("x", "xs"):  # the first is missing
        return call(**arguments)
    named = {name: value for name, value in arguments.items() if name in by_name}
    return call(*(value for name, value in arguments.items() if name not in by_name), **named)


def _in_a_thread(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    found: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(call(**arguments))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found[0]


class Killed(Exception):
    """A forked child died of a signal."""


def _in_a_fork(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                call(**arguments)
            except Exception as error:
                os.write(write, f"{type(error).__name__}: {error}".encode(errors="replace")[:60000])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        raise Killed(f"signal {os.WTERMSIG(status)}")
    if said:
        raise RuntimeError(said.decode(errors="replace"))
    return UNSEEN


def _inference(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    with torch.inference_mode():
        return call(**arguments)


def _no_grad(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    with torch.no_grad():
        return call(**arguments)


def _autocast(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return call(**arguments)


def _backward(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    leaves = {
        name: value.detach().requires_grad_()
        if isinstance(value, Tensor) and value.is_floating_point()
        else value
        for name, value in arguments.items()
        if name != "total"
    } | {name: value for name, value in arguments.items() if name == "total"}
    result = call(**leaves)
    for value in result if isinstance(result, tuple) else (result,):
        if value.requires_grad:
            value.sum().backward(retain_graph=True)
    return result


def _floating(arguments: Arguments) -> list[str]:
    return [
        name
        for name, value in arguments.items()
        if isinstance(value, Tensor) and value.is_floating_point() and name != "total"
    ]


def _over(
    call: Callable[..., Any], arguments: Arguments, names: list[str]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of some arguments alone, and them."""

    def function(*values: Any) -> Any:
        return call(**{**arguments, **dict(zip(names, values, strict=True))})

    return function, tuple(arguments[name] for name in names)


def _jvp(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    function, primals = _over(call, arguments, _floating(arguments))
    if not primals:
        return call(**arguments)
    return torch.func.jvp(function, primals, tuple(torch.ones_like(one) for one in primals))[0]


def _forward_ad(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        dual = {
            name: forward_ad.make_dual(arguments[name], torch.ones_like(arguments[name]))
            for name in _floating(arguments)
        }
        result = call(**{**arguments, **dual})
        return tree_map(
            lambda one: forward_ad.unpack_dual(one).primal if isinstance(one, Tensor) else one,
            result,
        )


def _vjp(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    function, primals = _over(call, arguments, _floating(arguments))
    if not primals:
        return call(**arguments)

    def differentiable(*values: Any) -> Any:
        results = function(*values)
        many = results if isinstance(results, tuple) else (results,)
        return tuple(one for one in many if one.is_floating_point()), results

    return torch.func.vjp(differentiable, *primals, has_aux=True)[2]


def _vmap(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    names = [name for name, value in arguments.items() if isinstance(value, Tensor)]
    names = [name for name in names if name == "total" or rng.random() < 0.7] or names
    if "total" in arguments and isinstance(arguments["total"], Tensor) and "total" not in names:
        names.append("total")
    function, values = _over(call, arguments, names)
    if not values:
        return call(**arguments)
    stacked = tuple(torch.stack([value, value]) for value in values)
    return tree_map(lambda one: one[1], torch.func.vmap(function)(*stacked))


def _functionalize(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    names = [name for name, value in arguments.items() if isinstance(value, Tensor)]
    function, values = _over(call, arguments, names)
    return torch.func.functionalize(function)(*values)


def _make_fx(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx

    names = [name for name, value in arguments.items() if isinstance(value, Tensor)]
    function, values = _over(call, arguments, names)
    mode = rng.choice(["real", "fake", "symbolic"])
    make_fx(function, tracing_mode=mode, _allow_non_fake_inputs=True)(*values)
    return UNSEEN


def _under_fake_mode(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = {
            name: mode.from_tensor(value) if isinstance(value, Tensor) else value
            for name, value in arguments.items()
        }
        call(**fake)
    return UNSEEN


def _on_meta(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    call(
        **{
            name: value.to("meta") if isinstance(value, Tensor) else value
            for name, value in arguments.items()
        }
    )
    return UNSEEN


def _jit_trace(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    names = [name for name, value in arguments.items() if isinstance(value, Tensor)]
    function, values = _over(call, arguments, names)
    torch.jit.trace(function, values, check_trace=False)
    return UNSEEN


class _Model(torch.nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *values: Any) -> Any:
        return self.call(*values)


def _torch_export(call: Callable[..., Any], arguments: Arguments, rng: Random) -> Any:
    names = [name for name, value in arguments.items() if isinstance(value, Tensor)]
    function, values = _over(call, arguments, names)
    torch.export.export(_Model(function), values, strict=False)
    return UNSEEN


EAGER: dict[str, Way] = {
    "by name": _by_name,
    "by position": _by_position,
    "in a thread": _in_a_thread,
    "in a fork": _in_a_fork,
    "in inference mode": _inference,
    "without gradients": _no_grad,
    "with backward": _backward,
}
TRANSFORMS: dict[str, Way] = {
    "jvp": _jvp,
    "forward_ad": _forward_ad,
    "vjp": _vjp,
    "vmap": _vmap,
    "functionalize": _functionalize,
    "autocast": _autocast,
}
TRACING: dict[str, Way] = {
    "make_fx": _make_fx,
    "fake tensors": _under_fake_mode,
    "meta tensors": _on_meta,
    "jit.trace": _jit_trace,
    "export": _torch_export,
}
#: Out of so many calls; 1 where nothing is said.
RARE = {"in a fork": 0.02, "export": 0.03, "jit.trace": 0.3}


def choose(ways: Mapping[str, Way], rng: Random) -> str:
    """A way, rare ones rarely."""
    names = list(ways)
    return rng.choices(names, [RARE.get(name, 1.0) for name in names])[0]
