"""An operator is what `torch.library` users expect, declared again as often as they like."""

from __future__ import annotations

import copy
import pickle
import re
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Complex, Float, Int64
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import opsmith
from opsmith import ArgumentError, Between, DeclarationError, Index, OpsmithError, checks, kernels
from opsmith.operators.core import registry
from opsmith.operators.core.source_location import shown_path, where_written
from opsmith.operators.dispatch.gates import autograd_gate


@opsmith.op("test_operator::double")
def double(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """Twice `x`."""
    return x * 2


def test_it_is_the_function_and_the_torch_operator() -> None:
    x = torch.ones(3)
    assert torch.equal(double(x), torch.ops.test_operator.double(x))
    assert double.overload is torch.ops.test_operator.double.default
    assert isinstance(double, torch.library.CustomOpDef)
    assert double.__doc__ == "Twice `x`."
    assert double.__name__ == "double"
    assert repr(double) == "<opsmith operator test_operator::double(Tensor x) -> Tensor>"
    assert registry.get("test_operator::double") is double
    with pytest.raises(OpsmithError, match="no operator 'a::b' was declared"):
        registry.get("a::b")


def test_copying_a_model_keeps_its_operator() -> None:
    assert copy.deepcopy(double) is double
    assert copy.copy(double) is double
    assert pickle.loads(pickle.dumps(double)) is double


def test_declaring_again_replaces_everything() -> None:
    def declare(factor: int) -> opsmith.Operator:
        @opsmith.op("test_operator::again")
        def again(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
            return x * factor

        return again

    first = declare(2)

    @first.register_kernel("cpu")
    def _(x: Tensor) -> Tensor:
        return x * 100

    assert first(torch.ones(1)).item() == 100
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = declare(3)
    assert second(torch.ones(1)).item() == 3
    assert torch.ops.test_operator.again(torch.ones(1)).item() == 3
    compiled = torch.compile(second, fullgraph=True, backend="eager")
    assert compiled(torch.ones(1)).item() == 3


def test_a_changed_schema_replaces_the_old_one() -> None:
    opsmith.op("test_operator::grow", lambda_with("x"))
    wider = opsmith.op("test_operator::grow", lambda_with("x", "y"))
    assert wider(torch.ones(1), torch.ones(1)).item() == 2


def lambda_with(*names: str) -> Any:
    def one(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x.clone()

    def two(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x + y

    return one if len(names) == 1 else two


def test_two_modules_that_declare_one_name_are_told() -> None:
    opsmith.op("test_operator::clash", lambda_with("x"))
    other = lambda_with("x")
    other.__module__ = "another_package"
    with pytest.warns(UserWarning, match="declared again") as warned:
        opsmith.op("test_operator::clash", other)
    place = shown_path(where_written(other))
    assert str(warned[0].message) == (
        f"test_operator::clash was declared in {__name__} ({place}) and is now declared again in "
        f"another_package ({place}); the later one takes its place"
    )


def test_two_functions_of_a_module_that_declare_one_name_are_told() -> None:
    opsmith.op("test_operator::copied", lambda_with("x"))
    opsmith.op("test_operator::copied", lambda_with("x"))  # as a cell that runs again
    with pytest.warns(UserWarning, match=f"copied was declared in {__name__} .* is now declared"):
        opsmith.op("test_operator::copied", lambda_with("x", "y"))


def test_a_name_that_pytorch_has_is_refused() -> None:
    with pytest.raises(DeclarationError, match="aten::sin: PyTorch already has an operator"):
        opsmith.op("aten::sin", lambda_with("x"))


def test_wrong_options_are_refused() -> None:
    with pytest.raises(DeclarationError, match="autograd='yes' is not supported; use \"refer"):
        opsmith.op("test_operator::wrong", lambda_with("x"), autograd="yes")
    with pytest.raises(DeclarationError, match="no such device type; there are cpu, cuda"):
        double.register_kernel("gpu", lambda x: x)
    with pytest.raises(DeclarationError, match=r"there is no file .*missing\.cpp"):
        double.register_kernel("cpu", source="missing.cpp")
    with pytest.raises(DeclarationError, match="give a function or source=, not both"):
        double.register_kernel("cpu", lambda x: x, source="missing.cpp")
    with pytest.raises(DeclarationError, match=r"register_autocast\('mps'\): there are cpu, cuda"):
        double.register_autocast("mps", torch.float16)


DEVICE = '"cpu", or a sequence of these, got '


@pytest.mark.parametrize(
    ("register", "said"),
    [
        (
            lambda op: op.register_kernel("cpu", "double.cpp"),
            "register_kernel: expected a function, got 'double.cpp'; a file is given by name: "
            "source='double.cpp'",
        ),
        (
            lambda op: op.register_kernel("cpu", Path("double.cpp")),
            "register_kernel: expected a function, got 'double.cpp'; a file is given by name: "
            "source='double.cpp'",
        ),
        (lambda op: op.register_kernel("cpu", 3), "register_kernel: expected a function, got 3"),
        (
            lambda op: op.register_kernel(3),
            f"register_kernel: expected a device type, as in {DEVICE}3",
        ),
        (
            lambda op: op.register_kernel(["cpu", 3]),
            f"register_kernel: expected a device type, as in {DEVICE}['cpu', 3]",
        ),
        (
            lambda op: op.register_kernel(None, max),
            f"register_kernel: expected a device type, as in {DEVICE}None; where none is "
            "registered, the reference runs",
        ),
        (lambda op: op.register_fake(3), "register_fake: expected a function, got 3"),
        (lambda op: op.register_vmap(3), "register_vmap: expected a function, got 3"),
        (lambda op: op.register_cases([{}]), "register_cases: expected a function, got [{}]"),
        (lambda op: op.register_cost(3), "register_cost: expected a function, got 3"),
        (lambda op: op.register_onnx(3), "register_onnx: expected a function, got 3"),
        (lambda op: op.register_autograd(3), "register_autograd: expected a function, got 3"),
        (
            lambda op: op.register_autograd(max, setup_context=3),
            "register_autograd(setup_context=): expected a function, got 3",
        ),
        (
            lambda op: op.register_torch_dispatch(Tensor, 3),
            "register_torch_dispatch: expected a function, got 3",
        ),
        (
            lambda op: op.register_sizes([64]),
            'register_sizes: expected sizes by dimension, as in {"N": 4096}, got [64]',
        ),
        (
            lambda op: op.register_autocast("cpu", "float16"),
            "register_autocast: expected a dtype, as in torch.float16, got 'float16'",
        ),
    ],
)
def test_what_is_registered_has_the_right_kind(register: Any, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        register(double)
    assert str(caught.value) == f"test_operator::double: {said}"


def test_the_reference_runs_only_where_it_may() -> None:
    only_cuda = opsmith.op("test_operator::cuda_only", lambda_with("x"), device_types="cuda")
    with pytest.raises(NotImplementedError, match="Could not run 'test_operator::cuda_only'"):
        only_cuda(torch.ones(1))


@opsmith.op("test_operator::take")
def take(
    x: Float[Tensor, "N C"], index: Annotated[Int64[Tensor, "P"], Index("N")]
) -> Float[Tensor, "P C"]:
    """Rows of `x`."""
    return x[index]


def test_a_bad_argument_never_reaches_a_python_kernel() -> None:
    before = take.kernels["reference"].calls
    x = torch.ones(4, 2)
    for index in (torch.tensor([0, 4]), torch.tensor([[0]]), torch.tensor([0], dtype=torch.int32)):
        with pytest.raises(ArgumentError, match="test_operator::take: argument 'index'"):
            take(x, index)
    with pytest.raises(ArgumentError) as caught:
        take(x, torch.tensor([0, 1, -1]))
    assert str(caught.value) == (
        "test_operator::take: argument 'index' has value -1 at index 2, expected 0 <= value < 4 "
        "(N).\n  bound so far: N=4, C=2, P=3"
    )
    assert take.kernels["reference"].calls == before
    take(x, torch.tensor([3]))
    assert take.kernels["reference"].calls == before + 1


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (
            lambda x: x,
            "in the memory of argument 'x'; results are new memory, so",
        ),
        (lambda x: x[:1].clone(), "returned its result with shape (1,) and dtype float32"),
        (lambda x: x.double(), "with shape (3,) and dtype float64, expected"),
        (lambda x: 3, "returned int as its result"),
        (lambda x: None, "returned NoneType as its result"),
    ],
)
def test_what_a_python_kernel_returns_is_compared_with_its_declaration(
    kernel: Any, said: str
) -> None:
    operator = opsmith.op("test_operator::returns", lambda_with("x"))
    operator.register_kernel("cpu", kernel)
    with pytest.raises(ArgumentError) as caught:
        operator(torch.ones(3))
    assert str(caught.value).startswith("test_operator::returns: the cpu kernel returned")
    assert said in str(caught.value)


def test_results_are_contiguous_as_the_fake_kernel_promises() -> None:
    @opsmith.op("test_operator::turn")
    def turn(x: Float[Tensor, "N M"]) -> Float[Tensor, "M N"]:
        return x.clone().t()

    assert turn(torch.ones(2, 3)).is_contiguous()


def test_a_kernel_for_several_devices_and_as_a_decorator() -> None:
    operator = opsmith.op("test_operator::devices", lambda_with("x"))

    @operator.register_kernel(["cpu", "cuda"])
    def five(x: Tensor) -> Tensor:
        return x + 5

    assert operator(torch.zeros(1)).item() == 5
    assert operator.kernels["cuda"].function is five


def test_compiling_specialises_nothing() -> None:
    graphs: list[Any] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph

    compiled = torch.compile(
        lambda x, i: take(x, i).sum(0), fullgraph=True, dynamic=True, backend=backend
    )
    for rows, points in ((4, 3), (7, 5), (9, 2)):
        compiled(torch.ones(rows, 2), torch.zeros(points, dtype=torch.int64))
    assert len(graphs) == 1


def test_a_shape_mismatch_is_found_while_tracing() -> None:
    @opsmith.op("test_operator::add")
    def add(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x + y

    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"dimension 0 \(N\) is 4, expected 3"):
        torch.compile(add, fullgraph=True, dynamic=False, backend="eager")(
            torch.ones(3), torch.ones(4)
        )


def test_data_dependent_sizes_export() -> None:
    @opsmith.op("test_operator::positive", data_dependent=("K",))
    def positive(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "K"], Int64[Tensor, "K"]]:
        (index,) = (x > 0).nonzero(as_tuple=True)
        return x[index], index

    class Model(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            values, index = positive(x)
            return values * index

    program = torch.export.export(Model(), (torch.tensor([1.0, -1, 2]),))
    assert program.module()(torch.tensor([-1.0, 3, 0])).tolist() == [3]


def test_a_plain_tensor_wants_a_written_fake() -> None:
    @opsmith.op("test_operator::plain")
    def plain(x: Tensor) -> Tensor:
        return x.repeat(2)

    assert plain(torch.ones(2)).shape == (4,)

    @opsmith.op("test_operator::halves")
    def halves(x: Float[Tensor, "N"]) -> list[Float[Tensor, "N"]]:
        return [x / 2, x / 2]

    lacks = r"result list\[Float\[Tensor, \"N\"\]\] has any number of tensors. Write a tuple of re"
    with pytest.raises(Exception, match=lacks):
        halves(torch.ones(3, device="meta"))
    with pytest.raises(Exception, match="test_operator::plain: has no fake kernel"):
        torch.compile(plain, fullgraph=True, backend="eager")(torch.ones(2))

    @plain.register_fake
    def _(x: Tensor) -> Tensor:
        return x.new_empty(2 * x.shape[0])

    torch._dynamo.reset()
    assert torch.compile(plain, fullgraph=True, backend="eager")(torch.ones(2)).shape == (4,)


def test_the_lack_of_a_fake_kernel_is_one_row_and_hides_no_argument() -> None:
    @opsmith.op("test_operator::added")
    def added(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Tensor:
        return x + y

    with pytest.raises(opsmith.ArgumentError, match="argument 'y' is on cpu, expected meta"):
        added(torch.ones(2, device="meta"), torch.ones(2))
    report = checks.run(added, select=["fake", "validation"], isolate=False, examples=2)
    assert [row.check for row in report.rows if row.status == "failed"] == ["fake"]


def test_a_size_is_fixed_when_no_second_number_of_it_is_free() -> None:
    # PyTorch compares the last of three differences with 1, which fixes a size of 4, no other.
    @opsmith.op("test_operator::third_differences")
    def third_differences(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C-3"]:
        return torch.diff(x, 3)

    third_differences.register_fake(lambda x: x.new_empty(torch.diff(x, 3).shape))

    @third_differences.register_cases
    def cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Tensor]]:
        yield {"x": torch.ones(5, 4, dtype=dtype)}

    # One of several forms of the call turns the size into a number, in all its cases.
    @opsmith.op("test_operator::stepped")
    def stepped(x: Float[Tensor, "N"], step: Annotated[int, Between(1, 3)]) -> Float[Tensor, "N"]:
        return x * step

    @stepped.register_fake
    def fake(x: Tensor, step: int) -> Tensor:
        return x.new_empty(int(x.shape[0]) if step == 3 else x.shape[0])

    said = [
        checks.run(operator, select=["fake"], isolate=False).rows[0].message
        for operator in (third_differences, stepped)
    ]
    assert said[0] == ""
    assert re.match(r"the fake kernel fixes dimension 0 of 'x' to a number \(\d, \d", said[1])


def test_a_written_fake_is_asked_for_what_fits_only() -> None:
    @opsmith.op("test_operator::scaled")
    def scaled(x: Float[Tensor, "N C"], weight: Float[Tensor, "C"]) -> Float[Tensor, "N C"]:
        return x * weight

    @scaled.register_fake
    def _(x: Tensor, weight: Tensor) -> Tensor:
        return torch.empty_like(x)

    with FakeTensorMode():
        assert scaled(torch.ones(2, 3), torch.ones(3)).shape == (2, 3)
        with pytest.raises(ArgumentError, match="'weight' does not fit"):
            scaled(torch.ones(2, 3), torch.ones(4))


def test_the_gate_is_there_when_a_build_ends_however_it_ends(monkeypatch) -> None:
    build = kernels.Recipe.build

    def slow(recipe: Any) -> Path:
        time.sleep(0.2)
        return build(recipe)

    monkeypatch.setattr(kernels.Recipe, "build", slow)
    autograd_gate.load.cache_clear()
    with pytest.raises(ValueError, match="a kernel"), autograd_gate.built_beside():
        raise ValueError("a kernel that does not compile")
    assert autograd_gate.load.cache_info().currsize == 1, "nothing goes on that a fork would lose"
    assert autograd_gate.load() is not None


def test_lists_of_results_with_plain_tensors() -> None:
    @opsmith.op("test_operator::halves", autograd="reference")
    def halves(x: Tensor) -> list[Tensor]:
        return [part.clone() for part in x.chunk(2)]

    x = torch.arange(4.0, requires_grad=True)
    parts = halves(x)
    assert [part.tolist() for part in parts] == [[0, 1], [2, 3]]
    (grad,) = torch.autograd.grad(parts[0].sum() + 2 * parts[1].sum(), x)
    assert grad.tolist() == [1, 1, 2, 2]


def test_autocast_takes_the_widest_dtype_or_the_one_registered() -> None:
    add = opsmith.op("test_operator::mixed", lambda_with("x", "y"))
    half, single = torch.ones(1, dtype=torch.bfloat16), torch.ones(1)
    with pytest.raises(ArgumentError, match="every Float tensor of a call has one dtype"):
        add(half, single)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert add(half, single).dtype == torch.float32
        assert add(half, half).dtype == torch.bfloat16
    add.register_autocast("cpu", torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert add(single, single).dtype == torch.bfloat16


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_lazily_conjugated_view_is_conjugated_in_compiled_code_too(backend):
    @opsmith.op(f"operators::energy_{backend}")
    def energy(z: Complex[Tensor, "N"]) -> tuple[Complex[Tensor, "N"], Complex[Tensor, "N"]]:
        return z * z.conj(), (z * z).conj()

    z = torch.tensor([1 + 2j, 3 - 1j])
    compiled = torch.compile(lambda z: energy(z), backend=backend, fullgraph=True)
    for size, turned in (energy(z), compiled(z)):
        assert size.tolist() == [5, 10]
        assert not turned.is_conj()
        assert turned.tolist() == [-3 - 4j, 8 + 6j]
