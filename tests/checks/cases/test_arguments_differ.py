"""Each cohort has a case whose arguments differ, so that differences and distances are tried."""

from itertools import combinations
from typing import Annotated

import pytest
import torch
from cohort_rows import declared
from jaxtyping import Complex, Float
from torch import Tensor

import opsmith
from opsmith import Unspecified, checks
from opsmith.checks import all_checks
from opsmith.checks.trial.case_runner import CaseRunner
from opsmith.checks.trial.trial import Trial

pytestmark = pytest.mark.slow(cases=2)


FAR_APART = """
#include <opsmith/cuda.h>
#include "apart.h"
template <typename T>
__global__ void subtract(const T* a, const T* b, T* out, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i >= n) return;
  const T d = a[i] > b[i] ? a[i] - b[i] : b[i] - a[i];
  out[i] = FAULT && d > T(1e6) ? T(1e6) : d;
}
template <typename T>
void apart(const opsmith::Context& ctx, const cohorts::apart_args<T>& a) {
  if (a.N == 0) return;
  opsmith::launch(ctx, subtract<T>, opsmith::blocks_for(a.N, 128), 128, 0, a.a.data(), a.b.data(),
                  a.out.data(), a.N);
}
OPSMITH_KERNEL(cohorts, apart, cuda, float, double)
"""


def apart_of(tmp_path, fault):
    N = Annotated[Float[Tensor, "N"], Unspecified(nan=True, inf=True)]

    @opsmith.op("cohorts::apart")
    def apart(a: N, b: N) -> Float[Tensor, "N"]:
        return (a - b).abs()

    (tmp_path / "apart.cu").write_text(FAR_APART)
    apart.register_kernel("cuda", source=tmp_path / "apart.cu", flags=[f"-DFAULT={fault}"])
    return apart


def on_cpu(operator, **options):
    report = checks.run(operator, select=["cuda-on-cpu"], **options)
    return next(row for row in report.rows if row.check == "cuda-on-cpu")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_difference_that_only_large_arguments_have_is_wrong_in_a_cuda_kernel_too(tmp_path, seed):
    row = on_cpu(apart_of(tmp_path, fault=1), seed=seed)
    assert row.status == "failed" and row.code == "OPS-VALUE-RANGE"


@pytest.fixture
def ran(monkeypatch):
    """The cases of each row and cohort, where a case has tensors that could differ."""
    found, names = {}, {}
    begin, one = Trial.__init__, CaseRunner.one

    def begun(self, subject, name, *args, **kwargs):
        begin(self, subject, name, *args, **kwargs)
        names[id(self.runner)] = name

    def recorded(self, body, case):
        shapes = {}
        for _, tensor in case.tensors():
            if tensor.numel():
                shapes.setdefault((tensor.shape, tensor.dtype), []).append(tensor)
        alike = [several for several in shapes.values() if len(several) > 1]
        if alike and not case.same:
            differ = all(
                not torch.equal(a.nan_to_num(), b.nan_to_num())
                for several in alike
                for a, b in combinations(several, 2)
            )
            found.setdefault((names[id(self)], self.counts.cohort), []).append(differ)
        one(self, body, case)

    monkeypatch.setattr(Trial, "__init__", begun)
    monkeypatch.setattr(CaseRunner, "one", recorded)
    return found


def subtracted(a: Float[Tensor, "N"], b: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return a - b


def added(xs: list[Float[Tensor, "N"]]) -> Float[Tensor, "N"]:
    return torch.stack(xs).sum(0)


def distances(x: Complex[Tensor, "N"], y: Complex[Tensor, "N"]) -> Complex[Tensor, "N"]:
    return x - y


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("reference", [subtracted, added, distances])
def test_every_cohort_of_every_row_has_a_case_whose_arguments_differ(ran, reference, seed):
    operator = declared(reference, reference, autograd="reference")
    select = [one.name for one in all_checks() if one.order < 200 and not one.flag]
    select = [name for name in select if name not in ("opcheck", "compile", "export")]
    checks.run(operator, select=select, seed=seed, isolate=False, examples=4)
    assert len({row for row, _ in ran}) > 10 and len(ran) > 40
    assert [key for key, cases in ran.items() if not any(cases)] == []


def test_every_cohort_of_an_emulated_cuda_kernel_has_a_case_whose_arguments_differ(ran, tmp_path):
    on_cpu(apart_of(tmp_path, fault=0), isolate=False)
    assert len(ran) > 10 and [key for key, cases in ran.items() if not any(cases)] == []
