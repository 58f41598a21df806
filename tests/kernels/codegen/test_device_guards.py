"""Value ranges compared on the device, by a kernel that is emulated here."""

from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Float32, Int32, Int64, UInt8
from torch import Tensor

import opsmith
from opsmith import Between, Extent, Index
from opsmith.checks import harness
from opsmith.checks.harness import Phase
from opsmith.kernels import cache_folder, kernel_source
from opsmith.kernels.codegen.render import guards_of
from opsmith.kernels.languages.emulated_cuda import emulated
from opsmith.signature import signature_of

pytestmark = pytest.mark.slow(cases=2)


@pytest.fixture(autouse=True, scope="module")
def cache() -> Path:
    """Build in the usual cache, which has the emulator's runtime."""
    return cache_folder()


def pick(
    x: Float32[Tensor, "N"],
    index: Annotated[Int32[Tensor, "P"], Index("N")],
    starts: Annotated[Int64[Tensor, "I"], Index("N")],
    lengths: Annotated[Int64[Tensor, "I"], Extent(start="starts", bound="N")],
    kind: Annotated[UInt8[Tensor, "P"], Between(0, 2)],
    rows: Annotated[Float32[Tensor, "P 3"], Index("N", column=1), Index(3, column=2)],
) -> tuple[Float32[Tensor, "P"], Float32[Tensor, "I"]]:
    return x, x


SIGNATURE = signature_of(pick, "values_on_device::pick")
KERNEL = """\
#include "pick.h"

#include <opsmith/cuda.h>

__global__ void pick_elements(const float* x, const int32_t* index, const uint8_t* kind,
                              const float* rows, int64_t n, float* out) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= n) return;
  const float* row = rows + 3 * i;
  const float factors[] = {1, 2, 3};
  out[i] = x[index[i]] * kind[i] + row[0] * x[int(row[1])] * factors[int(row[2])];
}
__global__ void sum_runs(const float* x, const int64_t* starts, const int64_t* lengths, int64_t n,
                         float* out) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
  for (int64_t k = 0; k < lengths[i]; ++k) sum += x[starts[i] + k];
  out[i] = sum;
}

void pick(const opsmith::Context& ctx, const values_on_device::pick_args& a) {
  if (a.P > 0) {
    opsmith::launch(ctx, pick_elements, opsmith::blocks_for(a.P, 64), 64, 0, a.x.data(),
                    a.index.data(), a.kind.data(), a.rows.data(), a.P, a.out0.data());
  }
  if (a.I > 0) {
    opsmith::launch(ctx, sum_runs, opsmith::blocks_for(a.I, 64), 64, 0, a.x.data(),
                    a.starts.data(), a.lengths.data(), a.I, a.out1.data());
  }
}
OPSMITH_KERNEL(values_on_device, pick, cuda)
"""
PHASES = [Phase(seed=seed, fill=0xFF, emulated=True) for seed in (1, 2)]


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> harness.Build:
    source = Path(tmp_path_factory.mktemp("device")) / "pick.cu"
    source.write_text(KERNEL)
    return harness.build(
        emulated(kernel_source(SIGNATURE, "cuda", source), watched=True), emulated=True
    )


def case(**changes: list[Any]) -> dict[str, Tensor]:
    values = {
        "index": [0, 4, 2] * 30,
        "starts": [0, 3, 4],
        "lengths": [5, 2, 0],
        "kind": [0, 1, 2] * 30,
        "rows": [[0.5, 4, 2], [-7.25, 0, 0], [9, 2, 1]] * 30,
        **changes,
    }
    dtypes = {"index": torch.int32, "kind": torch.uint8, "rows": torch.float32}
    tensors = {
        name: torch.tensor(value, dtype=dtypes.get(name, torch.int64))
        for name, value in values.items()
    }
    return {"x": torch.arange(5.0) + 1, **tensors}


