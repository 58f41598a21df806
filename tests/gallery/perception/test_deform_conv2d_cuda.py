"""The CUDA kernels of deformable convolution, emulated on the CPU."""

from dataclasses import replace

import pytest
import torch

from gallery.deform_conv2d.deform_conv2d import (
    deform_conv2d,
    deform_conv2d_backward_input,
    deform_conv2d_backward_weight,
)
from gallery.deform_conv2d.inputs import backward_cases
from opsmith import checks
from opsmith.checks import harness
from opsmith.checks.harness import Phase
from opsmith.kernels.languages.emulated_cuda import emulated

ALL = (deform_conv2d, deform_conv2d_backward_input, deform_conv2d_backward_weight)


def passes(operator, **options) -> None:
    report = checks.run(operator, select=["cuda-on-cpu"], **options)
    row = next(row for row in report.rows if row.check == "cuda-on-cpu")
    assert row.status == "passed", row.explain()
    assert not row.notes, "nothing is added atomically, so every order gives the same bits"


@pytest.mark.long
@pytest.mark.parametrize("operator", ALL, ids=lambda operator: operator.name)
def test_the_kernel_is_right_in_any_order(operator) -> None:
    given = list(operator.cases[0](torch.float32, 0))
    # Groups and steps, samples outside of the image, more channels than a tile, no images.
    passes(operator, cases=[given[number] for number in (3, 4, 7, 10)])


@pytest.mark.long
@pytest.mark.parametrize("operator", ALL, ids=lambda operator: operator.name)
def test_the_kernel_is_right_in_every_dtype_and_case(operator) -> None:
    passes(operator, examples=8)


@pytest.mark.long  # emulates a large image; test_small_operators.py emulates a kernel
def test_images_that_do_not_fit_at_once_are_taken_one_after_the_other() -> None:
    operator = deform_conv2d_backward_input
    source = operator.kernels["cuda"].source
    assert source is not None
    small = emulated(replace(source, flags=("-DDEFORM_SAMPLES_BYTES=1",)), watched=True)
    build = harness.build(small, emulated=True)
    arguments = next(
        case for case in backward_cases(torch.float32, 3) if case["input"].shape[0] == 3
    )
    del arguments["weight_shape"]
    phases = [Phase(seed=1, fill=0xFF, emulated=True), Phase(seed=2, fill=0x7F, emulated=True)]
    right = operator.reference(**arguments)
    for (one,) in harness.run(build, operator.signature, [arguments], phases):
        for given, expected in zip(one.results, right, strict=True):
            torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-5)
