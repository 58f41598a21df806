"""What a call writes into counts as written, in C++ and, where that cannot be built, in Python."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.operators.dispatch.gates import autograd_gate

pytestmark = pytest.mark.slow

KERNEL = """
#include <opsmith/kernel.h>
#include "NAME.h"
template <typename T>
void NAME(const opsmith::Context& ctx, const versions::NAME_args<T>& a) {
  if (a.N == 13) ctx.fail("thirteen");
  for (int64_t n = 0; n < a.N; ++n) {
    a.out[n] = 2 * a.x[n];
    if (a.also) a.also[n] = 3 * a.x[n];
  }
}
OPSMITH_KERNEL(versions, NAME, cpu, float)
"""


def operator(name: str) -> opsmith.Operator:
    @opsmith.op(f"versions::{name}", mutates_args=("out", "also"))
    def scale_into(
        x: Float[Tensor, "N"], out: Float[Tensor, "N"], also: Float[Tensor, "N"] | None = None
    ) -> None:
        out.copy_(2 * x)
        if also is not None:
            also.copy_(3 * x)

    return scale_into


@pytest.fixture(scope="module", params=["in_cpp", "in_python"])
def scale_into(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> opsmith.Operator:
    """The operator with its gate, and as it is where the gate cannot be built."""
    declared = operator(request.param)
    path = tmp_path_factory.mktemp(request.param) / f"{request.param}.cpp"
    path.write_text(KERNEL.replace("NAME", request.param))
    declared.register_kernel("cpu", source=path, flags=("-O0",))
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "in_python":
            patch.setattr(autograd_gate, "load", functools.cache(lambda: None))
        declared.build()
    return declared


def test_every_tensor_that_is_written_counts_it_and_no_other(scale_into) -> None:
    x, out, also = torch.ones(3), torch.zeros(3), torch.zeros(3)
    scale_into(x, out)
    assert (x._version, out._version) == (0, 1)
    scale_into(x, also=also, out=out)
    assert (x._version, out._version, also._version) == (0, 2, 1)
    with torch.no_grad():
        scale_into(x, out, None)
    assert out._version == 3
    assert out.tolist() == [2, 2, 2] and also.tolist() == [3, 3, 3]


def test_a_view_and_its_base_count_together(scale_into) -> None:
    base = torch.zeros(4, 3)
    row = base[1]
    for out in (row, base.T[:, 2]):
        before = base._version
        scale_into(torch.ones(3), out)
        assert base._version == row._version == before + 1
    assert base[1:3].tolist() == [[2, 2, 2], [2, 2, 2]]


def test_a_call_that_fails_counts_nothing(scale_into) -> None:
    out = torch.zeros(13)
    with pytest.raises(RuntimeError, match="thirteen"):
        scale_into(torch.ones(13), out)
    assert out._version == 0


def test_inference_tensors_have_no_counter(scale_into) -> None:
    with torch.inference_mode():
        inside, x = torch.zeros(3), torch.ones(3)
        scale_into(x, inside)
    outside = torch.zeros(3)
    scale_into(x, outside)  # one that is inferred beside one that is not
    scale_into(torch.ones(3), inside)
    assert inside.tolist() == outside.tolist() == [2, 2, 2]
    assert outside._version == 1
    with torch.inference_mode():
        scale_into(x, outside)
    assert outside._version == 2


def test_a_saved_tensor_that_a_call_overwrote_is_noticed(scale_into) -> None:
    leaf = torch.ones(3, requires_grad=True)
    weight = torch.ones(3)
    total = (leaf * weight).sum()
    with torch.no_grad():
        scale_into(torch.ones(3), weight[:])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()


def test_compiled_code_counts_too(scale_into) -> None:
    def write(x: Tensor, out: Tensor) -> Tensor:
        scale_into(x + 1, out)
        return out * 2

    for backend in ("eager", "aot_eager"):
        out = torch.zeros(3)
        compiled = torch.compile(write, fullgraph=True, backend=backend)
        assert compiled(torch.ones(3), out).tolist() == [8, 8, 8]
        assert out.tolist() == [4, 4, 4]
        assert out._version >= 1
        torch._dynamo.reset()


def test_a_tensor_that_exceeds_its_storage_is_not_written(scale_into) -> None:
    out = torch.zeros(8)[4:]
    out.untyped_storage().resize_(28)
    with pytest.raises(opsmith.ArgumentError, match="'out' has a storage that was resized to less"):
        scale_into(torch.ones(4), out)
    assert scale_into(torch.ones(3), out[:3]) is None
    assert out[:3].tolist() == [2, 2, 2]


class Subclass(Tensor):
    """Adds nothing."""


def test_compiled_code_writes_into_a_subclass_and_refuses_what_is_not_dense(scale_into) -> None:
    compiled = torch.compile(lambda x, out: scale_into(x, out), backend="aot_eager")
    for kinds in ((Tensor, Subclass), (Subclass, Tensor)):
        x, out = (torch.ones(3).as_subclass(kind) for kind in kinds)
        compiled(x, out)
        assert out.tolist() == [2, 2, 2]
        assert out._version == 1
    with pytest.raises(opsmith.ArgumentError, match="'out' is a tensor of layout _mkldnn, expec"):
        compiled(torch.ones(3), torch.ones(3).to_mkldnn())


def test_who_needs_a_gradient_is_refused(scale_into) -> None:
    with pytest.raises(
        opsmith.DifferentiationError, match="writes into 'out', 'also', and declares no gradient"
    ):
        scale_into(torch.ones(3, requires_grad=True), torch.zeros(3))


def python_calls(call: Callable[[], object]) -> list[str]:
    """The Python functions that run in a call, but for itself."""
    seen: list[str] = []

    def watch(frame, event: str, argument: object) -> None:
        if event == "call":
            seen.append(Path(frame.f_code.co_filename).name)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(before)
    return seen[1:]


def test_no_python_runs_in_a_call_that_writes(scale_into) -> None:
    x, out = torch.ones(3), torch.zeros(3)
    overload = scale_into.overload._op
    ran = python_calls(lambda: overload(x, out))
    assert out._version == 1
    if "in_cpp" in scale_into.name:
        assert ran == []
    else:
        assert "autograd.py" in ran


def test_an_operator_declared_again_gives_its_gates_back(scale_into) -> None:
    first = operator(scale_into.signature.name)
    out = torch.zeros(3)
    first(torch.ones(3), out)
    assert out._version > 0 and out.tolist() == [2, 2, 2]
