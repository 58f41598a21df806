"""The emulation of CUDA finds each planted fault, and none in the same kernel without it."""

import re

import pytest
from cuda_faults import ALGORITHMS, COLLECTIVES, FAULTS, GROUPS, ORDERS, RIGHT, UNUSUAL, phase_of

#: Each has an order of its own, and memory that begins otherwise.
PHASES = [phase_of(1), phase_of(2, 0x7F)]
FIRST, SECOND, THIRD, FOURTH = GROUPS


@pytest.fixture(scope="module")
def first():
    return FIRST.built()


@pytest.fixture(scope="module")
def second():
    return SECOND.built()


@pytest.fixture(scope="module")
def third():
    return THIRD.built()


@pytest.fixture(scope="module")
def fourth():
    return FOURTH.built()


@pytest.fixture(scope="module")
def right():
    return RIGHT.built()


def of_right(group, build, names):
    return {
        (name, phase.seed): said
        for name in names
        for phase in PHASES
        if (said := group.said_of_right(build, name, phase))
    }


def check(group, build, fault):
    _, _, code, words, *_ = group.faults[fault]
    for phase in PHASES:
        found, message = group.outcome(build, fault, phase)
        assert found == (code and f"OPS-{code}"), message
        assert re.search(words, message), message
        places = group.places(fault)
        assert not message or any(place in message for place in places), (message, places)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_in_every_order_and_named_with_its_line(first, fault):
    check(FIRST, first, fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ORDERS)
def test_a_fault_of_order_or_launch_is_found_and_named_with_its_line(second, fault):
    check(SECOND, second, fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", COLLECTIVES)
def test_a_fault_with_a_collective_is_found_and_named_with_its_line(third, fault):
    check(THIRD, third, fault)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ALGORITHMS)
def test_a_fault_with_an_algorithm_of_the_device_is_found_and_named_with_its_line(fourth, fault):
    check(FOURTH, fourth, fault)


@pytest.mark.slow
def test_right_kernels_are_right_in_every_order(first):
    assert of_right(FIRST, first, FAULTS) == {}


@pytest.mark.slow
def test_right_twins_of_faults_in_orders_are_not_flagged(second):
    assert of_right(SECOND, second, ORDERS) == {}


@pytest.mark.slow
def test_right_twins_of_faults_with_collectives_are_not_flagged(third):
    assert of_right(THIRD, third, COLLECTIVES) == {}


@pytest.mark.slow
def test_right_twins_of_faults_with_algorithms_of_the_device_are_not_flagged(fourth):
    assert of_right(FOURTH, fourth, ALGORITHMS) == {}


@pytest.mark.slow
def test_right_kernels_of_unusual_form_are_not_flagged(right):
    assert of_right(RIGHT, right, UNUSUAL) == {}
