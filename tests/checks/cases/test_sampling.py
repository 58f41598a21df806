import re
from dataclasses import replace
from math import inf, nan
from typing import Annotated

import pytest
import torch
from jaxtyping import Float, Float32, Int32, Shaped, UInt8
from torch import Tensor

import opsmith
from opsmith import Between, Extent, Index, checks, testing
from opsmith.checks.cases import layouts, sampling
from opsmith.checks.cases.case import show_tensor
from opsmith.checks.cases.sampling import pairs
from opsmith.checks.cases.search import search
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.cases.wanted import DYNAMIC_SIZES, Wanted
from opsmith.checks.numerics.oracle import RefusedError
from opsmith.checks.report.rows import Row
from opsmith.checks.row_history import FirstToTell, History, not_run
from opsmith.checks.runner import planned
from opsmith.checks.trial.trial import Settings, Trial
from opsmith.checks.workers.schedule import kernel_of

GRID = "N {size[0]} {size[1]} {size[2]}"


@opsmith.op("sampling::everything")
def everything(
    x: Float[Tensor, "*batch N 3"],
    twice: Float[Tensor, "2*N {k}"],
    rows: Annotated[Int32[Tensor, "P"], Index("N")],
    starts: Annotated[Int32[Tensor, "I"], Index("P")],
    lengths: Annotated[Int32[Tensor, "I"], Extent(start="starts", bound="P")],
    share: Annotated[Float32[Tensor, "N"], Between(0, 1)],
    level: Annotated[UInt8[Tensor, "_"], Between(3, 250)],
    images: list[Float[Tensor, "N C"]],
    extra: Float[Tensor, "..."] | None,
    k: Annotated[int, Between(1, "N+2")],
    size: tuple[int, int],
    scale: Annotated[float, Between(0.5, 2.0)] = 1.0,
) -> Float[Tensor, "{size[0]} N-1 {k}"]:
    return x.new_zeros(size[0], x.shape[-2] - 1, k)


def sampled(operator, wanted=None, dtypes=("float32",), examples=80, seed=0):
    found = []
    trial = Trial(subjects_of(operator)[0], "sampling", Settings(seed, examples))
    trial.each(found.append, wanted=wanted, dtypes=dtypes)
    return found


def test_every_sample_fits_the_declaration():
    cases = sampled(everything)
    assert len(cases) == 80
    for case in cases:
        # Calling validates shapes, dtypes, ranges and the result.
        everything(**case.make())


def test_samples_reach_every_corner():
    cases = sampled(everything, examples=150)
    values = [case.values for case in cases]
    assert {v["x"].dim() for v in values} == {2, 3, 4, 5}
    assert {len(v["images"]) for v in values} == {0, 1, 2, 3}
    assert {v["extra"] is None for v in values} == {True, False}
    assert {1, 2, 3} <= {v["x"].shape[-2] for v in values}
    assert any(v["rows"].numel() == 0 for v in values)
    assert any(v["scale"] != 1.0 for v in values)


def test_dtypes_are_those_of_the_declaration():
    for dtype in ("float16", "float64"):
        for case in sampled(everything, dtypes=(dtype,), examples=5):
            assert case.dtype == dtype
            assert case.values["share"].dtype == torch.float32


def test_a_number_that_makes_every_result_too_large_is_given_up_at_once(monkeypatch):
    def grid(x: Float[Tensor, "N"], size: tuple[int, int, int]) -> Float[Tensor, GRID]:
        return x.new_zeros(x.shape[0], *size)

    tries, make = [], sampling._Sampler.__init__

    def made(sampler, *given):
        tries.append(given)
        make(sampler, *given)

    monkeypatch.setattr(sampling._Sampler, "__init__", made)
    operator = opsmith.op("sampling::grid")(grid)
    wanted = Wanted(sizes=(2, 1, 3), given={"size": [33, 33, 33]})
    assert sampled(operator, wanted, examples=1) == []
    assert len(tries) == 1
    # A result without elements is small, whatever its other sizes are.
    assert sampled(operator, replace(wanted, sizes=(2, 0)), examples=1)[0].numel == 0
    assert sampled(operator, replace(wanted, max_elements=1 << 17), examples=1)


def test_sizes_can_be_forced():
    for case in sampled(everything, Wanted(forced={"N": 1}, sizes=(2, 3)), examples=10):
        assert case.values["x"].shape[-2] == 1


