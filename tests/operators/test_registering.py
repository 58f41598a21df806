"""What registering and calling an operator promise before anything is compiled, word by word."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Float32, Int64
from torch import Tensor
from torch.autograd import forward_ad

import opsmith
from opsmith import ArgumentError, DeclarationError, Index, OpsmithError, Sorted, Total
from opsmith.errors import DifferentiationError
from opsmith.sources import importing


def refused(kind: type[Exception], call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    return str(caught.value)


# --- kernels by their sources --------------------------------------------------------------------


@pytest.fixture
def plain() -> opsmith.Operator:
    @opsmith.op("registering::plain", autograd="reference")
    def plain(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x + y

    return plain


def test_a_source_is_remembered_as_it_was_registered(plain, tmp_path: Path) -> None:
    source = tmp_path / "plain.cpp"
    source.write_text("")
    plain.register_kernel("cpu", source=source, strided=["x"], flags=["-Wall"])
    found = plain.kernels["cpu"].source
    assert found.signature == plain.signature
    assert (found.device, found.path, found.api) == ("cpu", source, "opsmith")
    assert (found.strided, found.flags) == (("x",), ("-Wall",))
    plain.register_kernel("cpu", source=source, strided=True)
    assert plain.kernels["cpu"].source.strided is True
    plain.register_kernel("cpu", source=source)
    assert plain.kernels["cpu"].source.strided is False
    source.write_text("TORCH_LIBRARY_IMPL(registering, CPU, m) {}")
    plain.register_kernel("cpu", source=source, api="torch")
    assert plain.kernels["cpu"].source.api == "torch"
    assert plain.kernels["cpu"].calls == 0


def test_a_relative_source_lies_beside_the_declaration(plain) -> None:
    here = Path(__file__).parent
    assert refused(DeclarationError, plain.register_kernel, "cpu", source="absent.cpp") == (
        f"registering::plain: register_kernel(source='absent.cpp'): there is no file "
        f"{here / 'absent.cpp'}"
    )


def test_a_device_type_that_is_none_is_refused_with_those_there_are(plain) -> None:
    message = refused(DeclarationError, plain.register_kernel, "gpu", lambda x, y: x)
    assert message.startswith("registering::plain: register_kernel('gpu'): no such device type; ")


def test_an_operator_without_a_name_is_told_how_to_write_it() -> None:
    def demo(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...

    line = demo.__code__.co_firstlineno
    declare: Any = opsmith.op
    with pytest.raises(DeclarationError) as caught:
        declare(demo)
    assert re.fullmatch(
        rf"demo \(.*test_registering\.py:{line}\): opsmith\.op needs the operator's name, with a "
        r'namespace of yours: write @opsmith\.op\("my_ops::demo"\)',
        str(caught.value),
    )
    for options in ({}, {"autograd": "reference"}):
        with pytest.raises(DeclarationError, match=r'write @opsmith\.op\("my_ops::my_op"\)'):
            declare(**options)


def test_an_argument_that_there_is_not_is_refused_with_the_nearest(plain) -> None:
    declare: Any = opsmith.op
    for call, said in (
        (
            lambda: declare("registering::demo", mutates=("x",)),
            "registering::demo: opsmith.op: there is no argument 'mutates'; did you mean "
            "mutates_args=?",
        ),
        (
            lambda: plain.register_kernel("cpu", sources="x.cpp"),
            f"{plain.name}: register_kernel: there is no argument 'sources'; did you mean source=?",
        ),
    ):
        with pytest.raises(DeclarationError) as caught:
            call()
        assert str(caught.value) == said
    with pytest.raises(
        DeclarationError, match="there is no argument 'zzz'; there are device_types"
    ):
        plain.register_kernel("cpu", zzz=1)


def test_a_tensor_by_name_alone_is_refused_with_what_to_do() -> None:
    def named(x: Float[Tensor, "N"], *, y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x + y

    assert refused(DeclarationError, opsmith.op("registering::named"), named) == (
        "registering::named: the tensor 'y' is keyword-only, and PyTorch's vmap and autograd "
        "pass tensors by position. Move it before the '*'."
    )


def test_a_reference_stays_the_derivative_that_a_backward_is_not(plain) -> None:
    plain.register_autograd(lambda ctx, grad: (grad, grad))
    assert plain.rule.reference
    tangent = torch.func.jvp(lambda x: plain(x, x), (torch.ones(2),), (torch.ones(2),))[1]
    assert tangent.tolist() == [2, 2]


def test_sizes_that_are_none_are_refused_by_name(plain) -> None:
    assert refused(DeclarationError, plain.register_sizes, {"N": 4}, {"M": 4}) == (
        "registering::plain: register_sizes names the dimension 'M'; the arguments have N"
    )
    for size in (-1, True, 2.0):
        assert refused(DeclarationError, plain.register_sizes, {"N": size}) == (
            f"registering::plain: register_sizes gives N the size {size!r}, expected an int that "
            "is not negative"
        )
    assert plain.sizes == []
    given = {"N": 0}
    plain.register_sizes(given, {"N": 7})
    given["N"] = 9
    assert plain.sizes == [{"N": 0}, {"N": 7}]

    @opsmith.op("registering::scalar")
    def scalar(x: Float[Tensor, ""]) -> Float[Tensor, ""]:
        return x

    assert refused(DeclarationError, scalar.register_sizes, {"any": 4}).endswith(
        "the arguments have no named dimension"
    )


# --- derivatives, word by word -------------------------------------------------------------------


def test_every_derivative_that_is_not_there_is_said_in_full() -> None:
    @opsmith.op("registering::bare")
    def bare(x: Float[Tensor, "N"], more: list[Float[Tensor, "N"]]) -> Float[Tensor, "N"]:
        return x + sum(more)

    x = torch.ones(2, requires_grad=True)
    assert refused(DifferentiationError, bare(x, more=[]).sum().backward) == (
        "registering::bare: has no gradient, but backward() reached it. Register one with "
        "bare.register_autograd(backward, setup_context=...), or, if its reference is "
        'differentiable PyTorch, declare it with autograd="reference".'
    )
    y = torch.ones(2)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(y, y)
        for call in (lambda: bare(dual, more=[]), lambda: bare(y, more=[y, dual])):
            assert refused(DifferentiationError, call) == (
                "registering::bare: has no forward-mode derivative (jvp, jacfwd, hessian). If its "
                'reference is differentiable PyTorch, declare it with autograd="reference"; a '
                "backward registered by hand is still used for reverse mode."
            )
        assert bare(y, more=[y]).tolist() == [2, 2]
    # A keyword's gradient is asked for as any other's.
    assert bare(y, more=[x]).requires_grad
    with torch.no_grad():
        assert not bare(y, more=[x]).requires_grad


def test_a_reference_that_leaves_pytorch_is_said_in_full() -> None:
    @opsmith.op("registering::left", autograd="reference")
    def left(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return torch.from_numpy(x.detach().numpy()) * 2

    x = torch.ones(2, requires_grad=True)
    assert refused(DifferentiationError, left(x).sum().backward) == (
        'registering::left: declared with autograd="reference", but its reference gives a result '
        "that does not depend on its arguments differentiably (it left PyTorch, or detached). "
        "Register a backward with register_autograd."
    )


def test_a_backward_of_several_results_and_of_a_list() -> None:
    @opsmith.op("registering::parts")
    def parts(x: Float[Tensor, "N"]) -> tuple[list[Tensor], Float[Tensor, "N"]]:
        return [x * 2, x * 3], x * 4

    parts.register_fake(lambda x: ([torch.empty_like(x)] * 2, torch.empty_like(x)))
    seen: list[Any] = []

    @parts.register_autograd
    def backward(ctx: Any, many: list[Tensor], one: Tensor) -> Tensor:
        seen.append((type(many), len(many)))
        return 2 * many[0] + 3 * many[1] + 4 * one

    x = torch.ones(2, requires_grad=True)
    (first, second), third = parts(x)
    (first + 10 * second + 100 * third).sum().backward()
    assert seen == [(list, 2)]
    assert x.grad is not None and x.grad.tolist() == [432, 432]


def test_a_list_alone_is_a_result_with_a_gradient() -> None:
    @opsmith.op("registering::pair")
    def pair(x: Float[Tensor, "N"]) -> list[Tensor]:
        return [x * 2, x * 3]

    pair.register_fake(lambda x: [torch.empty_like(x), torch.empty_like(x)])
    pair.register_autograd(lambda ctx, many: 2 * many[0] + 3 * many[1])
    x = torch.ones(2, requires_grad=True)
    found = pair(x)
    assert isinstance(found, list)
    (found[0] + 10 * found[1]).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [32, 32]


# --- vmap ----------------------------------------------------------------------------------------


@opsmith.op("registering::gathered")
def gathered(
    x: Float[Tensor, "N C"], many: list[Float[Tensor, "C"]], w: Float32[Tensor, "C"]
) -> tuple[Float[Tensor, "C N"], Int64[Tensor, "C"]]:
    return (x + sum(many) + w.to(x.dtype)).t().clone(), w.to(torch.int64)


def test_vmap_over_no_samples_gives_empty_results_of_the_right_kind() -> None:
    x, w = torch.ones(3, 5, 0, 4, dtype=torch.float64)[0], torch.ones(4)
    many = [torch.ones(4, 0, dtype=torch.float64), torch.ones(4, dtype=torch.float64)]
    first, second = torch.vmap(gathered, in_dims=(1, [1, None], None))(x, many, w)
    assert (first.shape, first.dtype) == ((0, 4, 5), torch.float64)
    assert (second.shape, second.dtype) == ((0, 4), torch.int64)
    first, second = torch.vmap(gathered, in_dims=(-2, [-1, None], None))(x, many, w)
    assert first.shape == (0, 4, 5)
    x, w, many = x.to("meta"), w.to("meta"), [item.to("meta") for item in many]
    first, second = torch.vmap(gathered, in_dims=(1, [1, None], None))(x, many, w)
    assert (first.device.type, second.device.type) == ("meta", "meta")


def test_vmap_takes_each_sample_of_a_list() -> None:
    x, w = torch.arange(24.0).reshape(2, 3, 4), torch.ones(4)
    many = [torch.arange(8.0).reshape(4, 2), torch.ones(4)]
    first, second = torch.vmap(gathered, in_dims=(0, [1, None], None))(x, many, w)
    for i in range(2):
        expected = gathered(x[i], [many[0][:, i], many[1]], w)
        assert torch.equal(first[i], expected[0]) and torch.equal(second[i], expected[1])


def test_results_that_differ_between_samples_are_told_with_their_shapes() -> None:
    @opsmith.op("registering::cut")
    def cut(x: Float[Tensor, "N"]) -> list[Tensor]:
        return [x[x > 0], x.clone()]

    cut.register_fake(lambda x: [x.new_empty(torch.library.get_ctx().new_dynamic_size()), x])
    message = refused(OpsmithError, torch.vmap(cut), torch.tensor([[1.0, -1], [1, 1]]))
    assert message == (
        "registering::cut: vmap cannot stack the result 'out': it is a list of 2 ((1,), (2,)) for "
        "sample 0, and a list of 2 ((2,), (2,)) for sample 1. Call the operator once per sample."
    )


# --- values --------------------------------------------------------------------------------------


@opsmith.op("registering::ranged")
def ranged(
    index: Annotated[Int64[Tensor, "N"], Index("k")],
    sizes: Annotated[Int64[Tensor, "B P"], Total("k")],
    ends: Annotated[Int64[Tensor, "E"], Sorted(first=0, last="k")],
    k: int,
) -> Int64[Tensor, "N"]:
    return index + k


def given(**changes: Any) -> dict[str, Any]:
    return {
        "index": torch.tensor([0, 2]),
        "sizes": torch.tensor([[1, 2], [3, 0]]),
        "ends": torch.tensor([0, 1, 3]),
        "k": 3,
        **changes,
    }


def test_a_bound_that_is_an_argument_is_compared_and_shown() -> None:
    assert ranged(**given()).tolist() == [3, 5]
    assert refused(ArgumentError, ranged, **given(index=torch.tensor([1, 3]))).startswith(
        "registering::ranged: argument 'index' has value 3 at index 1, expected 0 <= value < 3 (k)"
    )
    assert refused(ArgumentError, ranged, **given(sizes=torch.tensor([[1, 2], [3, 1]]))).startswith(
        "registering::ranged: argument 'sizes' "
    )
    for ends in ([1, 3], [0, 2], [0, 2, 1, 3]):
        message = refused(ArgumentError, ranged, **given(ends=torch.tensor(ends)))
        assert message.startswith("registering::ranged: argument 'ends' has value ")
    assert "adds up to 4 in row 1, expected 3 (k)." in refused(
        ArgumentError, ranged, **given(sizes=torch.tensor([[1, 2], [3, 1]]))
    )


def test_a_sum_too_large_for_64_bits_is_none_that_fits() -> None:
    sizes = torch.tensor([[2**62, 2**62, 2**62, 2**62, 3]])
    assert "adds up to 9223372036854775807 in row 0, expected 3 (k)." in refused(
        ArgumentError, ranged, **given(sizes=sizes)
    )


# --- importing -----------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    def write(name: str, text: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(text))
        return path

    return write


def test_a_module_is_imported_again_from_where_it_was(module) -> None:
    path = module("again_beside", "VALUE = 1\n")
    importing.import_again("again_beside", path)
    assert sys.modules["again_beside"].VALUE == 1
    path.write_text("VALUE = 2\n")
    importing.import_again("again_beside", path)  # it is there
    assert sys.modules["again_beside"].VALUE == 1


def test_a_script_is_imported_again_under_another_name(module) -> None:
    path = module("script", "NAME = __name__\n")
    main = sys.modules["__main__"]
    importing.import_again("__main__", path)
    assert sys.modules["__main__"] is main
    assert sys.modules["__opsmith_main__"].NAME == "__opsmith_main__"


def test_a_module_on_the_path_is_imported_by_the_path(module, monkeypatch) -> None:
    path = module("on_the_path", "import on_the_path\nSELF = on_the_path\n")
    monkeypatch.syspath_prepend(path.parent)
    importing.import_again("on_the_path", path)
    assert sys.modules["on_the_path"].SELF is sys.modules["on_the_path"]
    other = path.parent / "sub"
    other.mkdir()
    (other / "elsewhere.py").write_text("WHERE = __file__\n")
    module("elsewhere", "WHERE = 'the wrong one'\n")
    importing.import_again("elsewhere", other / "elsewhere.py")
    assert str(other / "elsewhere.py") == sys.modules["elsewhere"].WHERE


def test_a_file_that_raises_while_it_is_imported_again_leaves_nothing(module) -> None:
    path = module("again_raises", "raise KeyError('x')\n")
    with pytest.raises(KeyError):
        importing.import_again("again_raises", path)
    assert "again_raises" not in sys.modules
    assert refused(opsmith.LoadError, importing.import_again, "text", path.with_suffix(".txt")) == (
        f"{path.with_suffix('.txt')} is not a Python file"
    )


DECLARED = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("registering::{name}")
def {name}(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x
"""


