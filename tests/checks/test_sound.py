import pytest
import sound
import sound_kinds
import sound_native
import sound_numbers
import sound_shapes
import torch
from jaxtyping import Float, Float32
from torch import Tensor

import opsmith
from opsmith import checks, testing
from opsmith.checks import all_checks

# A few samples of each: `make seeds` draws more, over 40 seeds. The targets' checks come later and
# have tests of their own.
PYTORCH = [check.name for check in all_checks() if check.order < 200 and not check.flag]
#: What takes seconds each, and says nothing of numbers.
COMPILERS = ("opcheck", "compile", "export")


def passes(operator, select, examples):
    report = testing.check(operator, select=select, examples=examples)
    # Nothing is left out in silence.
    samples = {check.name for check in all_checks() if check.samples}
    for row in report.rows:
        if row.status == "not applicable":
            assert row.message, row
        else:
            assert row.cases or row.check not in samples, row


@pytest.mark.slow(cases=1)  # `make seeds` runs all
@pytest.mark.parametrize("operator", sound.OPERATORS, ids=lambda operator: operator.name)
def test_a_sound_operator_passes_every_check(operator):
    passes(operator, PYTORCH, 8)


@pytest.mark.long  # test_a_sound_operator_...; `make seeds` runs all
@pytest.mark.parametrize("operator", sound_shapes.OPERATORS, ids=lambda operator: operator.name)
def test_an_operator_of_unusual_shapes_passes_every_check(operator):
    passes(operator, PYTORCH, 5)


@pytest.mark.long  # test_a_sound_operator_...; `make seeds` runs all
@pytest.mark.parametrize(
    "operator",
    [*sound_numbers.OPERATORS, *sound_native.OPERATORS, *sound_kinds.OPERATORS],
    ids=lambda operator: operator.name,
)
def test_an_operator_of_delicate_numbers_passes(operator):
    passes(operator, [name for name in PYTORCH if name not in COMPILERS], 5)


def test_what_a_reference_does_to_the_list_it_is_given_is_its_own_matter():
    """As `PIL.Image.paste`, which PyTorch's tutorial on custom operators calls."""

    @opsmith.op("sound::extends")
    def extends(x: Float[Tensor, "N"], by: tuple[int, int]) -> Float[Tensor, "N"]:
        by += (1,)
        return x * by[0]

    passes(extends, ["dispatch", "reference", "layouts"], 4)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2.0, 1.0, 0.0])
def test_a_kernel_may_refuse_what_its_reference_refuses_in_the_same_dtype(limit):
    """As a matrix may be singular in single precision, and not in double precision."""

    def refusing(limit):
        def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
            if x.dtype == torch.float32 and x.numel() and x.abs().max() > limit:
                raise ValueError("too large for single precision")
            return x * 2

        return doubled

    operator = opsmith.op(f"sound::refusing_{limit:.0f}", refusing(2.0))
    operator.register_kernel("cpu")(refusing(limit))
    options = {"select": ["reference"], "examples": 30, "seconds": 300.0}
    (row,) = checks.run([operator], isolate=False, **options).rows
    assert row.status == ("passed" if limit == 2 else "failed")
    assert "too large for single precision" in "".join(row.notes) + row.message
