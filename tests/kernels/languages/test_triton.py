"""What a Triton kernel's parameters are given, and how its grid becomes an expression.

Nothing here needs Triton: a kernel is what has a function and the names of its parameters.
"""

import inspect
import sys

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.errors import DeclarationError, MissingDependencyError
from opsmith.kernels.languages.triton import TritonKernel
from opsmith.kernels.languages.triton.sizes import Size, traced, unknown_sizes
from opsmith.signature import signature_of
from opsmith.signature.sizes import expressions


class Jit:
    """What ``@triton.jit`` gives, as far as it is looked at before a launch."""

    def __init__(self, fn):
        self.fn = fn
        self.arg_names = list(inspect.signature(fn).parameters)


def scale(
    x: Float[Tensor, "N C"], weight: Float[Tensor, "C"], factor: float, steps: tuple[int, int]
) -> Float[Tensor, "N C"]:
    return x * weight * factor


SIGNATURE = signature_of(scale, "triton_words::scale")


def add_kernel(x_ptr, weight_ptr, out_ptr, N, C, factor, BLOCK: "tl.constexpr"):
    pass


def kernel(function=add_kernel, grid=("N",), meta=None, args=None, **more):
    given = Jit(function) if callable(function) else function
    meta = {"BLOCK": 64} if meta is None else meta
    return TritonKernel(SIGNATURE, "cuda", given, grid, meta, args or {}, **more)


def test_each_parameter_is_given_what_the_declaration_calls_so():
    assert [(t.name, t.kind, t.of) for t in kernel().taken] == [
        ("x_ptr", "tensor", "x"),
        ("weight_ptr", "tensor", "weight"),
        ("out_ptr", "tensor", "out"),
        ("N", "number", "N"),
        ("C", "number", "C"),
        ("factor", "number", "factor"),
        ("BLOCK", "meta", "BLOCK"),
    ]


def test_a_call_is_launched_with_its_numbers():
    one = kernel(
        lambda_kernel, grid=lambda x, BLOCK: (x.numel() // BLOCK, 2), args={"rows": "N * steps[1]"}
    )
    x = torch.ones(4, 32)
    values = {"x": x, "out": x, "N": 4, "C": 32, "steps": (5, 3)}
    constants = one.constants(values)
    assert one.programs(values, constants) == (2, 2, 1)
    assert one.arguments(values, {**constants, "num_warps": 8}) == {
        "x": x,
        "out": x,
        "rows": 12,
        "BLOCK": 64,
        "num_warps": 8,
    }


def lambda_kernel(x, out, rows, BLOCK: "tl.constexpr", STAGES: "tl.constexpr" = 2):
    pass


def test_constants_may_be_chosen_by_dimensions():
    one = kernel(meta=lambda C: {"BLOCK": 64 if C < 100 else 128})
    assert one.deciding == ("C",)
    assert one.constants({"C": 99}) == {"BLOCK": 64}
    assert one.constants({"C": 100}) == {"BLOCK": 128}


def strange(x, out, total, BLOCK: "tl.constexpr"):
    pass


def silent(x, BLOCK: "tl.constexpr"):
    pass


class Autotuner(Jit):
    pass


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: kernel(strange),
            r"triton_words::scale \(cuda\): the Triton kernel strange takes 'total', and the "
            r"declaration has no tensor, number or dimension of that name; there are x, weight, "
            r"out, factor, N, C\. Say what to pass: args={\"total\": …}",
        ),
        (lambda: kernel(silent), "has no pointer parameter 'out', so nothing writes the result"),
        (lambda: kernel(meta={}), r"takes 'BLOCK', .*Say what to pass: meta={\"BLOCK\": …}"),
        (lambda: kernel(args={"M": 1}), "args names 'M', which the Triton kernel add_kernel does"),
        (lambda: kernel(grid=lambda M: (M,)), "grid takes 'M', which is neither a dimension nor"),
        (lambda: kernel(meta=lambda M: {}), "meta takes 'M', which is not a dimension"),
        (
            lambda: TritonKernel(SIGNATURE, "cuda", Autotuner(add_kernel), ("N",)),
            r"decorated with triton\.autotune, and opsmith decides by the declaration's dimensions",
        ),
        (
            lambda: TritonKernel(SIGNATURE, "cuda", add_kernel, ("N",)),
            r"is not a kernel that @triton\.jit made",
        ),
    ],
)
def test_what_does_not_fit_is_named_when_it_is_registered(make, words):
    with pytest.raises(DeclarationError, match=words):
        make()


def test_a_grid_that_names_nothing_known_says_so():
    with pytest.raises(DeclarationError, match="grid is 'M', and there is no 'M'"):
        kernel(grid=("M",)).programs({"N": 1}, {})


def test_a_grid_is_an_expression_where_no_size_is_known():
    one = kernel(
        grid=lambda x, N, steps, BLOCK: ((x.numel() + BLOCK - 1) // BLOCK, 2 * N - steps[1])
    )
    grid = one.programs(unknown_sizes(SIGNATURE), {"BLOCK": 64}, traced)
    assert [expressions.text(s.expression) if isinstance(s, Size) else s for s in grid] == [
        "(1*N*C+64-1)//64",
        "2*N-steps[1]",
        1,
    ]


@pytest.mark.parametrize(
    ("grid", "words"),
    [
        (lambda N: (N if N > 4 else 1,), r"branches on the value of a size, .*register_sizes"),
        (lambda factor: (int(factor),), "takes 'factor', whose value differs from call to call"),
    ],
)
def test_what_needs_a_size_is_refused_ahead_of_time(grid, words):
    with pytest.raises(DeclarationError, match=words):
        kernel(grid=grid).programs(unknown_sizes(SIGNATURE), {}, traced)


def test_without_triton_a_call_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setitem(sys.modules, "triton.language", None)

    @opsmith.op("triton_words::late")
    def late(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x.clone()

    late.register_kernel("cuda", triton="nowhere:kernel", grid=("N",))
    assert late(torch.ones(2)).tolist() == [1.0, 1.0]
    with opsmith.emulate("cuda"), pytest.raises(MissingDependencyError) as caught:
        late(torch.ones(2))
    assert str(caught.value) == (
        "triton_words::late (cuda): the kernel is in Triton. Triton is not installed. "
        'Get it: pip install "triton>=3.6"'
    )


def test_without_triton_the_row_is_not_applicable(monkeypatch):
    from opsmith import checks

    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setitem(sys.modules, "triton.language", None)

    @opsmith.op("triton_words::unchecked")
    def unchecked(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x.clone()

    unchecked.register_kernel("cuda", triton="nowhere:kernel", grid=("N",))
    report = checks.run(unchecked, select=["triton-interpreter"], isolate=False)
    (row,) = [row for row in report.rows if row.check == "triton-interpreter"]
    assert (row.status, row.message) == (
        "not applicable",
        'Triton is not installed. Get it: pip install "triton>=3.6"',
    )
