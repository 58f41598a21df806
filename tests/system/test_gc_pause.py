"""Declaring operators does not make Python look for garbage among all of PyTorch's objects."""

from __future__ import annotations

import gc

import pytest

from opsmith.system.temporarily import uncollected


def test_the_collector_is_paused_and_left_as_it_was() -> None:
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError), uncollected():
        assert not gc.isenabled()
        _ = 1 / 0
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
