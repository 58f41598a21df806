"""A few of the kills of `make kills`."""

from __future__ import annotations

import signal

import pytest

from tests import kills


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> kills.Place:
    return kills.Place(tmp_path_factory.mktemp("kills") / "place")


@pytest.mark.slow(cases=1)  # `make kills` sends all
@pytest.mark.parametrize("number", kills.SIGNALS)
def test_a_build_that_is_killed_while_it_compiles_leaves_nothing_for_long(
    place: kills.Place, number: signal.Signals
) -> None:
    process = place.start("build")
    try:
        compiling = kills.wait_until(lambda: any("cc1plus" in one for one in place.commands()))
        assert compiling, (place.folder / "output").read_text()
        process.send_signal(number)
        assert process.wait(timeout=kills.PATIENCE_SECONDS) != 0
        assert place.ended() == []
        # A file under a temporary name stays where the kill came right after it was made; the next
        # build takes it away.
        if place.left():
            assert place.start("build").wait() == 0
            assert place.left() == []
    finally:
        process.kill()
        process.wait()
