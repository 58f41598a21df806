"""The emulation finds faults of CUDA sources with PyTorch's host code, and none in right twins."""

import pytest
from cuda_faults import IN_TORCH, phase_of

PHASES = [phase_of(1), phase_of(2, 0x7F)]

pytestmark = pytest.mark.long


@pytest.mark.parametrize("fault", IN_TORCH.faults)
def test_a_fault_behind_host_code_is_found_and_named_with_its_line(fault):
    assert [IN_TORCH.missed(fault, phase) for phase in PHASES] == ["", ""]


@pytest.mark.parametrize("fault", IN_TORCH.faults)
def test_the_right_twin_is_not_flagged(fault):
    assert [IN_TORCH.said_of_right(fault, phase) for phase in PHASES] == ["", ""]
