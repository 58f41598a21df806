"""PyTorch's caches of compiled graphs outlive a process, and what was traced into them."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith

OPERATOR = """
import torch
from jaxtyping import Float
from torch import Tensor
import opsmith

@opsmith.op("graph_caches::widened")
def widened(x: Float[Tensor, "N"]) -> Float[Tensor, "{rows}"]:
    return x.repeat({times})

@widened.register_autograd
def backward(ctx, grad):
    return scaled(grad).view({times}, -1).sum(0)

# No part of the backward, and in its file.
def scaled(grad):
    return {factor} * grad

x = torch.ones(3, requires_grad=True)
result = torch.compile(lambda x: widened(x) + 1, fullgraph=True)(x)
result.sum().backward()
print(len(result))
print(x.grad.tolist())
hits = torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"]
print("cached" if hits else "compiled")
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Writes a file, runs it in a fresh process, and gives what it printed."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))

    def run(rows: str, times: int, factor: int) -> list[str]:
        file = tmp_path / "operator_file.py"
        file.write_text(OPERATOR.format(rows=rows, times=times, factor=factor))
        done = subprocess.run([sys.executable, file], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.mark.long
def test_a_graph_is_compiled_again_when_what_was_traced_into_it_has_changed(run):
    assert run("N", 1, factor=2) == ["3", "[2.0, 2.0, 2.0]", "compiled"]
    assert run("N", 1, factor=2) == ["3", "[2.0, 2.0, 2.0]", "cached"]
    assert run("N", 1, factor=3) == ["3", "[3.0, 3.0, 3.0]", "compiled"]
    assert run("2*N", 2, factor=3) == ["6", "[6.0, 6.0, 6.0]", "compiled"]


def tag() -> str:
    return torch.compiler.config.cache_key_tag


def declare(name: str, doc: str = "") -> opsmith.Operator:
    def function(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    function.__doc__ = doc
    return opsmith.op(f"graph_caches::{name}", function)


def times(factor: float) -> Any:
    return lambda ctx, grad: grad * factor


def scaled(factor: float, ctx: Any, grad: Tensor) -> Tensor:
    return grad * factor


@torch.compiler.config.patch(cache_key_tag="mine")
def test_the_key_follows_what_is_traced_and_nothing_else():
    first = declare("first")
    alone = tag()
    assert alone.startswith("mine|opsmith:")
    declare("second")
    both = tag()
    assert both != alone
    first.register_kernel("cpu")(lambda x: x * 2)
    declare("first")
    assert tag() == both
    first = declare("first")
    seen = {both}
    for register in (
        lambda: first.register_fake(lambda x: torch.empty_like(x)),
        lambda: first.register_fake(lambda x: x.new_empty(x.shape)),
        lambda: first.register_autograd(lambda ctx, grad: grad * 2),
        lambda: first.register_autograd(lambda ctx, grad: grad * 3),
        *(lambda k=k: first.register_autograd(times(k)) for k in (4, 5)),
        *(lambda k=k: first.register_autograd(functools.partial(scaled, k)) for k in (4, 5)),
        lambda: first.register_autocast("cpu", torch.bfloat16),
        lambda: first.register_autocast("cpu", torch.float16),
        lambda: first.register_vmap(lambda info, dims, x: (first(x), dims[0])),
    ):
        register()
        assert tag() not in seen
        seen.add(tag())
    declare("first")
    assert tag() == both


def test_a_tag_that_the_user_sets_is_kept():
    declare("third")
    with torch.compiler.config.patch(cache_key_tag=""):
        declare("fourth")
        ours = tag()
    with torch.compiler.config.patch(cache_key_tag="later"):
        declare("fourth")
        assert tag() == f"later{ours}"


@pytest.mark.slow
def test_the_key_is_the_same_in_every_process_and_order(tmp_path: Path):
    (tmp_path / "ones.py").write_text(
        "import opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        "@opsmith.op('graph_caches::one')\n"
        "def one(x: Float[Tensor, 'N']) -> Float[Tensor, 'N']:\n"
        "    return x * 2 if x.dtype in {'a', 'b', 'c'} else x\n"
    )
    text = (tmp_path / "ones.py").read_text().replace("one", "two")
    (tmp_path / "twos.py").write_text(text)
    keys = set()
    for order in ("ones, twos", "twos, ones"):
        program = f"import {order}, torch; print(torch.compiler.config.cache_key_tag)"
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        keys.add(done.stdout)
    assert len(keys) == 1
