"""Checks of operators whose sizes satisfy equations and conditions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith
from opsmith import Between, Index, checks
from opsmith.checks.cases import sampling
from opsmith.checks.cases.search import search
from opsmith.checks.cases.wanted import DYNAMIC_SIZES, Wanted
from opsmith.kernels.codegen.validation import ValidationCode
from opsmith.operators.core.arguments import describe
from opsmith.signature import bind, signature_of
from opsmith.signature.solving.fitting import Fitting

pytestmark = pytest.mark.slow(cases=2)

SHARED = torch.library.Library("conditions", "FRAGMENT")


@opsmith.op("conditions::swiglu")
def swiglu(x: Float[Tensor, "B 2*C"]) -> Float[Tensor, "B C"]:
    a, b = x.chunk(2, dim=1)
    return torch.nn.functional.silu(a) * b


@opsmith.op("conditions::paged", where=("H % K == 0", "T <= M*P", "D % 2 == 0", "1 <= window <= T"))
def paged(
    q: Float[Tensor, "T H D"],
    pages: Float[Tensor, "N P K D"],
    table: Annotated[Int64[Tensor, "M"], Index("N")],
    window: int,
) -> Float[Tensor, "T K D"]:
    return pages[table].flatten(0, 1)[: q.shape[0]] * window


def grouped(q: Float[Tensor, "S K*G D"], k: Float[Tensor, "T K D"]) -> Float[Tensor, "S G"]: ...
def split(
    x: Float[Tensor, "B C"], heads: Annotated[int, Between(1, 16)]
) -> Float[Tensor, "B {heads} C//{heads}"]: ...
def slid(x: Float[Tensor, "T"], k: int) -> Float[Tensor, "T-{k}+1"]: ...
def bounded(x: Float[Tensor, "A B"], y: Float[Tensor, "C"]) -> Float[Tensor, "C"]: ...
def windows(
    x: Float[Tensor, "N C L"],
    weight: Float[Tensor, "M C K"],
    stride: Annotated[tuple[int], Between(1, None)] = (1,),
    dilation: Annotated[tuple[int], Between(1, 2)] = (1,),
) -> Float[Tensor, "N M (L-{dilation[0]}*(K-1)-1)//{stride[0]}+1"]: ...


SIGNATURES = [
    swiglu.signature,
    paged.signature,
    signature_of(grouped, "conditions::grouped"),
    signature_of(split, "conditions::split", where=("C % heads == 0",)),
    signature_of(slid, "conditions::slid", where=("k <= T",)),
    signature_of(bounded, "conditions::bounded", where=("A + B == 2*C", "A < B", "C >= 20")),
    signature_of(windows, "conditions::windows"),
]
WANTED = [
    Wanted(dtype="float32"),
    Wanted(dtype="float32", sizes=DYNAMIC_SIZES, distinct=True),
    Wanted(dtype="float32", sizes=(0, 1)),
]


@pytest.mark.parametrize("wanted", WANTED, ids=["any", "dynamic", "small"])
@pytest.mark.parametrize("signature", SIGNATURES, ids=lambda signature: signature.name)
def test_sizes_are_drawn_that_satisfy_the_conditions(
    monkeypatch: pytest.MonkeyPatch, signature: Any, wanted: Wanted
) -> None:
    drawn, rejected = [], []
    draw = sampling._Sampler._dims_that_fit

    def counted(self: Any) -> Any:
        drawn.append(self)
        try:
            return draw(self)
        except BaseException:  # Hypothesis's own too
            rejected.append(self)
            raise

    monkeypatch.setattr(sampling._Sampler, "_dims_that_fit", counted)
    found: list[Any] = []
    strategy = sampling.cases(signature, wanted)
    search(strategy, found.append, examples=60, seed=0, seconds=60, size=lambda case: case.numel)
    assert len(found) == 60
    assert len(rejected) <= 0.1 * len(drawn)


@pytest.mark.parametrize(
    ("wanted", "least"),
    [(replace(WANTED[0], forced={"K": 257}), 257), (replace(WANTED[0], sizes=(9, 11, 13)), 1)],
    ids=["large", "odd"],
)
def test_a_size_is_drawn_that_fits_lists_of_numbers_and_a_size_that_is_fixed(
    wanted: Wanted, least: int
) -> None:
    found: list[Any] = []
    strategy = sampling.cases(SIGNATURES[-1], wanted)
    search(strategy, found.append, examples=20, seed=0, seconds=60, size=lambda case: case.numel)
    assert len(found) == 20
    assert {case.values["dilation"][0] for case in found} == {1, 2}
    assert all(case.values["weight"].shape[2] >= least for case in found)


def test_samples_of_solved_sizes_differ() -> None:
    found: list[Any] = []
    strategy = sampling.cases(SIGNATURES[2], WANTED[0])
    search(strategy, found.append, examples=60, seed=0, seconds=60, size=lambda case: case.numel)
    bound = [bind(SIGNATURES[2], describe(c.values, SIGNATURES[2])).dims for c in found]
    assert len({(dims["K"], dims["G"]) for dims in bound}) > 20
    assert {0, 1, 2} <= {dims["G"] for dims in bound}


def test_the_refusal_check_breaks_every_condition(tried: list[str]) -> None:
    report = checks.run(paged, select=["validation"], isolate=False)
    assert [row.status for row in report.rows] == ["passed"], report.explain()
    for condition in paged.signature.where:
        assert any(what.endswith(f"where {condition}") for what in tried), condition


def test_a_kernel_that_forgets_a_condition_is_found() -> None:
    @opsmith.op("conditions::forgets", where=("D % 2 == 0",))
    def forgets(x: Float[Tensor, "N D"]) -> Float[Tensor, "N"]:
        return x.sum(1)

    lenient = replace(forgets.signature, where=())

    def kernel(x: Tensor) -> Tensor:
        bind(lenient, describe({"x": x}, lenient))
        return x.sum(1)

    SHARED.impl("forgets", kernel, "CPU", allow_override=True)
    report = checks.run(forgets, select=["validation"], isolate=False)
    assert "where D % 2 == 0: accepted, expected an error" in report.explain()


def test_a_kernel_that_is_wrong_for_some_solutions_is_found() -> None:
    def halves(x: Tensor) -> Tensor:
        a, b = x.chunk(2, dim=1)
        return torch.nn.functional.silu(a) * b

    def vectors_of_two(x: Tensor) -> Tensor:
        out = halves(x)
        out[:, out.shape[1] // 2 * 2 :] = 0
        return out

    for name, kernel, right in (("right", halves, True), ("wrong", vectors_of_two, False)):
        operator = opsmith.op(f"conditions::swiglu_{name}", swiglu.reference)
        operator.register_kernel("cpu", kernel)
        report = checks.run(operator, select=["reference"], isolate=False)
        assert report.ok is right, report.explain()


ROTARY = """
#include <opsmith/kernel.h>

