"""What a kernel sees of every kind of argument, and what the caller gets back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from jaxtyping import AbstractDtype, Float, Float64, Int64
from torch import Tensor

from opsmith.errors import DeclarationError
from opsmith.kernels import kernel_source
from opsmith.signature import signature_of
from opsmith.signature.dtypes import ALL_DTYPES

pytestmark = pytest.mark.slow  # one library, and one with every dtype


def observe(
    x: Float[Tensor, "*batch N"],
    y: Float[Tensor, "_ R"] | None,
    many: list[Float[Tensor, "..."]],
    anything: Tensor,
    k: int,
    scale: float,
    flag: bool,
    mode: str,
    sizes: Sequence[int],
    fixed: tuple[int, int],
    weights: list[float],
    bits: list[bool],
    maybe_int: int | None = None,
    maybe_float: float | None = None,
    maybe_bool: bool | None = None,
    maybe_sizes: Sequence[int] | None = None,
    maybe_pair: tuple[int, int] | None = None,
    maybe_text: str | None = None,
    maybe_many: list[Tensor] | None = None,
    *,
    default: int = 3,
) -> tuple[Float64[Tensor, "M"], Float[Tensor, "*batch N+1"], Tensor]: ...


@pytest.fixture(scope="module")
def observed(build):
    return build(observe, data_dependent=("M",))


ALWAYS = {
    "many": [torch.zeros(2, 2), torch.zeros(0)],
    "anything": torch.tensor([9], dtype=torch.uint8),
    "k": -5,
    "scale": 0.25,
    "flag": True,
    "mode": "reflect",
    "sizes": list(range(20)),
    "fixed": [3, 4],
    "weights": [0.5, 1.5],
    "bits": [True, False],
}
SEEN = [2, 4, 0, 9, -5, 0.25, 1, 7, *range(20), 3, 4, 0.5, 1.5, 1, 0]


@pytest.mark.slow
def test_every_kind_of_argument(observed) -> None:
    x = torch.arange(6.0).reshape(1, 2, 3)
    numbers, plain, any_ = observed(
        x,
        torch.tensor([[8.0, 1.0]]),
        **ALWAYS,
        maybe_int=11,
        maybe_float=0.125,
        maybe_bool=False,
        maybe_sizes=[],
        maybe_pair=[5, 6],
        maybe_text="",
        maybe_many=[x, x],
        default=4,
    )
    assert numbers.tolist() == [
        *range(6), 8, *SEEN, 11, 0.125, 0, 0, 6, 0, 2, 4, 1, 2, 3, 2,
    ]  # fmt: skip
    assert plain.shape == (1, 2, 4)
    assert plain.eq(7).all()
    assert any_.tolist() == [True, False]


@pytest.mark.slow
def test_absent_arguments_and_defaults(observed) -> None:
    numbers, plain, _ = observed(torch.ones(1, dtype=torch.float64), None, **{**ALWAYS, "many": []})
    assert numbers.tolist() == [1, -1, 0, *SEEN[3:], -1, -1, -1, -1, -1, -1, -1, 3, 1, -1]
    assert plain.dtype == torch.float64
    assert plain.shape == (2,)


def test_a_call_is_counted_and_dtypes_are_known(observed) -> None:
    before = observed.library.calls()
    observed(torch.zeros(0, 3), None, **ALWAYS)
    assert observed.library.calls() == before + 1
    assert observed.library.dtypes() == ("float32", "float64")


def test_a_dtype_that_the_kernel_lacks(observed) -> None:
    with pytest.raises(RuntimeError) as caught:
        observed(torch.zeros(3, dtype=torch.float16), None, **{**ALWAYS, "many": []})
    assert str(caught.value) == (
        "kernels_test::observe: argument 'x': the cpu kernel has no float16; it has float32, "
        "float64"
    )


def freed(*shape: int) -> Tensor:
    x = torch.ones(shape)
    x.untyped_storage().resize_(0)
    return x


@pytest.mark.parametrize("name", ["x", "y", "many[0]", "anything"])
def test_a_tensor_without_its_memory_is_refused_by_name(observed, name: str) -> None:
    given = {"x": torch.ones(3), "y": None, **ALWAYS}
    if name == "many[0]":
        given["many"] = [freed(2, 2), torch.zeros(0)]
    else:
        given[name] = freed(1, 3)
    with pytest.raises(RuntimeError) as caught:
        observed(given.pop("x"), given.pop("y"), **given)
    assert str(caught.value).splitlines()[0] == (
        f"kernels_test::observe: argument '{name}' has a storage that was resized to less than the "
        "tensor takes."
    )


def test_a_copy_for_which_there_is_no_memory_names_its_argument(observed) -> None:
    with pytest.raises(RuntimeError) as caught:
        observed(torch.ones(1).expand(2**44), None, **ALWAYS)
    assert str(caught.value) == (
        "kernels_test::observe: argument 'x' needs a contiguous copy: PyTorch could not allocate a "
        "tensor of shape (17592186044416,)"
    )


def read_absent(x: Float[Tensor, "N"], y: Float[Tensor, "N"] | None) -> Float[Tensor, "N"]: ...


@pytest.mark.slow
def test_the_value_of_an_absent_tensor_is_refused(build) -> None:
    read = build(read_absent)
    assert torch.equal(read(torch.ones(3), torch.arange(3.0)), torch.arange(3.0))
    with pytest.raises(RuntimeError) as caught:
        read(torch.ones(3), None)
    assert str(caught.value) == (
        "kernels_test::read_absent: an optional argument that is absent was read"
    )


class Every(AbstractDtype):
    dtypes = list(ALL_DTYPES)  # noqa: RUF012


def copy_any(x: Every[Tensor, "N"]) -> Every[Tensor, "N"]: ...


@pytest.fixture(scope="module")
def copied(build):
    return build(copy_any)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("dtype", ALL_DTYPES)
def test_every_dtype(copied, dtype: str) -> None:
    x = torch.arange(5).to(getattr(torch, dtype))
    result = copied(x)
    assert result.dtype == x.dtype
    assert torch.equal(result.view(torch.uint8), x.view(torch.uint8))
    assert result.data_ptr() != x.data_ptr()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float8_e5m2fnuz, torch.float8_e4m3fnuz])
def test_a_dtype_that_no_declaration_can_name(copied, dtype: torch.dtype) -> None:
    with pytest.raises(RuntimeError, match=f"has dtype {str(dtype).removeprefix('torch.')}"):
        copied(torch.zeros(2).to(dtype))


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, names: None, "sequence of strings"),
        (lambda x, names: None, "list of tensors"),
    ],
    ids=["strings", "list result"],
)
def test_what_a_cpp_kernel_cannot_take_is_refused_by_name(function, words: str, tmp_path) -> None:
    def strings(x: Float[Tensor, "N"], names: Sequence[str]) -> Float[Tensor, "N"]: ...

    def listed(x: Float[Tensor, "N"]) -> list[Float[Tensor, "N"]]: ...

    chosen = strings if "strings" in words else listed
    with pytest.raises(DeclarationError, match=words):
        kernel_source(signature_of(chosen, "kernels_test::refused"), "cpu", tmp_path / "x.cpp")


def test_a_function_cannot_share_its_namespaces_name(tmp_path) -> None:
    def same(x: Int64[Tensor, "N"]) -> Int64[Tensor, "N"]: ...

    with pytest.raises(DeclarationError, match="cannot share a name"):
        kernel_source(signature_of(same, "same::same"), "cpu", tmp_path / "x.cpp")


@pytest.mark.parametrize("name", ["kernels_test::double", "namespace::scaled"])
def test_an_operator_with_a_cpp_kernel_is_not_named_after_a_keyword_of_cpp(name, tmp_path) -> None:
    def kept(x: Int64[Tensor, "N"]) -> Int64[Tensor, "N"]: ...

    word = "double" if "double" in name else "namespace"
    refused = f"{name}: '{word}' is a keyword of C++; choose another name for a C++ kernel"
    with pytest.raises(DeclarationError) as error:
        kernel_source(signature_of(kept, name), "cpu", tmp_path / "x.cpp")
    assert str(error.value) == refused


def test_strided_names_a_tensor(tmp_path) -> None:
    with pytest.raises(DeclarationError, match="strided names 'z', which is not a tensor argument"):
        kernel_source(
            signature_of(copy_any, "kernels_test::c"), "cpu", tmp_path / "x.cpp", strided=("z",)
        )