def test_several_sources_give_each_operator_once(module) -> None:
    one = module("source_one", DECLARED.format(name="one"))
    two = module("source_two", DECLARED.format(name="two"))
    found = importing.import_all([str(one), str(two), str(one)])
    assert [operator.name for operator in found] == ["registering::one", "registering::two"]


def test_a_module_that_raises_is_named_with_its_line(module) -> None:
    module("raising", "x = 1\nraise ValueError('bad luck')\n")
    message = refused(opsmith.LoadError, importing.import_operators, "raising")
    assert message.startswith("raising")
    assert "ValueError: bad luck" in message and "raising.py:2" in message
    assert f"{os.sep}raising.py" not in message  # below the working directory


# --- a schema beside the annotations -------------------------------------------------------------


def test_every_type_of_a_schema_is_an_annotation() -> None:
    @opsmith.op(
        "registering::written",
        schema="(Tensor x, Tensor? y, Tensor[] many, int n, int[2] pair, float[] rest, str? how, "
        "*, bool on=True) -> (Tensor, Tensor)",
    )
    def written(x, y, many, n, pair, rest, how, *, on=True):  # type: ignore[no-untyped-def]
        return x.clone(), x.clone()

    assert [str(p.type) for p in written.signature.parameters] == [
        "Tensor",
        "Tensor",
        "list[Tensor]",
        "int",
        "tuple[int, int]",
        "Sequence[float]",
        "str",
        "bool",
    ]
    assert [p.name for p in written.signature.parameters if p.optional] == ["y", "how"]
    assert written.signature.by_name["on"].default is True
    assert len(written.signature.results) == 2


def test_a_schema_that_does_not_fit_is_refused_in_full() -> None:
    def declare(schema: str) -> Any:
        @opsmith.op("registering::misfit", schema=schema)
        def misfit(x, k):  # type: ignore[no-untyped-def]
            return x.clone()

        return misfit

    assert refused(DeclarationError, declare, "(Tensor x, int m) -> Tensor") == (
        "registering::misfit: schema='(Tensor x, int m) -> Tensor' has the parameters (x, m), the "
        "function has (x, k)"
    )
    message = refused(DeclarationError, declare, "(Tensor x, int k -> Tensor")
    assert message.startswith(
        "registering::misfit: schema='(Tensor x, int k -> Tensor' does not parse: "
    )
    assert "\n" not in message
    assert refused(DeclarationError, declare, "(Tensor x, Device k) -> Tensor") == (
        "registering::misfit: the schema has the type Device, which operators do not take here"
    )


def test_a_sequence_of_numbers_may_be_any_sequence() -> None:
    @opsmith.op("registering::sequence")
    def sequence(x: Float[Tensor, "N"], by: Sequence[float]) -> Float[Tensor, "N"]:
        return x * sum(by)

    assert sequence(torch.ones(1), (1, 2.5)).item() == 3.5
