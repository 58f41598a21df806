"""However a source is written, the same is found in it, and nothing in its right twins."""

import pytest
from cuda_faults import GROUPS, IN_TORCH, RIGHT, phase_of

PHASE = phase_of(1)
ORDERS = GROUPS[1]


def verdicts(group):
    """Return what differs from the verdicts that are due, by name."""
    found = {name: group.said_of_right(name, PHASE) for name in group.faults}
    if group.faults is not RIGHT.faults:
        found |= {f"{name}, wrong": group.missed(name, PHASE) for name in group.faults}
    return {name: said for name, said in found.items() if said}


@pytest.mark.slow
def test_noise_changes_no_verdict_on_orders(tmp_path):
    assert verdicts(ORDERS.with_noise(0, tmp_path)) == {}


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "group", [*GROUPS, RIGHT, IN_TORCH], ids=lambda group: group.signature.name
)
def test_noise_changes_no_verdict(group, seed, tmp_path):
    assert verdicts(group.with_noise(seed, tmp_path)) == {}
