"""Sizes and values that a declaration forbids, given to what was exported: the same words."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from calling import Call
from jaxtyping import Float, Int64
from torch import Tensor
from torch.export import Dim

import opsmith
from opsmith import Index
from opsmith.targets.aotinductor.runtime import build_runner

pytestmark = pytest.mark.slow(cases=2)

KERNEL = """
#include <opsmith/kernel.h>

#include "repeat_heads.h"

template <typename T>
void repeat_heads(const opsmith::Context&, const broken_conditions::repeat_heads_args<T>& a) {
  for (int64_t t = 0; t < a.T; ++t) {
    for (int64_t h = 0; h < a.H; ++h)
      a.out[t * a.H + h] = a.q[t * a.H + h] * a.k[a.rows[t] * a.K + h / (a.H / a.K)];
  }
}
OPSMITH_KERNEL(broken_conditions, repeat_heads, cpu, float)
"""


@opsmith.op("broken_conditions::repeat_heads", where=("H % K == 0",))
def repeat_heads(
    q: Float[Tensor, "T H"],
    k: Float[Tensor, "T K"],
    rows: Annotated[Int64[Tensor, "T"], Index("T")],
) -> Float[Tensor, "T H"]:
    return q * k[rows].repeat_interleave(q.shape[1] // k.shape[1], 1)


@pytest.fixture(scope="module", autouse=True)
def kernel(tmp_path_factory: pytest.TempPathFactory) -> None:
    source = tmp_path_factory.mktemp("kernel") / "repeat_heads.cpp"
    source.write_text(KERNEL)
    repeat_heads.register_kernel("cpu", source=source)


def arguments(heads: int = 3, first: int = 0) -> tuple[Tensor, ...]:
    return torch.rand(5, 6), torch.rand(5, heads), torch.arange(5) + first


def exported(target: str, out: Path, **options: Any) -> Any:
    shapes = (({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO}),)
    opsmith.export(
        Call(repeat_heads),
        arguments(),
        dynamic_shapes=shapes,
        target=target,
        out=out,
        say=None,
        **options,
    )
    return opsmith.load(out)


def python_module(out: Path) -> Any:
    opsmith.export(repeat_heads, target="python", out=out, say=None)
    return opsmith.load(out).repeat_heads


def refusals(run: Any) -> tuple[str, str]:
    """Return the words against a number of heads and an index; the rest has to be right."""
    torch.manual_seed(0)
    right = arguments(2)
    torch.testing.assert_close(run(*right), repeat_heads(*right))
    said = []
    for wrong in (arguments(4), arguments(3, 1)):
        with pytest.raises((ValueError, RuntimeError, IndexError)) as caught:
            run(*wrong)
        said.append(str(caught.value))
    return said[0], said[1]


@pytest.mark.long
@pytest.mark.parametrize("target", ["onnxruntime", "aotinductor", "python"])
def test_a_kernel_refuses_in_the_words_of_the_declaration(target: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = python_module(out) if target == "python" else exported(target, out, form="library")
    torch.manual_seed(0)
    sizes, index = refusals(run)
    assert "repeat_heads: the arguments do not satisfy H % K == 0: 2 == 0 is false." in sizes
    assert "argument 'rows' has value 5 at index 4, expected 0 <= value < 5 (T)." in index


@pytest.mark.long
@pytest.mark.parametrize("target", ["onnxruntime", "aotinductor"])
def test_an_inlined_reference_has_its_sizes_compared(target: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = exported(target, out, form="inline")
    sizes, index = refusals(run)
    refusal = (
        f"{out}: the sizes do not fit broken_conditions::repeat_heads, whose reference is part of "
        "the model: expected inputs_0_dim_1 % inputs_1_dim_1 == 0, got inputs_0_dim_1=6, "
        "inputs_1_dim_1=4."
    )
    assert sizes == refusal
    assert "index" in index
    if target == "aotinductor":
        torch.save(arguments(4), tmp_path / "in.pt")
        command = [build_runner(), out, tmp_path / "in.pt"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode != 0, refusal in done.stderr) == (True, True), done.stderr
