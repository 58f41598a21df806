"""The emulation of CUDA finds each planted fault, and none in the same kernel without it."""

import pytest
from cuda_faults import GROUPS, IN_TORCH, RIGHT, phase_of

#: Each has an order of its own, and memory that begins otherwise.
PHASES = [phase_of(1), phase_of(2, 0x7F)]
(
    IN_KERNELS,
    IN_ORDERS,
    IN_LAUNCHES,
    WITH_COLLECTIVES,
    IN_COPIES,
    WITH_ALGORITHMS,
    IN_INLINE_PTX,
    AT_NAMED_BARRIERS,
) = GROUPS


def said_of_right_ones(group):
    return {
        (name, phase.seed): said
        for name in group.faults
        for phase in PHASES
        if (said := group.said_of_right(name, phase))
    }


def check(group, fault):
    assert [group.missed(fault, phase) for phase in PHASES] == ["", ""]


@pytest.mark.parametrize("fault", IN_KERNELS.faults)
def test_a_fault_is_found_in_every_order_and_named_with_its_line(fault):
    check(IN_KERNELS, fault)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("fault", IN_ORDERS.faults)
def test_a_fault_of_order_is_found_and_named_with_its_lines(fault):
    check(IN_ORDERS, fault)


@pytest.mark.long  # a library of its own; those in kernels and in orders stay
@pytest.mark.parametrize("fault", IN_LAUNCHES.faults)
def test_a_fault_of_a_launch_is_found_and_named_with_its_line(fault):
    check(IN_LAUNCHES, fault)


@pytest.mark.long  # a library of its own; those in kernels and in orders stay
@pytest.mark.parametrize("fault", WITH_COLLECTIVES.faults)
def test_a_fault_with_a_collective_is_found_and_named_with_its_line(fault):
    check(WITH_COLLECTIVES, fault)


@pytest.mark.long  # a library of its own; those in kernels and in orders stay
@pytest.mark.parametrize("fault", IN_COPIES.faults)
def test_a_fault_of_an_asynchronous_copy_is_found_and_named_with_its_line(fault):
    check(IN_COPIES, fault)


@pytest.mark.long  # a library of its own; those in kernels and in orders stay
@pytest.mark.parametrize("fault", WITH_ALGORITHMS.faults)
def test_a_fault_with_an_algorithm_of_the_device_is_found_and_named_with_its_line(fault):
    check(WITH_ALGORITHMS, fault)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("fault", IN_INLINE_PTX.faults)
def test_a_fault_around_inline_ptx_is_found_and_named_with_its_line(fault):
    check(IN_INLINE_PTX, fault)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("fault", AT_NAMED_BARRIERS.faults)
def test_a_fault_at_a_barrier_of_some_threads_is_found_and_named_with_its_line(fault):
    check(AT_NAMED_BARRIERS, fault)


@pytest.mark.slow(cases=2)  # each group is a library; those of the first and the last are there
@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.signature.name)
def test_right_twins_are_right_in_every_order(group):
    assert said_of_right_ones(group) == {}


@pytest.mark.long  # a library of its own; the right twins stay
def test_right_kernels_of_unusual_form_are_not_flagged():
    assert said_of_right_ones(RIGHT) == {}


# --- however a source is written, the same is found in it ---------------------------------------


def verdicts(group):
    """Return what differs from the verdicts that are due, by name."""
    found = {name: group.said_of_right(name, PHASES[0]) for name in group.faults}
    if group.faults is not RIGHT.faults:
        found |= {f"{name}, wrong": group.missed(name, PHASES[0]) for name in group.faults}
    return {name: said for name, said in found.items() if said}


@pytest.mark.slow
def test_noise_changes_no_verdict_on_orders(tmp_path):
    assert verdicts(IN_ORDERS.with_noise(0, tmp_path)) == {}


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "group", [*GROUPS, RIGHT, IN_TORCH], ids=lambda group: group.signature.name
)
def test_noise_changes_no_verdict(group, seed, tmp_path):
    assert verdicts(group.with_noise(seed, tmp_path)) == {}
