"""A reference that loops in Python is tried with sizes that it has time for, and a note says so."""

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.cases.cohorts import large, sizes
from opsmith.checks.cases.reruns.registered_cases import size_of
from opsmith.checks.cases.sampling import cases
from opsmith.checks.cases.search import search
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.numerics.loop_sizes import largest_sizes
from opsmith.signature import signature_of

#: Products for each place of the loop: 65 places exceed 6000 calls.
STEPS = 100


@opsmith.op("loops::smoothed")
def smoothed(x: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    result = x.clone()
    for place in range(1, x.shape[1]):
        step = result[:, place - 1].clone()
        for _ in range(STEPS):
            step = step * 0.5
        result[:, place] += step
    return result


@opsmith.op("loops::summed", autograd="reference", where=("B >= 3",))
def summed(x: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    rows = list(x.unbind(1))
    for place in range(1, len(rows)):
        rows[place] = rows[place] + rows[place - 1]
    return torch.stack(rows, 1) if rows else x.clone()


@opsmith.op("loops::on_diagonals")
def on_diagonals(x: Float[Tensor, "B N M"]) -> Float[Tensor, "B"]:
    rows, columns = x.shape[1:]
    total = x.new_zeros(x.shape[0])
    for number in range(max(rows + columns - 1, 0)):
        diagonal = x.flip(2).diagonal(columns - 1 - number, 1, 2)
        total = total + diagonal.sum(1)
    return total


@opsmith.op("loops::doubled")
def doubled(x: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    return x * 2


@opsmith.op("loops::refusing")
def refusing(x: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    raise ValueError("no call is right")


@opsmith.op("loops::from_twelve", where=("N >= 12",))
def from_twelve(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return torch.stack([sum([one] * STEPS) for one in x])


def declared(x: Float[Tensor, "B N"]) -> Float[Tensor, "B N"]:
    raise NotImplementedError


SIGNATURE = signature_of(declared, "loops::declared")


def forced(most):
    every = [*sizes(SIGNATURE, 0, most), *large(SIGNATURE, most)]
    return [cohort.wanted.forced for cohort in every if cohort.wanted.forced]


def test_a_loop_bounds_the_sizes_of_its_own_dimension_alone():
    most = largest_sizes(smoothed, "float32")
    assert list(most) == ["N"]
    assert most["N"] == 65  # even a slow step leaves the first boundaries
    assert largest_sizes(doubled, "float32") == {}


def test_a_table_of_all_pairs_bounds_sizes_and_a_matrix_that_is_given_does_not():
    @opsmith.op("loops::energy")
    def energy(x: Float[Tensor, "N 3"]) -> Float[Tensor, ""]:
        return ((x[:, None] - x) ** 2).sum(-1).neg().exp().sum()

    @opsmith.op("loops::trace")
    def trace(x: Float[Tensor, "N N"], y: Float[Tensor, "N"]) -> Float[Tensor, ""]:
        return (x * y).diagonal().sum()

    assert largest_sizes(energy, "float32") == {"N": 1672}  # 1672 * 1672 * 3 elements
    assert largest_sizes(energy, "float32", by_steps=True) == {}
    assert largest_sizes(trace, "float32") == {}


def test_a_reference_that_refuses_every_call_bounds_no_size():
    assert largest_sizes(refusing, "float32") == {}


def test_sizes_beyond_the_bound_are_left_out_and_other_dimensions_keep_theirs():
    free, bound = forced({}), forced({"N": 300})
    assert max(one["N"] for one in free if "N" in one) >= 4096
    lengths = [one["N"] for one in bound if "N" in one]
    assert max(lengths) == 300  # long rows and sums
    assert any(one["B"] >= 4096 for one in bound if "B" in one)
    # Many elements are along the dimension without a loop.
    assert bound[-1] == {"B": 66_000}
    assert set(free[-1]) == {"B", "N"}


def test_a_row_says_to_which_sizes_a_loop_kept_it():
    smoothed.register_kernel("cpu", smoothed.reference)
    report = checks.run(
        smoothed, select=["reference"], examples=1, isolate=False, seconds=0, allow_cut_short=True
    )
    row = next(row for row in report.rows if row.check == "reference")
    (note,) = (note for note in row.notes if "loops in Python" in note)
    assert note == (
        "the reference loops in Python, or computes for all pairs, so cohorts keep to N <= 65; to "
        "try more, vectorise a loop, or register larger sizes"
    )


def test_a_gradient_keeps_to_shorter_loops_than_results_and_says_so():
    most = largest_sizes(summed, "float32", by_steps=True)
    assert list(most) == ["N"]
    assert 9 <= most["N"] < largest_sizes(summed, "float32")["N"]
    report = checks.run(summed, select=["gradient"], examples=20, isolate=False, seconds=300)
    row = next(row for row in report.rows if row.check == "gradient")
    assert row.status == "passed"
    assert row.notes == (
        "the reference loops in Python, or computes for all pairs, so samples keep to N <= "
        f"{most['N']}; to try more, vectorise a loop, or register larger cases",
    )
    wanted = Wanted(dtype="float32", most={"N": 9})
    drawn = []
    search(
        cases(summed.signature, wanted),
        lambda case: drawn.append(tuple(case.values["x"].shape)),
        examples=30,
        seed=0,
        seconds=300,
        size=size_of,
    )
    assert max(columns for _, columns in drawn) <= 9 < max(rows for rows, _ in drawn)


def test_several_loops_share_the_calls_of_a_gradient():
    most = largest_sizes(on_diagonals, "float32", by_steps=True)
    (calls,) = set(largest_sizes(on_diagonals, "float32").values())  # of 6000, for each of both
    assert list(most) == ["N", "M"]
    assert most["N"] == most["M"] == max(9, 75 * calls // 6000)


def test_a_condition_that_allows_long_loops_alone_moves_the_bound():
    assert largest_sizes(from_twelve, "float32", by_steps=True) == {"N": 12}
