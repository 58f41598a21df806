"""The reference computes in double precision, and changes no other thread's default dtype."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from opsmith.checks.numerics.double_run import double_by_default

WHOLE = torch.tensor([1, 2, 3])
MADE: dict[str, Callable[[], Tensor]] = {
    "zeros": lambda: torch.zeros(2),
    "full": lambda: torch.full((2,), 0.1),
    "a tensor of a number": lambda: torch.tensor(0.1),
    "a complex number": lambda: torch.tensor(1j),
    "linspace": lambda: torch.linspace(0, 1, 7),
    "a quotient of integers": lambda: WHOLE / 3,
    "a root of integers": lambda: torch.sqrt(WHOLE),
    "a list of integers, stacked and divided": lambda: torch.stack([WHOLE, WHOLE]) / 7,
    "integers": lambda: torch.arange(3),
    "a chosen dtype": lambda: torch.zeros(2, dtype=torch.float32),
    "single precision of an argument": lambda: torch.ones(2, dtype=torch.float32) / 3,
}


def in_a_thread(function: Callable[[], Tensor]) -> Tensor:
    made: list[Tensor] = []

    def work() -> None:
        with double_by_default():
            made.append(function())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return made[0]


@pytest.mark.parametrize("name", MADE)
def test_a_thread_of_its_own_computes_what_the_main_thread_does(name: str) -> None:
    with double_by_default():
        wanted = MADE[name]()
    found = in_a_thread(MADE[name])
    assert found.dtype == wanted.dtype
    assert torch.equal(found, wanted)


def test_what_other_threads_make_meanwhile_keeps_its_dtype() -> None:
    entered, left = threading.Event(), threading.Event()

    def slow() -> Tensor:
        entered.set()
        left.wait(10)
        return torch.zeros(1)

    made: list[Tensor] = []
    thread = threading.Thread(target=lambda: made.append(in_a_thread(slow)))
    thread.start()
    assert entered.wait(10)
    assert torch.zeros(1).dtype == torch.float32
    left.set()
    thread.join()
    assert made[0].dtype == torch.float64
