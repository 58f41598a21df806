"""A few of the calls that `make fuzz` makes: none crashes, hangs, is wrong or names no argument."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_run import Tally, fuzz


@pytest.mark.parametrize("runtime", ["eager", "transforms"])
def test_no_call_of_an_operator_crashes_hangs_is_wrong_or_names_no_argument(
    runtime: str, tmp_path: Path
) -> None:
    tally = Tally(runtime, "in_python")
    fuzz(tally, tmp_path, "smoke", 0, 150)
    assert sum(tally.counts.values()) == 150
    assert tally.counts["accepted"] > 20
    assert tally.refused > 20
    bad = [note for note in tally.notes if note[0] in ("wrong", "crashed", "hung", "unnamed")]
    assert not bad