@opsmith.op("sampling::matrix")
def matrix(x: Shaped[Tensor, "N C"], y: Shaped[Tensor, "N C"]) -> Shaped[Tensor, "N C"]:
    return x + y


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_layouts_keep_the_values(layout):
    wanted = Wanted(layouts=(layout,), sizes=(2, 3))
    for case in sampled(matrix, wanted, dtypes=("float32", "int64", "bool"), examples=9):
        made = case.make()
        for name, tensor in case.tensors():
            assert torch.equal(made[name], tensor)
            plain = made[name].is_contiguous() and not made[name].storage_offset()
            possible = layout != "contiguous" and layouts.possible(tensor, layout)
            # One of two mixed tensors may lie plainly.
            assert plain != possible or layout == "mixed"
            assert (layout in case.describe()) == possible


def test_what_lies_around_a_slice_is_poison():
    for dtype in (torch.float32, torch.int16, torch.bool):
        tensor = torch.zeros(2, 2, dtype=dtype)
        view = layouts.lay_out(tensor, layouts.SLICED)
        assert view.storage_offset() > 0
        memory = torch.empty(0, dtype=dtype).set_(view.untyped_storage())
        around = torch.isnan(memory) if dtype.is_floating_point else memory != 0
        assert int(around.sum()) == memory.numel() - 4


@opsmith.op("sampling::two")
def two(x: Float32[Tensor, "N C"], y: Float32[Tensor, "C N"]) -> Float32[Tensor, "N"]:
    return x.sum(1)


@pytest.mark.parametrize("shift", [1, 2])
def test_two_arguments_can_lie_in_one_memory(shift):
    wanted = Wanted(sizes=(3, 2), same=("y", "x"), shift=shift, square=True)
    for case in sampled(two, wanted, dtypes=(None,)):
        made = case.make()
        assert made["x"].data_ptr() - made["y"].data_ptr() == 4 * shift
        assert all(torch.equal(made[name], case.values[name]) for name in ("x", "y"))
        assert f"x begins {shift} element" in case.describe()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
@pytest.mark.parametrize(
    ("first", "last", "words"),
    [
        (1e-30, 2e-20, "of 1e-30 to 2e-20"),
        (0.5, -3e19, "of ±0.5 to ±3e+19"),
        (0.0, -1e5, "of ±1e+05 to ±1e+05"),
        (1.0, 2.0, ""),
        (1e-30, 2.0, ""),
        (0.0, -0.0, "of zeros"),
    ],
)
def test_of_unusual_numbers_the_sizes_are_told(dtype, first, last, words):
    tensor = torch.tensor([[first] * 3, [first] * 3, [last] * 3]).to(dtype)
    if dtype.is_complex:
        words = words.replace("±", "")
    name = str(dtype).removeprefix("torch.")
    assert show_tensor(tensor) == f"{name} (3, 3) {words}".rstrip()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e5m2, torch.complex64])
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([nan], "with NaN"),
        ([inf], "with infinity"),
        ([-inf, nan], "with NaN and infinity"),
        ([1.0], ""),
    ],
)
def test_a_tensor_too_large_to_show_says_what_is_special_in_it(dtype, values, words):
    tensor = torch.ones(3, 3)
    tensor.view(-1)[-len(values) :] = torch.tensor(values)
    name = str(dtype).removeprefix("torch.")
    assert show_tensor(tensor.to(dtype)) == f"{name} (3, 3) {words}".rstrip()


def test_a_scalar_slice_and_an_empty_one_can_be_made():
    assert layouts.lay_out(torch.tensor(3.0), layouts.SLICED).item() == 3.0
    assert layouts.lay_out(torch.zeros(0, 3), layouts.SLICED).shape == (0, 3)
    assert layouts.lay_out(torch.zeros(0, 3), layouts.TRANSPOSED).shape == (0, 3)


def test_making_a_case_twice_gives_fresh_memory():
    case = sampled(matrix, Wanted(sizes=(2,)), examples=1)[0]
    case.make()["x"].zero_()
    assert torch.equal(case.make()["x"], case.values["x"])


def test_the_cases_of_testing_are_arguments_by_name():
    cases = list(testing.cases(matrix, examples=10, seed=3))
    assert len(cases) == 10
    for arguments in cases:
        assert matrix(**arguments).dtype == torch.float32
    assert any(not arguments["x"].is_contiguous() for arguments in cases)


