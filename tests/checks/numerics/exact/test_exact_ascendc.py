"""Ascend C kernels on the emulator: exact numbers have the size of the types they stand for."""

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure, Inapplicable
from opsmith.checks.catalogue.ascendc import kernels_in_ascendc
from opsmith.checks.catalogue.exact import prepare
from opsmith.checks.numerics.exact import arrays
from opsmith.checks.numerics.exact.language import exact_ascendc
from opsmith.checks.numerics.exact.memory import Handles
from opsmith.checks.trial.trial import Trial


@opsmith.op("exact_tests::held")
def held(x: Float[Tensor, "N"], how: int) -> Float[Tensor, "N"]:
    return 2 * x + 0.1


held.register_kernel("npu", source="held.cpp", language="ascendc")


def case(how: int, dtype: torch.dtype = torch.float32) -> Case:
    x = torch.rand(50, generator=torch.Generator().manual_seed(0)).to(dtype) + 0.25
    return Case(held.signature, {"x": x, "how": how})


@pytest.mark.slow
def test_ascend_c_is_proved_in_every_size_of_element_and_its_faults_are_found(tmp_path):
    (subject,) = kernels_in_ascendc(held)
    trial = Trial(subject, "exact-ascendc-on-cpu")
    ready = prepare(trial, emulate=exact_ascendc, memory=Handles(tmp_path))
    assert ready.dtype == "float32"
    ready.check(case(0))
    ready.check(case(0, torch.float16))
    ready.check(case(3))  # by way of half: nothing is rounded
    assert (ready.cases, ready.elements, ready.undecided) == (3, 150, 0)
    for dtype in (torch.float32, torch.float16):
        with pytest.raises(Failure, match=r"is not the reference's formula|than rounding"):
            ready.check(case(1, dtype))
    with pytest.raises(Inapplicable, match="the kernel reads the bits of a number"):
        ready.check(case(2))
    with pytest.raises(Inapplicable, match="too many numbers for its table"):
        ready.check(case(4))


@pytest.mark.parametrize("bits", [16, 32])
def test_numbers_are_what_they_were_and_other_bits_are_constants(tmp_path, bits):
    memory = Handles(tmp_path)
    memory.begin()
    numbers = arrays.drawn(torch.tensor([0.0, 1.5, -2.75e-3, 1e30], dtype=torch.float64), 0)
    packed = memory.pack(numbers, bits)
    assert len(packed) == 4 * bits // 8
    back = memory.unpack(packed + bytes(bits // 8), bits)
    assert back.values.tolist() == [*numbers.values.tolist(), 0.0]
    assert back.residues.tolist() == [*numbers.residues.tolist(), 0]
    if bits == 32:
        plain = torch.tensor([0.5, -0.1, float("inf"), float("nan")])
        found = memory.unpack(plain.numpy().tobytes(), 32)
        assert found.values[:3].tolist() == [0.5, pytest.approx(-0.1, rel=1e-9), float("inf")]
        assert found.values[3].isnan()


def test_numbers_that_find_no_place_are_told(tmp_path):
    memory = Handles(tmp_path)
    memory.begin()
    many = arrays.drawn(torch.rand(1 << 16, dtype=torch.float64), 0)
    with pytest.raises(Inapplicable, match="more numbers than 16 bits have places for"):
        memory.pack(many, 16)
    assert len(memory.pack(many, 32)) == 4 << 16
