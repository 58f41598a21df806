"""What a kernel gets from the runtime: layouts, threads, scratch memory, errors, allocation."""

from __future__ import annotations

import contextlib
import gc
import re
import sys
import types
from pathlib import Path

import numpy as np
import overlapping
import pytest
import torch
from jaxtyping import Float32, Inexact, Int64
from torch import Tensor

SOURCES = Path(__file__).parent / "sources"


def probe(x: Float32[Tensor, "N"], what: str) -> Int64[Tensor, "K N"]: ...


@pytest.fixture(scope="module")
def probed(build):
    return build(probe, data_dependent=("K",))


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("throw", "thrown on purpose"),
        ("throw int", "the kernel threw something that is not a std::exception"),
        ("fail", "size 3 and 0.5 and 2.5"),
        ("fail in words", "texttrue"),
        ("bad_alloc", "out of memory"),
        ("no allocate", "the kernel returned without allocating the result 'out'"),
        (
            "wrong rank",
            "the kernel allocated the result 'out' with 1 dimensions, expected 2 for "
            'Int64[Tensor, "K N"].',
        ),
        (
            "wrong size",
            "the kernel allocated the result 'out' with shape (1, 4), but dimension 1 of "
            'Int64[Tensor, "K N"] is 3.',
        ),
        ("negative", "PyTorch could not allocate a tensor of shape (-1, 3)"),
        ("huge scratch", "no memory for 1152921504606846976 elements of scratch"),
    ],
)
def test_a_failing_kernel_is_an_error_that_names_the_operator(
    probed, what: str, message: str
) -> None:
    with pytest.raises(RuntimeError) as caught:
        probed(torch.zeros(3), what)
    assert str(caught.value) == f"kernels_test::probe: {message}"


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_parallel_for_covers_the_range_once(probed, threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert probed(torch.zeros(1001), "parallel")[0, 0] == 500 * 1001
        assert probed(torch.zeros(0), "parallel").shape == (1, 0)
        with pytest.raises(RuntimeError, match=r"^kernels_test::probe: piece [01]$"):
            probed(torch.zeros(1000), "throw in parallel")
        # The threads survive the exception.
        assert probed(torch.zeros(1001), "parallel")[0, 0] == 500 * 1001
    finally:
        torch.set_num_threads(before)


@pytest.mark.slow
def test_scratch_is_aligned_and_may_be_asked_for_by_every_thread(probed) -> None:
    expected = sum(1000 + i for i in range(64))
    assert probed(torch.zeros(1), "scratch")[0, 0] == expected


@pytest.mark.slow
def test_no_reference_is_kept(probed) -> None:
    array = np.zeros(3, dtype=np.float32)
    before = sys.getrefcount(array)
    x = torch.from_numpy(array)
    for what in ("", "throw", "wrong size"):
        with contextlib.suppress(RuntimeError):
            probed(x, what)
    assert sys.getrefcount(array) > before
    del x
    gc.collect()
    assert sys.getrefcount(array) == before


def strides(
    x: Inexact[Tensor, "N M"], y: Inexact[Tensor, "N M"]
) -> tuple[Int64[Tensor, "4"], Inexact[Tensor, "N M"]]: ...


def layouts(x: Tensor) -> dict[str, Tensor]:
    wide = torch.zeros(x.shape[0], 2 * x.shape[1] + 1, dtype=x.dtype)
    wide[:, 1::2] = x
    return {
        "contiguous": x,
        "transposed": x.t().contiguous().t(),
        "sliced": wide[:, 1::2],
        "expanded": x[:1].expand(x.shape),
        "offset": torch.cat([x, x])[x.shape[0] :],
    }


@pytest.mark.long
@pytest.mark.parametrize("strided", [False, True, ("y",)], ids=["contiguous", "strided", "named"])
def test_layouts(build, strided, tmp_path) -> None:
    # One kernel source, an operator of its own for each way of registering it.
    own = {False: "strides_no", True: "strides_all"}.get(strided, "strides_y")
    source = tmp_path / f"{own}.cpp"
    text = (SOURCES / "strides.cpp").read_text()
    source.write_text(re.sub(r"\bstrides(_args|\.h|\(|,)", rf"{own}\1", text))
    function = types.FunctionType(strides.__code__, strides.__globals__, own)
    function.__annotations__ = dict(strides.__annotations__)
    operator = build(function, source, strided=strided)
    x = torch.arange(12.0).reshape(3, 4)
    for name, tensor in layouts(x).items():
        seen, total = operator(tensor, tensor)
        as_is, copied = list(tensor.stride()), [4, 1]
        assert seen[:2].tolist() == (as_is if strided is True else copied), name
        assert seen[2:].tolist() == (as_is if strided else copied), name
        assert torch.equal(total, tensor + tensor), name
        assert total.is_contiguous()
    empty = torch.zeros(0, 4)
    assert operator(empty, empty)[1].shape == (0, 4)
    conjugated = torch.view_as_complex(torch.arange(8.0).reshape(2, 2, 2)).conj()
    assert conjugated.is_conj()
    assert torch.equal(operator(conjugated, conjugated)[1], 2 * conjugated.resolve_conj())
    negative = conjugated.imag
    assert negative.is_neg()
    assert torch.equal(operator(negative, negative)[1], 2 * negative.resolve_neg())


def add_one(x: Inexact[Tensor, "*n"], y: Int64[Tensor, "*m"] | None = None) -> None: ...


@pytest.fixture(scope="module")
def added(build):
    return build(add_one, mutates_args=("x", "y"))


@pytest.mark.long
def test_a_mutated_argument_is_written_whatever_its_layout(added) -> None:
    base = torch.zeros(4, 6)
    x = base[::2, 1::2]
    y = torch.zeros(2, 3, dtype=torch.int64).t()
    assert added(x, y) is None
    assert x.eq(1).all()
    assert base.sum() == x.numel()
    assert y.eq(6).all()
    added(x)
    assert x.eq(2).all()


@pytest.mark.slow
def test_a_mutated_argument_that_requires_no_gradient_graph(added) -> None:
    leaf = torch.zeros(3, 2, requires_grad=True)
    with torch.no_grad():
        added(leaf.t())
    assert leaf.detach().eq(1).all()


@pytest.mark.slow
def test_a_mutated_conjugate_is_never_silently_wrong(added) -> None:
    # PyTorch resolves conjugates before the kernel. For an operator that returns nothing its code
    # for that stops with an error of its own in some versions (2.13), and works in others (2.10).
    x = torch.full((3,), 1 + 2j, dtype=torch.complex64)
    try:
        added(x.conj())
    except RuntimeError:
        assert x.eq(1 + 2j).all()
    else:
        assert x.eq(2 + 2j).all()


@pytest.mark.slow
def test_an_expanded_tensor_cannot_be_written(added) -> None:
    with pytest.raises(RuntimeError) as caught:
        added(torch.zeros(1, 3).expand(4, 3))
    assert str(caught.value) == (
        "kernels_test::add_one: argument 'x' is written, but its elements share memory: dimension "
        "0 was expanded to 4. Pass a clone."
    )
    added(torch.zeros(1, 3).expand(1, 3))
    added(torch.zeros(0, 1).expand(0, 3))


@pytest.mark.slow
def test_a_written_tensor_has_an_own_place_for_each_element(added) -> None:
    for sizes, strides, overlaps in overlapping.BY_HAND:
        memory = torch.zeros(1 + sum((n - 1) * t for n, t in zip(sizes, strides, strict=True)))
        view = memory.as_strided(sizes, strides)
        if not overlaps:
            added(view)
            continue
        with pytest.raises(RuntimeError, match="'x' is written, but its elements share memory: "):
            added(view)
        assert not memory.any()
    with pytest.raises(
        RuntimeError, match=r"memory: shape \(4, 3\) with strides \(1, 1\)\. Pass a"
    ):
        added(torch.zeros(6).unfold(0, 3, 1))


@pytest.mark.slow
def test_two_written_tensors_share_no_byte(added) -> None:
    shared = 0
    for base, x, y in overlapping.views(seed=0, count=400):
        if any(overlapping.overlaps_itself(one, base) for one in (x, y)):
            with pytest.raises(RuntimeError, match="is written, but its elements share memory"):
                added(x, y)
        elif overlapping.share_elements(x, y, base):
            shared += 1
            with pytest.raises(RuntimeError, match="'x' and 'y' are both written, but share mem"):
                added(x, y)
        else:
            added(x, y)
    assert shared > 20


@pytest.mark.slow
def test_a_kernel_can_be_taken_back_and_registered_again(added) -> None:
    added.library.unregister()
    x = torch.zeros(2)
    with pytest.raises(NotImplementedError, match="Could not run 'kernels_test::add_one'"):
        added(x)
    added.library.register()
    added.library.register()
    added(x)
    assert x.eq(1).all()
