"""One source compiled with several values of its macros: what is refused, and what is called."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.protocol import OF_VARIANTS, all_checks
from opsmith.errors import DeclarationError
from opsmith.operators.dispatch.variants import autotune

KERNEL = """
#include <opsmith/kernel.h>
#include "thrice.h"
template <typename T>
void thrice(const opsmith::Context&, const variants::thrice_args<T>& a) {
  for (int64_t i = 0; i < a.x.numel(); ++i) a.out[i] = 3 * a.x[i] + OFF;
}
OPSMITH_KERNEL(variants, thrice, cpu, float)
"""


def declare(**options: Any) -> opsmith.DefinedOperator:
    @opsmith.op("variants::thrice", autograd="reference")
    def thrice(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return x * 3

    if options:
        thrice.register_kernel("cpu", source=opsmith.cpp(KERNEL), **options)
    return thrice


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, 'expected values by the name of a macro, as in {"TILE": (64, 128)}, got {}'),
        (("TILE", 8), "expected values by the name of a macro"),
        ({"TI-LE": (1, 2)}, "'TI-LE' is no name of a macro"),
        ({"TILE": ()}, "TILE: expected a sequence of ints, bools or strings, got ()"),
        ({"TILE": "64"}, "TILE: expected a sequence of ints, bools or strings, got '64'"),
        ({"TILE": (1.5,)}, "TILE: expected a sequence of ints, bools or strings, got (1.5,)"),
        ({"TILE": (1, True)}, "TILE: a value stands twice in (1, True)"),
        ({"A": range(10), "B": range(10)}, "100 combinations, and each is built and checked"),
    ],
)
def test_values_that_no_macro_can_have_are_refused(given: Any, words: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(words)):
        declare(variants=given)


def test_only_a_file_that_opsmith_registers_has_variants() -> None:
    operator = declare()
    with pytest.raises(DeclarationError, match=r"register_kernel\(variants=…\) needs source="):
        operator.register_kernel("cpu", lambda x: x * 3, variants={"A": (1, 2)})  # type: ignore[call-overload]
    block = opsmith.cpp("TORCH_LIBRARY_IMPL(variants, CPU, m) {}")
    with pytest.raises(DeclarationError, match="would register every variant under one name"):
        operator.register_kernel("cpu", source=block, api="torch", variants={"A": (1, 2)})


def test_they_are_named_by_their_values_and_are_no_kernels_of_other_devices() -> None:
    operator = declare(variants={"OFF": (0, 1), "FAST": (False, True)})
    named = ("0,FAST=1", "1,FAST=0", "1,FAST=1")
    assert list(operator.variants) == [f"cpu[OFF={values}]" for values in named]
    assert list(operator.kernels) == ["reference", "cpu"]
    assert operator.kernels["cpu"].source.flags == ("-DOFF=0", "-DFAST=0")
    with pytest.raises(DeclarationError, match=r"no variant 'cpu\[OFF=2\]'; did you mean"):
        operator.variant("cpu[OFF=2]")
    operator.register_kernel("cpu", lambda x: x * 3)
    assert not operator.variants


def test_rows_about_the_code_of_a_kernel_stand_for_each_variant() -> None:
    operator = declare(variants={"OFF": (0, 1)})
    names = {
        check.name: [subject.kernel for subject in check.parts(operator)] for check in all_checks()
    }
    assert {name for name, kernels in names.items() if "cpu[OFF=1]" in kernels} == {
        "build", "exact", "bounds", "schedules", "reference",
    }  # fmt: skip
    assert set(OF_VARIANTS) <= set(names)
    assert [one.kernel for one in subjects_of(operator)] == ["cpu"]


def test_what_cannot_be_chosen_among_is_refused() -> None:
    with pytest.raises(DeclarationError, match="thrice: autotune: the operator has no kernel with"):
        autotune(declare())

    @opsmith.op("variants::fill", mutates_args=("x",))
    def fill(x: Float[Tensor, "N"]) -> None:
        x.fill_(1)

    fill.register_kernel("cpu", source=opsmith.cpp("// fill"), variants={"A": (1, 2)})
    with pytest.raises(DeclarationError, match="fill: autotune: the operator writes into arg"):
        autotune(fill)


@pytest.mark.slow
def test_a_variant_is_called_by_itself_and_validates_what_it_is_given() -> None:
    x = torch.rand(2, 3)
    for _ in range(2):  # declared again, as a notebook does
        operator = declare(variants={"OFF": (0, 1, 2)})
        one, two = operator.variant("cpu[OFF=1]"), operator.variant("cpu[OFF=2]")
        before = [kernel.calls for kernel in operator.variants.values()]
        assert torch.equal(two(x), operator.reference(x) + 2)
        assert torch.equal(one(x), operator.reference(x) + 1)
        assert torch.equal(operator(x), operator.reference(x))
        after = [kernel.calls for kernel in operator.variants.values()]
        assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1]
        with pytest.raises(RuntimeError, match=r"argument 'x' has 1 dimensions, expected 2"):
            one(torch.rand(2))
        assert one(torch.empty(4, 5, device="meta")).shape == (4, 5)


@pytest.mark.slow
def test_inductor_times_all_variants_and_gradients_stay_those_of_the_operator(
    capfd: pytest.CaptureFixture[str],
) -> None:
    operator = declare(variants={"OFF": ("0", "(0)")})
    autotune(operator)
    x = torch.rand(64, 65, requires_grad=True)
    with torch._inductor.config.patch(force_disable_caches=True):
        out = torch.compile(operator, fullgraph=True)(x)
    out.sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 3))
    assert [kernel.calls > 1 for kernel in operator.variants.values()] == [True]
    assert "num_choices" in capfd.readouterr().err
