"""Have the emulation of Ascend C find each planted fault, and none in the kernel without it."""

import pytest
from ascendc_faults import GROUPS, RIGHT, phase_of

#: Each has an order of its own, and memory that begins otherwise.
PHASES = [phase_of(1), phase_of(2, 0x7F)]
IDS = [
    "orders",
    "orders of the source alone",
    "queues",
    "parameters",
    "rearranged",
    "blocks",
    "given",
]


@pytest.mark.slow(cases=2)  # each group is a library
@pytest.mark.parametrize("group", GROUPS, ids=IDS)
def test_a_fault_is_found_in_every_order_and_named_with_its_line_and_its_twin_is_right(group):
    missed = {
        (name, phase.seed): said
        for name in group.faults
        for phase in PHASES
        if (said := group.missed(name, phase) or group.said_of_right(name, phase))
    }
    assert missed == {}


@pytest.mark.slow
@pytest.mark.parametrize("group", RIGHT, ids=["queues and flags", "rows"])
def test_right_kernels_of_unusual_form_are_not_flagged(group):
    said = {name: group.said_of_right(name, phase) for name in group.faults for phase in PHASES}
    assert {name: words for name, words in said.items() if words} == {}
