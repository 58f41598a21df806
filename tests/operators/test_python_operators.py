"""What can be said of an operator before anything is compiled."""

from __future__ import annotations

import pickle
from typing import Annotated, Any, Literal

import pytest
import torch
from jaxtyping import Complex, Float, Float32, Int32, Int64, UInt64
from torch import Tensor

import opsmith
from opsmith import ArgumentError, DeclarationError, Index, checks
from opsmith.operators import decorator
from opsmith.operators.core.onnx_translation import OnnxTranslation
from opsmith.operators.dispatch import autocast

State: Any = opsmith.DtypeVar("State", Float)
Ids: Any = opsmith.DtypeVar("Ids", Int32, Int64)


@pytest.fixture
def twice() -> Any:
    @opsmith.op("test_python::twice")
    def twice(x: Float[Tensor, "N"], k: int = 2, *, s: float = 1.0) -> Float[Tensor, "N"]:
        """Double."""
        return x * k * s

    return twice


def refused(function: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        function(*args, **options)
    return str(caught.value)


def test_an_operator_says_what_it_is(twice: Any) -> None:
    assert repr(twice) == (
        "<opsmith operator test_python::twice(Tensor x, SymInt k=2, *, float s=1.0) -> Tensor>"
    )
    assert (twice.name, twice.overload) == (
        "test_python::twice",
        torch.ops.test_python.twice.default,
    )
    assert twice.split({"s": 3.0, "k": 4, "x": 1}) == ((1, 4), {"s": 3.0})
    assert (twice.__name__, twice.__doc__) == ("twice", "Double.")
    assert list(twice.kernels) == ["reference"]
    assert (twice.cases, twice.only_registered_cases, twice.onnx_translations) == ([], False, [])
    assert (twice.written_fake, twice.rule.backward, twice.rule.reference) == (None, None, False)
    assert twice.build() == []
    assert pickle.loads(pickle.dumps(twice)) is twice


def test_options_that_cannot_be_are_refused(twice: Any) -> None:
    assert refused(opsmith.op, "test_python::a", lambda x: x, autograd="numeric") == (
        "test_python::a: autograd='numeric' is not supported; use \"reference\", or "
        "register_autograd for a hand-written backward"
    )
    assert refused(twice.register_autocast, "tpu", torch.float16).startswith(
        "test_python::twice: register_autocast('tpu'): there are cpu, cuda"
    )
    assert refused(twice.register_effect, None) == (
        "test_python::twice: register_effect: an operator of opsmith has no effects, except on "
        "the arguments "
        "that mutates_args names"
    )
    assert refused(twice.register_onnx, "Mul", inputs=["x", "y"]) == (
        "test_python::twice: register_onnx names 'y', which is not a parameter; there are x, k, s"
    )
    assert refused(twice.register_onnx, "Mul", attributes={"a": "z", "b": 3}) == (
        "test_python::twice: register_onnx names 'z', which is not a parameter; there are x, k, s"
    )
    assert refused(twice.set_kernel_enabled("cpu").__enter__) == (
        "test_python::twice: set_kernel_enabled('cpu'): no kernel is registered for it; there are "
        "none"
    )
    assert refused(twice.set_kernel_enabled("reference").__enter__).endswith("there are none")
    twice.register_kernel("cpu", lambda x, k, s: x)
    assert refused(twice.set_kernel_enabled("cuda").__enter__).endswith("there are cpu")


def test_every_registration_can_be_a_decorator(twice: Any) -> None:
    def cases(dtype: Any, seed: int) -> Any:
        return []

    def function(*args: Any) -> Any:
        return args[0]

    assert twice.register_kernel("cpu")(function) is function
    assert list(twice.kernels) == ["reference", "cpu"]
    assert twice.register_fake()(function) is function
    assert twice.written_fake is function
    assert twice.register_autograd(setup_context=cases)(function) is function
    assert (twice.rule.backward, twice.rule.setup_context) == (function, cases)
    assert twice.register_vmap()(function) is function
    assert twice.register_cases(only=True)(cases) is cases
    assert twice.register_cases(cases) is cases
    assert (twice.cases, twice.only_registered_cases) == ([cases, cases], True)
    assert twice.register_onnx(opset=7)(function) is function
    assert twice.register_onnx("Mul", opset=9, inputs=["x"], attributes={"a": "k"}) is None
    assert twice.register_onnx("Mul") is None
    assert twice.onnx_translations == [
        OnnxTranslation(function, 7, None, {}),
        OnnxTranslation("Mul", 9, ["x"], {"a": "k"}),
        OnnxTranslation("Mul", 1, None, {}),
    ]


def test_a_disabled_kernel_gives_way_to_the_reference_and_comes_back(twice: Any) -> None:
    twice.register_kernel("cpu", lambda x, k, s: x * 100)
    x = torch.ones(1)
    assert twice(x).item() == 100
    with twice.set_kernel_enabled("cpu", False):
        assert twice(x).item() == 2
        with twice.set_kernel_enabled("cpu"):
            assert twice(x).item() == 100
        assert twice(x).item() == 2
        twice.register_kernel("cpu", lambda x, k, s: x * 50)
        assert twice(x).item() == 2
    assert twice(x).item() == 50
    with pytest.raises(ZeroDivisionError), twice.set_kernel_enabled("cpu", False):
        raise ZeroDivisionError
    assert twice(x).item() == 50


def test_autocast_casts_what_floats_and_is_not_written() -> None:
    seen: list[Any] = []

    @opsmith.op("test_python::mixed")
    def mixed(
        x: Float[Tensor, "N"],
        ys: list[Float[Tensor, "N"]],
        i: Int64[Tensor, "N"],
        z: Float[Tensor, "N"] | None = None,
    ) -> Float[Tensor, "N"]:
        seen.append((x.dtype, [y.dtype for y in ys], i.dtype, z if z is None else z.dtype))
        return x.clone()

    half, single = torch.ones(1, dtype=torch.bfloat16), torch.ones(1)
    index = torch.ones(1, dtype=torch.int64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed(half, [single, half], index)
        mixed(half, [half], index, half)
        mixed.register_autocast("cpu", torch.float64)
        mixed(half, [single], index, single)
    f64, f32, f16, i64 = torch.float64, torch.float32, torch.bfloat16, torch.int64
    assert seen == [
        (f32, [f32, f32], i64, None),
        (f16, [f16], i64, f16),
        (f64, [f64], i64, f64),
    ]


def test_autocast_moves_each_dtype_variable_by_itself() -> None:
    seen: list[Any] = []

    @opsmith.op("test_python::stepped")
    def stepped(
        h: State[Tensor, "N"],
        x: Float[Tensor, "N"],
        y: Float[Tensor, "N"],
        i: Ids[Tensor, "N"],
        scale: Float32[Tensor, "N"],
    ) -> State[Tensor, "N"]:
        seen.append([str(one.dtype).removeprefix("torch.") for one in (h, x, y, i, scale)])
        return h.clone()

    half, single = torch.ones(1, dtype=torch.bfloat16), torch.ones(1)
    index = torch.ones(1, dtype=torch.int32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        stepped(half, half, single, index, single)
        stepped.register_autocast("cpu", torch.bfloat16)
        stepped(single, single, single, index, single)
        stepped.register_autocast("cpu", {"Float": torch.bfloat16})
        stepped(single, single, single, index, single)
    assert seen == [
        ["bfloat16", "float32", "float32", "int32", "float32"],
        ["bfloat16", "bfloat16", "bfloat16", "int32", "float32"],
        ["float32", "bfloat16", "bfloat16", "int32", "float32"],
    ]
    assert refused(stepped.register_autocast, "cpu", {"Half": torch.bfloat16}) == (
        "test_python::stepped: register_autocast: 'Half' is no dtype variable of the operator; "
        "there are State, Float, Ids"
    )
    assert refused(stepped.register_autocast, "cpu", {"Ids": torch.bfloat16}) == (
        "test_python::stepped: register_autocast: Ids is one of int32, int64, got torch.bfloat16"
    )


def test_autocast_keeps_complex_tensors_in_the_precision_of_real_ones() -> None:
    @opsmith.op("test_python::modulated")
    def modulated(x: Float[Tensor, "N"], w: Complex[Tensor, "N"]) -> Complex[Tensor, "N"]:
        return x * w

    wide = torch.ones(1, dtype=torch.complex128)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert modulated(torch.ones(1), wide).dtype is torch.complex128
        modulated.register_autocast("cpu", torch.float32)
        assert modulated(torch.ones(1).double(), wide).dtype is torch.complex64


@pytest.mark.parametrize(
    ("annotation", "needed"),
    [
        ('x: Float[Tensor, "N"]', False),
        ('x: Float[Tensor, "N"], y: jaxtyping.Int[Tensor, "N"]', False),
        ('x: Float[Tensor, "N"], i: jaxtyping.Int[Tensor, "N"], y: Float[Tensor, "N"]', True),
        ('i: jaxtyping.Int[Tensor, "N"], j: jaxtyping.Int[Tensor, "N"]', False),
        ('x: Float[Tensor, "N"], y: Float[Tensor, "N"]', True),
        ('x: list[Float[Tensor, "N"]]', True),
        ('x: Float[Tensor, "N"], y: Tensor', False),
        ('x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]', False),
    ],
)
def test_only_several_generic_tensors_need_promotion(annotation: str, needed: bool) -> None:
    import declarations

    signature = declarations.declared(f"f({annotation}) -> Tensor")
    assert autocast.needs_promotion(signature) is needed


@pytest.mark.parametrize(
    ("schema", "declared"),
    [
        ("(Tensor x, int k=1) -> Tensor", "f(Tensor x, SymInt k=1) -> Tensor"),
        ("(Tensor x, SymInt k) -> (Tensor, Tensor)", "f(Tensor x, SymInt k) -> (Tensor, Tensor)"),
        ("(Tensor? x, int[2] k) -> Tensor[]", "f(Tensor? x, SymInt[2] k) -> Tensor[]"),
        ("(Tensor[] x, float[] k) -> Tensor", "f(Tensor[] x, float[] k) -> Tensor"),
        ("(Tensor x, str? k=None) -> Tensor", "f(Tensor x, str? k=None) -> Tensor"),
        ("(bool x, float k) -> Tensor", "f(bool x, float k) -> Tensor"),
    ],
)
def test_a_schema_stands_for_annotations(schema: str, declared: str) -> None:
    from opsmith.signature import signature_of

    def f(x, k): ...

    signature = signature_of(decorator.annotated(f, "ns::f", schema), "ns::f")
    assert signature.schema() == declared
    decorator.refuse_others(signature, schema)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("(Tensor x -> Tensor", "schema='(Tensor x -> Tensor' does not parse: "),
        ("(Tensor x) -> Tensor", "schema='(Tensor x) -> Tensor' has the parameters (x), the "
         "function has (x, k)"),
        ("(Tensor x, Device k) -> Tensor", "the schema has the type Device, which operators do not "
         "take here"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_stand_there_is_refused(schema: str, said: str) -> None:
    def f(x, k): ...

    assert refused(decorator.annotated, f, "ns::f", schema).startswith(f"ns::f: {said}")


def test_a_schema_that_says_something_else_is_refused() -> None:
    def f(x: Tensor, *, k: int = 3) -> Tensor: ...

    import declarations

    signature = declarations.declared("f(x: Tensor, *, k: int) -> Tensor")
    for schema in (
        "(Tensor x, int k) -> Tensor",
        "(Tensor x, *, float k) -> Tensor",
        "(Tensor x, *, int j) -> Tensor",
        "(Tensor(a!) x, *, int k) -> Tensor",
        "(Tensor x, *, int k) -> (Tensor, Tensor)",
    ):
        said = refused(decorator.refuse_others, signature, schema)
        assert said.startswith(
            f"ns::f: the schema differs from the declaration's.\n  schema=:     ns::f{schema}\n"
        )
        assert said.endswith("  declaration: ns::f(Tensor x, *, SymInt k) -> Tensor")
    decorator.refuse_others(signature, "(Tensor x, *, int k) -> Tensor")


def test_a_call_says_which_argument_it_cannot_take(twice: Any) -> None:
    for args, said in (
        ((3,), "argument 'x' is 3 (int), expected Float[Tensor, \"N\"]."),
        ((torch.ones(1, 1),), "argument 'x' has 2 dimensions, expected 1 for "),
    ):
        with pytest.raises(ArgumentError) as caught:
            twice(*args)
        assert str(caught.value).startswith(f"test_python::twice: {said}")


ADOPTIONS = [
    ("aten::asinh", None, "aten::asinh: the declaration differs from the operator.\n  declared: "
     "aten::asinh(Tensor x) -> Tensor\n  operator: aten::asinh(Tensor self) -> Tensor"),
    ("aten::nothing", None, "aten::nothing: PyTorch has no such operator. Import the package that "
     "defines it first."),
    ("nothing", None, "nothing: PyTorch has no such operator. Import the package that defines it "
     "first."),
    ("aten::asinh.Nothing", None, "aten::asinh.Nothing: there is no such overload; there are "
     "aten::asinh, aten::asinh.out"),
    (3, None, "adopt(3): takes an operator's name or a torch.autograd.Function"),
    (torch.autograd.Function, None, "adopt(Function): give the new operator a name, "
     'adopt(Function, "my_ops::function")'),
]  # fmt: skip


@pytest.mark.parametrize(("what", "second", "said"), ADOPTIONS)
def test_what_cannot_be_adopted_is_said(what: Any, second: Any, said: str) -> None:
    def declared(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]: ...

    function = second if isinstance(what, type) else declared
    assert refused(opsmith.adopt, what, function).startswith(said)


def test_an_adopted_operator_is_the_one_that_was_there() -> None:
    @opsmith.adopt("aten::asinh")
    def asinh(self: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        """Inverse of sinh."""
        return torch.log(self + torch.sqrt(self * self + 1))

    assert repr(asinh) == "<adopted operator aten.asinh.default>"
    assert (asinh.overload, asinh.build()) == (torch.ops.aten.asinh.default, [])
    assert pickle.loads(pickle.dumps(asinh)) is asinh
    assert asinh(torch.zeros(2)).tolist() == [0, 0]
    assert asinh.__doc__ == "Inverse of sinh."
    for name in ("kernel", "fake", "autograd", "vmap", "autocast", "torch_dispatch"):
        assert refused(getattr(asinh, f"register_{name}"), "cpu") == (
            "aten::asinh: another library defines this operator, so it cannot get a kernel or a "
            "derivative here. Declare your own operator (opsmith.op), and call it in the "
            "reference."
        )


def test_numbers_without_a_sign_are_compared_as_they_are() -> None:
    @opsmith.op("test_python_operators::picked")
    def picked(
        x: Float[Tensor, "N"], at: Annotated[UInt64[Tensor, "K"], Index("N")]
    ) -> Float[Tensor, "K"]:
        return x[at.to(torch.int64)]

    x = torch.arange(3.0)
    assert picked(x, torch.tensor([0, 2], dtype=torch.uint64)).tolist() == [0.0, 2.0]
    for wrong in (3, 2**63, 2**64 - 1):
        with pytest.raises(ArgumentError, match=f"has value {wrong} at index 1, expected 0 <= "):
            picked(x, torch.tensor([0, wrong], dtype=torch.uint64))


def test_an_argument_of_what_writes_may_be_called_mode():
    @opsmith.op("python_operators::scaled_", mutates_args=("x",))
    def scaled_(x: Float[Tensor, "N"], mode: Literal["twice", "thrice"] = "twice") -> None:
        x.mul_(2 if mode == "twice" else 3)

    def run(x: Tensor) -> Tensor:
        own = x + 1
        scaled_(own, mode="thrice")
        scaled_(own)
        return own

    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    assert compiled(torch.ones(2)).tolist() == [12, 12]
    report = checks.run(scaled_, select=["opcheck", "export"], isolate=False)
    assert report.ok, report.explain()
