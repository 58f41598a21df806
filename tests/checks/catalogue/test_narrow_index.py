"""The row `narrow-index` finds indices of 32 bits, and flags no kernel that reaches beyond."""

import re
import sys
from pathlib import Path
from typing import Annotated

import pytest
import torch
from alone import row_alone
from jaxtyping import Float32, Int32
from torch import Tensor

import opsmith
from opsmith import Between, Index, Sorted
from opsmith.checks.cases.large_calls import large_calls, small_case
from opsmith.checks.cases.wanted import Wanted

FAULTS = Path(__file__).parents[2] / "faults"
HERE = Path(__file__).with_name("narrow_index")


@pytest.fixture(scope="module")
def planted():
    sys.path.insert(0, str(FAULTS))
    from faults_narrow import REFERENCES
    from pairs import PAIRS

    pairs = [pair for pair in PAIRS if pair.kind == "narrow indices"]
    return dict(zip(REFERENCES, pairs, strict=True))


def row(operator, seed=0):
    return row_alone(operator, "narrow-index", seed=seed)


def doubled_rows(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


def registered(file, reference=doubled_rows, name="", **options):
    operator = opsmith.op(f"narrow::{name or file.partition('.')[0]}", **options)(reference)
    device = "cuda" if file.endswith(".cu") else "cpu"
    operator.register_kernel(device, source=HERE / file, flags=[f"-DNAME={name}"] if name else [])
    return operator


def test_an_index_that_wraps_is_named_with_its_line_and_the_condition_to_declare(planted):
    found = row(planted["row_and_column.cpp"].wrong)
    assert (found.status, found.code) == ("failed", "OPS-SIZE-NARROW")
    first, place, why = found.message.splitlines()
    assert re.fullmatch(
        r"read \d+ elements before the start of argument 'x' \(2250079225 elements\)", first
    )
    assert re.fullmatch(r"  at .*/row_and_column\.cpp:8", place)
    assert why == (
        "called with x: float32 (47435, 47435), and not with x: float32 (8367, 8367): an index, a "
        "size or an offset is computed in 32 bits. Compute it in int64_t, or declare "
        'where=("N*C < 2147483648",)'
    )


def test_its_right_twin_passes_and_the_row_says_with_which_calls(planted):
    found = row(planted["row_and_column.cpp"].right)
    assert (found.status, found.cases) == ("passed", 2)
    assert found.notes == ("with x, the result of 4,050,049,600 elements",)


def test_a_loop_up_to_a_count_that_is_negative_touches_nothing(planted):
    found = row(planted["count_in_int.cpp"].wrong)
    assert found.code == "OPS-SIZE-NARROW"
    assert found.message.startswith("nothing accesses argument 'x' and the result\n")


WRONG = [
    ("thread_index.cu", r"thread .* read \d+ elements before the start of argument 'x'"),
    ("count_of_launch.cu", r"the launch of doubles with grid \(\d+, 1, 1\) .* is refused"),
    ("image_offset.cu", "a signed integer overflows"),
    ("skipped_in_silence.cu", "nothing accesses argument 'x' and the result"),
]


@pytest.mark.slow(cases=4)
@pytest.mark.parametrize(("file", "words"), WRONG, ids=[file for file, _ in WRONG])
def test_an_emulated_kernel_with_a_narrow_index_fails_and_its_twin_passes(planted, file, words):
    found = row(planted[file].wrong)
    assert found.code == "OPS-SIZE-NARROW"
    assert re.search(words, found.message)
    assert row(planted[file].right).status == "passed"


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("number", range(20))
def test_every_planted_fault_is_found_and_no_twin_flagged(planted, number, seed):
    pair = list(planted.values())[number]
    assert row(pair.wrong, seed).code == "OPS-SIZE-NARROW"
    right = row(pair.right, seed)
    assert right.status == "passed", right.explain()


# --- right kernels of unusual form --------------------------------------------------------------


def test_a_kernel_that_refuses_more_than_it_can_number_passes():
    found = row(registered("refuses.cpp"))
    assert found.status == "passed", found.explain()
    assert "the kernel refuses more: narrow::refuses: at most 2147483647 elements" in found.notes


def test_a_kernel_that_chooses_the_width_of_its_index_passes():
    assert row(registered("chooses.cpp")).status == "passed"


def test_where_the_declaration_allows_no_more_elements_the_row_has_nothing_to_look_at():
    found = row(registered("bounded.cpp", where=("N*C < 2147483648",)))
    assert (found.status, found.message) == (
        "not applicable",
        "no tensor can have more than 2**31 elements",
    )
    assert row(registered("bounded.cpp", name="unbounded")).code == "OPS-SIZE-NARROW"


def test_tensors_of_lists_are_not_called_small():
    def doubled(xs: list[Float32[Tensor, "?*S"]]) -> None:
        for x in xs:
            x.mul_(2)

    found = row(registered("in_lists.cpp", doubled, mutates_args=("xs",)))
    said = "no tensor outside of lists can have more than 2**31 elements"
    assert (found.status, found.message) == ("not applicable", said)


def test_a_kernel_that_goes_wrong_with_fewer_elements_too_is_not_told_as_narrow():
    found = row(registered("wrong_anyhow.cpp"))
    assert found.status == "not applicable"
    assert found.message.startswith("the kernel goes wrong with fewer elements too: x, the result")


@pytest.mark.slow
def test_a_loop_over_all_elements_is_named_as_what_takes_the_time():
    def sines(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
        return x.sin().sin().sin()

    found = row(registered("serial.cpp", sines))
    assert (found.status, found.message) == (
        "not applicable",
        "a loop over them in one piece, or one thread, takes over 8 s: x, the result of "
        "2,250,079,225 elements",
    )


def segments(
    x: Float32[Tensor, "N C"],
    starts: Annotated[Int32[Tensor, "S"], Sorted(0, "N")],
    rows: Annotated[Int32[Tensor, "P"], Index("N")],
) -> Float32[Tensor, "P C"]:
    return x[rows.long()] * starts[-1] if len(starts) else x[rows.long()]


def test_values_that_depend_on_each_other_are_not_stretched():
    """Starts of 32 bits cannot hold 2**31 rows: no such call fits the declaration."""
    operator = registered("segments.cpp", segments)
    found = row(operator)
    assert found.status == "passed", found.explain()
    small = small_case(operator.signature, Wanted(sizes=(3, 2, 4)))
    calls = [call for (call,) in large_calls(small, (2**31, 2**32))]
    assert {call.product for call in calls} == {"N*C", "P", "P*C"}
    for call in calls:
        assert call.shapes["starts"] == small.values["starts"].shape
        assert call.pattern("starts", 7).equal(small.values["starts"])
        assert int(call.pattern("rows", 7).max()) < call.shapes["x"][0]


@pytest.mark.parametrize(("index", "code"), [("int64_t", ""), ("int32_t", "OPS-SIZE-NARROW")])
def test_a_result_whose_size_the_data_decide_is_not_made_large(index, code):
    def data_sized(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "M"]:
        return x[:, :1][x[:, :1] > 0]

    operator = opsmith.op("narrow::data_sized", data_dependent=("M",))(data_sized)
    source = HERE / "data_sized.cpp"
    operator.register_kernel("cpu", source=source, flags=[f"-DINDEX={index}"])
    found = row(operator)
    assert (found.status, found.code) == ("failed" if code else "passed", code), found.explain()


def gathered(
    table: Float32[Tensor, "V C"], rows: Annotated[Int32[Tensor, "P"], Index("V")]
) -> Float32[Tensor, "P C"]:
    return table[rows.long()]


def test_an_index_argument_is_as_large_as_may_be():
    """Times a size, it is the index of 32 bits that wraps."""
    signature = opsmith.op("narrow::gathered")(gathered).signature
    small = small_case(signature, Wanted(sizes=(3, 2, 4)))
    call, *_ = (call for (call,) in large_calls(small, (2**31, 2**32)))
    rows, columns = call.shapes["table"]
    assert rows == columns == 46341
    assert call.pattern("rows", 0).min() > 0.99 * rows


def points(x: Float32[Tensor, "N 3"], by: Float32[Tensor, "*shape C"]) -> Float32[Tensor, "N 3"]:
    return x * by.sum()


def test_each_tensor_is_made_as_large_as_asked_along_all_dimensions_that_have_a_name():
    signature = opsmith.op("narrow::points")(points).signature
    small = small_case(signature, Wanted(sizes=(3, 2, 4), ranks=(2,)))
    x, by = (call for (call,) in large_calls(small, (2**31, 2**32)))
    assert (x.shapes["x"], x.product) == ((715827883, 3), "N*3")
    assert (by.shapes["by"], by.product) == ((1291, 1291, 1291), "")


def test_a_size_that_a_condition_reads_stays_small_beside_others():
    """To look for a size of billions that is at most 8 would take minutes."""

    def shared(
        x: Float32[Tensor, "N C"], y: Float32[Tensor, "N G"], few: Float32[Tensor, "F"]
    ) -> Float32[Tensor, "N C"]:
        return x * y.repeat_interleave(x.shape[1] // y.shape[1], 1) + few.sum()

    signature = opsmith.op("narrow::shared", where=("C % G == 0", "F <= 8"))(shared).signature
    small = small_case(signature, Wanted(sizes=(3, 2, 4)))
    calls = [call for (call,) in large_calls(small, (2**31, 2**32))]
    assert "N*C" in {call.product for call in calls}
    for call in calls:
        large, *_ = call.shapes["x"]
        assert large > 2**26
        assert call.shapes["x"][1:] == small.values["x"].shape[1:]
        assert call.shapes["few"] == small.values["few"].shape


UNUSUAL = ["scan.cpp", "histogram.cpp", "hashes.cpp", "masked.cpp", "by_threads.cpp"]


@pytest.mark.slow(cases=5)
@pytest.mark.parametrize("file", UNUSUAL)
def test_a_right_kernel_of_unusual_form_passes(file):
    found = row(registered(file))
    assert found.status == "passed", found.explain()


def taken(
    x: Float32[Tensor, "A B C D"],
    y: Float32[Tensor, "A B C 3"],
    take: Annotated[Int32[Tensor, "1"], Between(0, 0)],
) -> Float32[Tensor, "3"]:
    return x.new_zeros(3)


def test_a_tensor_that_is_vast_in_the_large_call_alone_may_be_left_out_in_both():
    found = row(registered("taken.cpp", taken))
    assert found.status == "not applicable", found.explain()
    assert "nothing is read" in found.explain()


UNUSUAL_CUDA = ["last_block.cu", "queue.cu", "fixed_grid.cu", "two_passes.cu", "idle_blocks.cu"]


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("file", UNUSUAL_CUDA)
def test_a_right_cuda_kernel_of_unusual_form_is_not_flagged(file):
    found = row(registered(file))
    assert found.status in ("passed", "not applicable"), found.explain()


def counted(
    x: Float32[Tensor, "N C"],
    rows: Annotated[Int32[Tensor, "N M"], Index("N")],
    counts: Annotated[Int32[Tensor, "N"], Between(1, "M")],
) -> Float32[Tensor, "N C"]:
    there = torch.arange(rows.shape[1], device=x.device) < counts[:, None]
    return x * (rows * there).sum(1, keepdim=True)


@pytest.mark.slow(cases=1)
def test_values_that_are_compared_on_the_device_decide_what_the_ends_read():
    found = row(registered("counted.cu", counted))
    assert found.status == "passed", found.explain()
    assert any("x, the result of" in note for note in found.notes), found.notes
