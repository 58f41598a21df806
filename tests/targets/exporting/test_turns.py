"""Exports in several threads: they take turns, and other threads notice nothing of them."""

from __future__ import annotations

import builtins
import math
import os
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor, nn

import opsmith

#: What the reference does, by the thread that runs it.
WHILE_TRACED: dict[int, Any] = {}


@opsmith.op("threads::scaled")
def scaled(x: Float[Tensor, "n c"]) -> Float[Tensor, "n c"]:
    WHILE_TRACED.get(threading.get_ident(), lambda: None)()
    return x / math.sqrt(len(x))


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return scaled(x)


def export(out: Path, **options: Any) -> None:
    sizes = ({0: torch.export.Dim("n", min=2)},)
    opsmith.export(
        Scaled(),
        (torch.ones(4, 3),),
        target="onnx",
        out=out,
        dynamic_shapes=sizes,
        form="inline",
        say=None,
        **options,
    )


class Counted(Tensor):
    """A tensor with a length of its own."""

    def __len__(self) -> int:
        return 7


@pytest.fixture(autouse=True)
def nothing_is_left_over():
    before = builtins.len, math.sqrt, torch.backends.opt_einsum.enabled
    yield
    WHILE_TRACED.clear()
    assert (builtins.len, math.sqrt, torch.backends.opt_einsum.enabled) == before


@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_two_exports_that_overlap_both_succeed_and_leave_python_as_it_was(tmp_path, exporter):
    inside, came = threading.Event(), threading.Event()
    failed: list[BaseException] = []
    entered: list[str] = []

    def run(name: str, traced: Any) -> None:
        def noted() -> None:
            entered.append(name)
            traced()

        WHILE_TRACED[threading.get_ident()] = noted
        try:
            export(tmp_path / name, exporter=exporter, verify=False)
        except BaseException as error:
            failed.append(error)

    def wait_for_the_second() -> None:
        if not inside.is_set():
            inside.set()
            # The second comes to its trace, unless it waits for its turn.
            came.wait(1)

    first = threading.Thread(target=run, args=("first", wait_for_the_second))
    second = threading.Thread(target=run, args=("second", came.set))
    first.start()
    assert inside.wait(60)
    second.start()
    first.join()
    second.join()
    assert not failed
    assert entered == sorted(entered), "the second traces after the first"
    assert {path.name for path in tmp_path.iterdir()} == {"first", "second"}


@pytest.mark.slow
def test_a_thread_beside_an_export_gets_the_len_of_python(tmp_path):
    seen: list[int] = []

    def measure() -> None:
        seen.append(len(torch.ones(4).as_subclass(Counted)))

    def in_another_thread() -> None:
        thread = threading.Thread(target=measure)
        thread.start()
        thread.join()

    WHILE_TRACED[threading.get_ident()] = in_another_thread
    export(tmp_path / "out", verify=False)
    assert seen and set(seen) == {7}


def test_a_forked_process_exports_while_another_thread_has_its_turn():
    from opsmith.targets.exporting import export as turns

    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with turns.taking_turns():
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        os._exit(0 if turns._turn.acquire(blocking=False) else 1)
    assert os.waitpid(child, 0)[1] == 0
    release.set()
    thread.join()