#include "{name}.h"

template <typename T>
void {name}(const opsmith::Context&, const conditions::{name}_args<T>& a) {{
  for (int64_t i = 0; i < a.N * a.D; ++i) a.out[i] = -a.x[i / a.D * a.D + (i + a.D / 2) % a.D];
}}
OPSMITH_KERNEL(conditions, {name}, cpu, float)
"""


@pytest.mark.long  # a library for each; test_a_kernel_that_forgets_a_condition_is_found
@pytest.mark.parametrize("forgets", [True, False])
def test_an_adapter_that_forgets_a_condition_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, forgets: bool
) -> None:
    name = f"turned_{'forgetful' if forgets else 'whole'}"

    @opsmith.op(f"conditions::{name}", where=("D % 2 == 0",))
    def turned(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        return -x.roll(-(x.shape[1] // 2), 1)

    source = tmp_path / "turned.cpp"
    source.write_text(ROTARY.format(name=name))
    turned.register_kernel("cpu", source=source)
    if forgets:
        bind_lines = ValidationCode.bind

        def lenient(self: ValidationCode) -> list[str]:
            return [line for line in bind_lines(self) if not line.startswith("satisfies(")]

        monkeypatch.setattr(ValidationCode, "bind", lenient)
    report = checks.run(turned, select=["onnxruntime"], isolate=False, examples=4)
    assert report.ok is not forgets, report.explain()
    if forgets:
        assert "where D % 2 == 0: accepted in" in report.explain()


def test_a_runtime_that_refuses_sizes_by_an_error_of_pythons_own_is_not_flagged(
    tmp_path: Path,
) -> None:
    @opsmith.op("conditions::turned_elsewhere", where=("D % 2 == 0",))
    def turned(x: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
        return -x.roll(-(x.shape[1] // 2), 1)

    source = tmp_path / "turned.cpp"
    source.write_text(ROTARY.format(name="turned_elsewhere"))
    turned.register_kernel("cpu", source=source)
    report = checks.run(turned, select=["tvm_ffi"], isolate=False, examples=4)
    assert report.ok, report.explain()
    assert next(row for row in report.rows if row.check == "tvm_ffi").status == "passed"


def test_a_size_that_is_solved_may_be_any_that_has_a_solution() -> None:
    @opsmith.op("conditions::rows")
    def rows(
        offsets: Int64[Tensor, "R+1"], x: Float[Tensor, "K*G"], y: Float[Tensor, "1 K"]
    ) -> Float[Tensor, "R K*G"]:
        return x.expand(len(offsets) - 1, -1) * y.sum()

    report = checks.run(rows, select=["validation", "fake"], examples=40, isolate=False)
    assert report.ok, report.explain()


def test_no_number_is_looked_for_far_beyond_what_a_condition_compares_it_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def chosen(x: Float[Tensor, "T E"], k: int) -> Float[Tensor, "T {k}"]:
        raise NotImplementedError

    def fitting(condition: str) -> Fitting:
        return Fitting(signature_of(chosen, "ns::chosen", where=(condition,)))

    assert fitting("k >= T*E").beyond("k", 1, {"T": 9, "E": 8}, {}) == [*range(72, 78)]
    assert fitting("k % 200 == 0").beyond("k", 1, {}, {}) == [200, 400, 600, 800]
    tried: list[int] = []
    fits = Fitting.fits
    monkeypatch.setattr(
        Fitting,
        "fits",
        lambda self, name, n, *known: tried.append(n) or fits(self, name, n, *known),
    )
    # The row of empty sizes sets E to 0, where no k fits: a thousand samples find that out again.
    assert fitting("k <= E").beyond("k", 1, {"T": 3, "E": 0}, {}) == []
    assert len(tried) <= 30
