"""The seconds of a thread, told apart by what they are spent on."""

import threading
import time

import pytest

from opsmith.system.stopwatch import KINDS, accounted, spending


def test_of_blocks_in_each_other_the_innermost_counts_and_the_sum_is_the_whole(pass_time):
    started = time.monotonic()
    with accounted() as seconds, spending("drawing"):
        pass_time(200)
        with spending("calls"):
            pass_time(300)
        with spending():
            pass_time(100)
    elapsed = time.monotonic() - started
    assert set(seconds) == {"drawing", "calls", ""}
    assert seconds["drawing"] == pytest.approx(200, rel=0.05)
    assert seconds["calls"] == pytest.approx(300, rel=0.05)
    assert seconds[""] == pytest.approx(100, rel=0.05)
    assert sum(seconds.values()) <= elapsed
    assert sum(seconds.values()) == pytest.approx(elapsed, rel=0.05)


def test_a_block_that_raises_is_over():
    with accounted() as seconds:
        with pytest.raises(ValueError, match="no"), spending("truth"):
            raise ValueError("no")
        time.sleep(0.01)
    assert seconds[""] >= 0.01


def test_what_another_thread_does_is_its_own():
    with accounted() as seconds:
        thread = threading.Thread(target=spending("compiling")(lambda: time.sleep(0.01)))
        thread.start()
        thread.join()
    assert "compiling" not in seconds


def test_an_account_in_another_is_no_part_of_it():
    with accounted() as outer, accounted() as inner, spending("waiting"):
        time.sleep(0.01)
    assert inner["waiting"] >= 0.01
    assert "waiting" not in outer
    assert set(inner) | set(outer) <= {*KINDS, ""}
