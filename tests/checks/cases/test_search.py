"""A search tells failing samples, samples that do not fit and defects of what draws them apart."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st

from opsmith.checks.cases.search import search


def _searched(
    strategy: st.SearchStrategy[int], fails_from: int = 10**9
) -> tuple[Any, list[int], list[str]]:
    """Return what a search found, what it tried, and "none fits" if it said so."""
    tried: list[int] = []
    said: list[str] = []

    def test(drawn: int) -> None:
        tried.append(drawn)
        if drawn >= fails_from:
            raise ValueError(f"{drawn} is too large")

    found = search(
        strategy,
        test,
        examples=50,
        seed=1,
        seconds=60.0,
        size=lambda drawn: drawn,
        on_none_fits=lambda: said.append("none fits"),
    )
    return found, tried, said


def test_the_smallest_failing_sample_is_found() -> None:
    (sample, error), _, said = _searched(st.integers(0, 1000), fails_from=7)
    assert sample == 7
    assert str(error) == "7 is too large"
    assert said == []


def test_no_failing_sample_is_no_failure() -> None:
    found, tried, said = _searched(st.integers(0, 1000))
    assert found is None
    assert len(tried) == 50
    assert said == []


def test_samples_that_never_fit_are_said() -> None:
    assert _searched(st.integers().filter(lambda _: False)) == (None, [], ["none fits"])


def test_a_defect_of_what_draws_is_no_lack_of_samples() -> None:
    def broken() -> int:
        raise AttributeError("the sampler has no attribute 'elements'")

    with pytest.raises(AttributeError, match="the sampler has no attribute 'elements'"):
        _searched(st.builds(broken))


def test_a_defect_of_what_draws_does_not_hide_a_failure() -> None:
    drawn_before: list[int] = []

    @st.composite
    def breaks_later(draw: st.DrawFn) -> int:
        drawn = draw(st.integers(0, 1000))
        if len(drawn_before) > 20:
            raise AttributeError("the sampler has no attribute 'elements'")
        drawn_before.append(drawn)
        return drawn

    found, _, _ = _searched(breaks_later(), fails_from=7)
    assert found is not None
    assert "is too large" in str(found[1])
