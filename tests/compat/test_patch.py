"""An attribute of another package is another for the length of a block, and then what it was."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from opsmith.compat.patch import Patch


class Owner:
    value = 1

    @staticmethod
    def function() -> str:
        return "own"


def test_the_attribute_is_replaced_until_the_last_of_overlapping_blocks_ends():
    patch = Patch(lambda: Owner, "value", lambda before: before + 1)
    inside, go_on = threading.Event(), threading.Event()

    def other() -> None:
        with patch():
            inside.set()
            go_on.wait()

    thread = threading.Thread(target=other)
    with patch():
        thread.start()
        inside.wait()
        with patch():
            assert Owner.value == 2
    assert Owner.value == 2, "the other thread is in its block"
    go_on.set()
    thread.join()
    assert Owner.value == 1


def test_what_was_there_is_put_back_when_a_block_raises():
    before = vars(Owner)["function"]
    with pytest.raises(RuntimeError), Patch(lambda: Owner, "function", lambda _: lambda: "new")():
        assert Owner.function() == "new"
        raise RuntimeError
    assert vars(Owner)["function"] is before, "a static method, and not its function"


def test_an_attribute_of_the_class_is_no_attribute_of_the_object_afterwards():
    owner = Owner()
    with Patch(lambda: owner, "value", lambda before: before + 1)():
        assert owner.value == 2
    assert vars(owner) == {}


def test_a_setting_of_pytorchs_is_set_and_set_back():
    settings = torch.backends.mkldnn
    before = settings.enabled
    with Patch(lambda: settings, "enabled", lambda enabled: not enabled)():
        assert settings.enabled is not before
    assert settings.enabled is before


def _missing() -> Any:
    raise ImportError


@pytest.mark.parametrize("find", [_missing, lambda: Owner])
def test_nothing_is_replaced_in_a_release_that_has_no_such_attribute(find):
    with Patch(find, "absent", lambda _: 0)():
        assert not hasattr(Owner, "absent")
    assert not hasattr(Owner, "absent")