@pytest.mark.long
def test_values_that_are_admitted_arrive_as_they_are(build):
    given = case()
    (calls,) = zip(*harness.run(build, SIGNATURE, [given], PHASES), strict=True)
    for one in calls:
        assert not one.refused
        factor, row, times = given["rows"].unbind(1)
        picked = given["x"][given["index"].long()] * given["kind"]
        picked += given["x"][row.long()] * factor * (times + 1)
        torch.testing.assert_close(one.results[0], picked)
        assert one.results[1].tolist() == [15.0, 9.0, 0.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"index": [0, 1, 5] + [0] * 87},
            "argument 'index' has value 5 at element 2, expected 0 <= value < 5 (N).",
        ),
        (
            {"index": [-1] + [0] * 89},
            "argument 'index' has value -1 at element 0, expected 0 <= value < 5 (N).",
        ),
        (
            {"starts": [0, 3, 2**40]},
            "argument 'starts' has value 1099511627776 at element 2, expected 0 <= value < 5 (N).",
        ),
        (
            {"lengths": [5, 3, 0]},
            "argument 'lengths' has value 3 at element 1, expected 0 <= value and starts + value "
            "<= 5 (N).",
        ),
        (
            {"lengths": [5, 2, -1]},
            "argument 'lengths' has value -1 at element 2, expected 0 <= value and starts + value "
            "<= 5 (N).",
        ),
        (
            {"rows": [[0.5, 4, 2], [0.5, 5, 2]] + [[0.5, 0, 0]] * 88},
            "argument 'rows' has value 5.0 at element 4, expected a whole number with "
            "0 <= value < 5 (N).",
        ),
        (
            {"rows": [[0.5, 4, 2.5]] + [[0.5, 0, 0]] * 89},
            "argument 'rows' has value 2.5 at element 2, expected a whole number with "
            "0 <= value < 3.",
        ),
        (
            {"rows": [[0.5, float("nan"), 2]] + [[0.5, 0, 0]] * 89},
            "argument 'rows' has value nan at element 1, expected a whole number with "
            "0 <= value < 5 (N).",
        ),
        (
            {"kind": [0, 3] + [1] * 88},
            "argument 'kind' has value 3 at element 1, expected 0 <= value < 3.",
        ),
    ],
)
def test_a_value_that_is_not_is_named_and_nothing_is_read_beside_memory(build, changes, message):
    for (one,) in harness.run(build, SIGNATURE, [case(**changes)], PHASES):
        assert one.refused == f"values_on_device::pick: {message}"


def test_only_integers_that_are_read_are_looked_at():
    def changed(
        x: Annotated[Float32[Tensor, "N"], Between(0, 1)],
        into: Annotated[Int32[Tensor, "N"], Index("N")],
        read: Annotated[Int32[Tensor, "N"], Index("N")],
    ) -> None: ...

    signature = signature_of(changed, "values_on_device::changed", mutates_args=("into",))
    assert [guard.name for guard in guards_of(signature)] == ["read"]


def test_the_environment_leaves_it_out_and_the_kernel_reads_what_came(build, monkeypatch):
    monkeypatch.setenv("OPSMITH_CHECK_VALUES", "0")
    with pytest.raises(harness.Fault, match="past the end of argument 'x'"):
        harness.run(build, SIGNATURE, [case(index=[0, 1, 5] + [0] * 87)], PHASES)


def test_indices_whose_dtype_each_call_chooses_are_looked_at_too() -> None:
    ids = opsmith.DtypeVar("Ids", Int32, Int64)
    mixed = opsmith.DtypeVar("Mixed", Int32, Float32)

    def chosen(
        x: Float32[Tensor, "N"],
        index: Annotated[ids[Tensor, "P"], Index("N")],
        factor: Annotated[mixed[Tensor, "P"], Between(0, 1)],
        boxes: Annotated[Float[Tensor, "P 5"], Index("N", column=0)],
        either: Annotated[mixed[Tensor, "P 2"], Index("N", column=1)],
    ) -> Float32[Tensor, "P"]:
        return x

    # Other floating-point values make no kernel read outside its memory, and are not looked at.
    found = guards_of(signature_of(chosen, "values_on_device::chosen"))
    assert [guard.name for guard in found] == ["index", "boxes", "either"]
