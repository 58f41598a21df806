"""The test of Mann and Whitney against published values, and what counts as a change."""

import dataclasses

import pytest

from opsmith.bench.compare import changes, holm, mann_whitney
from opsmith.bench.figures import Benchmark, Figure
from opsmith.bench.machine import Machine
from opsmith.bench.table import ending


def test_two_sets_that_do_not_overlap_are_as_rare_as_one_order_of_all():
    # 2 of the C(10, 5) = 252 orders.
    assert mann_whitney([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)


@pytest.mark.parametrize(
    ("u", "probability"),
    # One-sided, from table I of Mann and Whitney (1947), for m = n = 4.
    [(0, 0.014), (1, 0.029), (2, 0.057), (3, 0.100), (4, 0.171), (5, 0.243)],
)
def test_small_samples_are_exact(u, probability):
    # The first three are below all others; the fourth is above u of the others.
    first, second = [1.0, 2.0, 3.0, 0.0], [4.0, 5.0, 6.0, 7.0]
    first[3] = 3.5 + u
    if u == 5:
        first = [1.0, 2.0, 4.5, 7.5]
    assert mann_whitney(first, second) / 2 == pytest.approx(probability, abs=0.0005)


def test_equal_samples_do_not_differ():
    assert mann_whitney([1.0] * 6, [1.0] * 6) == 1
    assert mann_whitney([], [1.0]) == 1


def test_ties_and_large_samples_are_as_good_as_normal():
    # Computed by hand: U = 0, mean 8, variance 16/12 (9 - (6 + 6)/56), z = 7.5/3.4226.
    assert mann_whitney([1, 1, 2, 2.5], [3, 3, 4, 5]) == pytest.approx(0.02843, abs=1e-5)
    many = [float(i) for i in range(60)]
    assert mann_whitney(many, [value + 0.5 for value in many]) > 0.5
    assert mann_whitney(many, [value + 100 for value in many]) < 1e-15


def test_several_tests_are_corrected_as_holm_has_it():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.5]) == [1.0, 1.0]
    assert holm([]) == []


ROUNDS = [1.0, 1.01, 0.99, 1.02, 0.98, 1.03, 0.97, 1.04, 0.96, 1.05]


def benchmark(kernel: float, machine: float = 1.0) -> Benchmark:
    """The reference takes a second, the kernel so many, on a machine that is so much slower."""
    reference = [machine * one for one in ROUNDS]
    own = [kernel * machine * (1 + (number - 4.5) / 1000) for number in range(10)]
    common = Figure("a::b", "N=1", "float32", "cpu", "", "timed")
    speedups = [one / other for one, other in zip(reference, own, strict=True)]
    return Benchmark(
        [
            dataclasses.replace(
                common, name="reference", seconds=tuple(reference), speedups=(1.0,) * 10
            ),
            dataclasses.replace(
                common, name="cpu kernel", seconds=tuple(own), speedups=tuple(speedups)
            ),
        ]
    )


def verdicts(now: Benchmark, before: Benchmark) -> dict[str, str]:
    return {change.figure.name: change.verdict for change in changes(now, before)}


def test_a_kernel_that_got_slower_is_said_to_be():
    assert verdicts(benchmark(0.6), benchmark(0.5))["cpu kernel"] == "slower"
    assert verdicts(benchmark(0.5), benchmark(0.6))["cpu kernel"] == "faster"


def test_a_slower_machine_makes_no_kernel_slower():
    found = verdicts(benchmark(0.5, machine=3.0), benchmark(0.5))
    assert found == {"reference": "slower", "cpu kernel": "unchanged"}


def test_a_difference_too_small_to_matter_is_none():
    assert verdicts(benchmark(0.515), benchmark(0.5))["cpu kernel"] == "unchanged"


def test_figures_that_only_one_run_has_are_left_out():
    assert changes(benchmark(1.0), Benchmark()) == []


@pytest.mark.parametrize(("load", "said"), [(1.5, False), (15.2, True)])
def test_a_busy_machine_is_said_to_be(load, said):
    machine = Machine("a processor", 2, (1 << 15,), load, far=[1e9], near=[1e9], multiply=[1e9])
    text = "\n".join(str(line) for line in ending(machine, []))
    assert ("15 threads wanted to run on 2 cores" in text) == said


def test_the_columns_are_explained_that_the_tables_have():
    machine = Machine("a processor", 2, (1 << 15,), 0.0, far=[1e9], near=[1e9], multiply=[1e9])
    figure = benchmark(0.5).figures[0]

    def said(**columns):
        return " ".join(map(str, ending(machine, [dataclasses.replace(figure, **columns)])))

    assert said().endswith("speed-up: beside the reference in the same round.")
    assert "round; moved: what register_cost states" in said(bytes=8)
    assert "round; moved and computed: what register_cost states" in said(bytes=8, operations=8)
