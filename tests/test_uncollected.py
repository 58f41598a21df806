"""Declaring operators does not make Python look for garbage among all of PyTorch's objects."""

from __future__ import annotations

import gc

import pytest
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import uncollected as module
from opsmith.uncollected import uncollected


def _declare() -> None:
    @opsmith.op("uncollected::double")
    def double(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return x * 2


def test_declaring_collects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_frozen", False)  # nor is it from here on
    found: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        found.append(about["generation"])

    _declare()  # the first one imports
    gc.unfreeze()  # what conftest.py froze
    before = gc.get_threshold()
    gc.collect(0)  # what came before may be more than the threshold below
    gc.callbacks.append(note)
    gc.set_threshold(300, 1, 1)
    for _ in range(20):
        _declare()
    gc.set_threshold(*before)
    gc.callbacks.remove(note)
    gc.freeze()
    assert not found


def test_it_leaves_the_collector_as_it_was() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(ZeroDivisionError), uncollected():
        assert not gc.isenabled()
        _ = 1 / 0
    assert gc.isenabled()


def test_what_was_frozen_stays_frozen_and_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []
    count = gc.get_freeze_count

    def get_freeze_count() -> int:
        counted.append(count())
        return counted[-1]

    monkeypatch.setattr(module, "_frozen", False)
    monkeypatch.setattr(gc, "get_freeze_count", get_freeze_count)
    before = gc.get_threshold()
    gc.freeze()
    try:
        frozen = count()
        for _ in range(3):
            with uncollected():
                made = [[] for _ in range(1000)]
                # Python is about to look at them.
                gc.set_threshold(100, *before[1:])
            gc.set_threshold(*before)
            del made
        assert count() >= frozen - 100
        assert len(counted) == 1
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def test_garbage_of_the_block_is_found_later() -> None:
    import weakref

    class Cycle:
        pass

    with uncollected():
        one = Cycle()
        one.itself = one  # type: ignore[attr-defined]
        there = weakref.ref(one)
        del one
    assert there() is not None
    gc.collect()
    assert there() is None