def test_registered_cases_alone():
    @opsmith.op("sampling::registered")
    def registered(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    @registered.register_cases(only=True)
    def some(dtype: torch.dtype, seed: int):
        for size in (3, 2):
            yield {"x": torch.full((size,), seed, dtype=dtype)}

    cases = sampled(registered)
    # The smallest first, of three seeds.
    assert [case.numel for case in cases] == [2, 2, 2, 3, 3, 3]
    assert cases[0].origin == "no. 2 of some"
    assert {float(case.values["x"][0]) for case in cases} == {0.0, 1.0, 2.0}
    assert "no. 2 of some, seed 2" in {case.origin for case in cases}
    # Of the other seeds no more than would be sampled.
    few = [(case.numel, float(case.values["x"][0])) for case in sampled(registered, examples=2)]
    assert few == [(2, 0.0), (2, 1.0), (3, 0.0), (3, 2.0)]


@opsmith.op("sampling::refuses")
def refuses(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    asked.append(x.shape[0])
    raise ValueError("N has to be prime and even and odd")


asked: list[int] = []


def test_a_reference_that_refuses_everything_is_given_up_soon_and_that_is_said_once():
    asked.clear()
    select = ["dispatch", "reference", "mutation"]
    first, *others = checks.run(refuses, select=select, isolate=False).rows
    assert (first.status, first.code) == ("failed", "OPS-CASES-NONE")
    assert "refuses every sampled case, the last with: ValueError: N has to be" in first.message
    assert {(row.status, row.message) for row in others} == {
        (
            "not run",
            "not run, since dispatch found no arguments that the reference accepts",
        )
    }
    # In its own dtype and in double precision.
    assert len(asked) == 200


SLIPPED = []


@opsmith.op("sampling::slips")
def slips(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    SLIPPED.append(x.shape)
    return x * facto


def test_a_slip_in_the_reference_is_not_told_as_arguments_that_do_not_fit():
    SLIPPED.clear()
    (row,) = checks.run(slips, select=["reference"], isolate=False).rows
    line = slips.reference.__code__.co_firstlineno + 3
    assert row.message == (
        "the reference refuses every sampled case, the last with: NameError: name 'facto' is not "
        f"defined\n  at {__file__}:{line}\nNo arguments change that: correct the reference."
    )
    assert len(SLIPPED) < 100  # and not as many in each family of values


def test_no_dtype_is_no_case():
    assert sampled(refuses, dtypes=()) == []


@opsmith.op("sampling::takes_large")
def takes_large(x: Float32[Tensor, "N"], y: Float32[Tensor, "M"]) -> Float32[Tensor, "N"]:
    if y.shape[0] < 7:
        raise ValueError(f"y: expected 7 elements or more, got {y.shape[0]}")
    return x * y[:7].mean()


@pytest.mark.slow
def test_checks_of_small_sizes_draw_larger_ones_where_the_reference_refuses_the_small():
    checked = ["empty-sizes", "vmap", "compile"]
    rows = checks.run(takes_large, select=checked, isolate=False).rows
    assert {row.check: row.status for row in rows} == dict.fromkeys(checked, "passed")


@opsmith.op("sampling::takes_none_small")
def takes_none_small(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    if x.shape[0] < 2:
        raise ValueError(f"x: expected 2 elements or more, got {x.shape[0]}")
    return 2 * x


def test_a_reference_that_refuses_sizes_of_0_and_1_is_said_to():
    (row,) = checks.run(takes_none_small, select=["empty-sizes"], isolate=False).rows
    assert row.status == "not applicable"
    said = "the reference refuses every size of 0 and 1: ValueError: x: expected 2 elements or more"
    assert row.message.startswith(said)


def test_rows_that_ran_beside_it_do_not_say_again_that_the_reference_refuses_everything():
    plan = planned([refuses], ["reference", "mutation", "aliasing"])
    first = FirstToTell(plan, {kernel_of(subject): History() for subject, _ in plan})
    message = "the reference refuses every sampled case, the last with: ValueError"
    (_, one), (_, two), _ = plan
    rows = [
        Row(refuses.name, "reference", check.name, "failed", message=message, code="OPS-CASES-NONE")
        for check in (one, two)
    ]
    assert first.settle(0, rows[0]) is rows[0]
    assert first.settle(1, rows[1]) == not_run(
        two, plan[1][0], f"not run, since {one.name} found no arguments that the reference accepts"
    )
    own = replace(rows[1], message="none of the given cases suits this check")
    assert first.settle(1, own) is own


@pytest.mark.long
def test_plain_tensors_that_fit_each_other_by_luck_only_are_told_what_to_declare():
    @opsmith.op("sampling::plain")
    def plain(x: Tensor, w: Tensor, n: Float[Tensor, "N"]) -> Tensor:
        raise ValueError("x and w do not fit")

    plain.register_fake(lambda x, w, n: torch.empty_like(x))
    row = checks.run(plain, select=["reference"], isolate=False).rows[0]
    assert row.code == "OPS-CASES-NONE"
    assert row.message.endswith(
        "x and w do not fit\n"
        "'x' and 'w': declared as plain Tensor, so that samples have any number of dimensions, "
        'each of any size. Declare what shapes fit together, as in Float[Tensor, "N K"] and '
        'Float[Tensor, "K M"], or give cases: register_cases.'
    )


def test_conditions_that_no_sizes_satisfy_are_named_and_end_the_search():
    @opsmith.op("sampling::circle", where=("H > K", "K > M", "M > H"))
    def circle(
        x: Float[Tensor, "H"], y: Float[Tensor, "K"], z: Float[Tensor, "M"]
    ) -> Float[Tensor, "H"]:
        return x + 1

    row = checks.run(circle, select=["dispatch"], isolate=False, seconds=1.0).rows[0]
    assert (row.code, row.message) == (
        "OPS-CASES-NONE",
        "no arguments could be sampled that fit the declaration.\n"
        "If no sizes satisfy where=('H > K', 'K > M', 'M > H'), correct the conditions. If some "
        "sizes do, give cases that have them: register_cases.",
    )


def test_a_reference_that_takes_few_samples_is_not_given_up():
    taken = []

    def one(case):
        if case.values["x"].shape[0] != 5:
            raise RefusedError("not five")
        taken.append(case)

    trial = Trial(subjects_of(refuses)[0], "reference", Settings(examples=10))
    trial.each(one)
    assert taken


@opsmith.op("sampling::picky")
def picky(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    if x.shape[0] != 2:
        raise ValueError("two, please")
    return x * 2


def test_where_most_samples_are_refused_the_row_says_how_to_draw_others():
    (row,) = checks.run(picky, select=["mutation"], isolate=False).rows
    assert row.status == "passed", row.explain()
    (note,) = [note for note in row.notes if "refused" in note]
    assert re.fullmatch(
        r"the reference refused \d+ samples: ValueError: two, please\. That takes time: say what "
        r"arguments may be, or register_cases\(only=True\)",
        note,
    )


def test_the_first_pair_has_sizes_of_both_kinds_in_every_dimension():
    @opsmith.op("sampling::pairs")
    def op(x: Float32[Tensor, "*B N C"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "*B N C"]:
        return x

    wanted = Wanted(sizes=DYNAMIC_SIZES, distinct=True, max_elements=4096)
    strategy = pairs(op.signature, wanted)
    alike = 0
    for seed in range(5):
        found = []
        search(strategy, found.append, examples=20, seed=seed, seconds=20, size=lambda _: 0)
        shapes = [[case.values["x"].shape for case in pair] for pair in found]
        first, second = shapes[0]
        assert all(one % 2 != other % 2 for one, other in zip(first, second, strict=True))
        assert not set(first) & set(second), "none that the other has in another place either"
        alike += sum(one == other for pair in shapes for one, other in zip(*pair, strict=True))
    assert alike, "what is wrong where a size stays is looked for too"


def test_two_calls_at_once_have_other_values_in_the_simplest_pair_too():
    @opsmith.op("sampling::alike")
    def op(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x

    found = []
    wanted = Wanted(sizes=(2, 3, 4))
    search(
        pairs(op.signature, wanted), found.append, examples=1, seed=0, seconds=20, size=lambda _: 0
    )
    ((first, second),) = found
    assert not first.values["x"][:2].equal(second.values["x"][:2])


def test_more_dimensions_than_one_tensor_has_room_for_can_all_differ():
    @opsmith.op("sampling::attention")
    def attention(
        q: Float32[Tensor, "B H N D"], k: Float32[Tensor, "B H M D"], v: Float32[Tensor, "B H M E"]
    ) -> Float32[Tensor, "B H N E"]:
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v

    wanted = Wanted(sizes=DYNAMIC_SIZES, distinct=True, max_elements=4096, dtype="float32")
    found = sampled(attention, wanted)
    differing = [
        case for case in found if len({*case.values["q"].shape, *case.values["v"].shape[2:]}) == 6
    ]
    assert len(differing) > len(found) / 4


def test_a_declaration_with_large_sizes_of_its_own_is_sampled():
    @opsmith.op("sampling::wide")
    def wide(x: Float[Tensor, "N 300"], w: Float[Tensor, "400 300"]) -> Float[Tensor, "N 400"]:
        return x @ w.T

    row = checks.run(wide, select=["dispatch"], isolate=False).rows[0]
    assert row.status == "passed", row.explain()
    assert row.cases > 0
