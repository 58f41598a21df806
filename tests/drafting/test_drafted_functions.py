"""A draft of a `torch.autograd.Function`, as networks have them, or the reason for none."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import torch
from torch.autograd import Function

from opsmith import checks
from opsmith.drafting import draft_function, draft_operator
from opsmith.errors import DeclarationError
from opsmith.sources.importing import import_operators

FUNCTIONS = '''
import torch
from torch.autograd import Function
from torch.amp import custom_bwd, custom_fwd


class Window(Function):
    """Numbers, a tuple and a text, which have no gradient."""

    @staticmethod
    def forward(ctx, x, factor: float, size=(2, 2), mode="mean"):
        ctx.factor, ctx.size = factor, size
        return x * factor * size[0]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor * ctx.size[0], None, None, None


class Biased(Function):
    """An optional tensor, whose shape the backward alone shows."""

    @staticmethod
    def forward(ctx, x, bias=None):
        ctx.has = bias is not None
        return x + bias if ctx.has else x.clone()

    @staticmethod
    def backward(ctx, g):
        return g, g.sum(0) if ctx.has else None


class Half(Function):
    """Under autocast, and with gradients that are not always wanted."""

    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        needs = ctx.needs_input_grad
        return g @ w if needs[0] else None, g.t() @ x if needs[1] else None


class Normed(Function):
    """A weight of rows, which the forward alone would take in any shape."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * weight

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        return g * weight, (g * x).reshape(-1, x.shape[-1]).sum(0).to(weight.dtype)


class Sign(Function):
    """Straight through, with a context of its own."""

    @staticmethod
    def forward(x, limit: float):
        return x.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.limit = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (x.abs() <= ctx.limit), None
'''
SHOWN = {
    "Window": [
        'x: Float[Tensor, "*shape"],',
        "factor: float,",
        "size: tuple[int, int] = (2, 2),",
        'mode: Literal["mean"] = "mean",',
    ],
    "Biased": ['x: Float[Tensor, "N C"],', 'bias: Float[Tensor, "C"] | None = None,'],
    "Half": ['x: Float[Tensor, "N C"],', 'w: Float[Tensor, "M C"],'],
    "Normed": ['x: Float[Tensor, "N C"],', 'weight: Float[Tensor, "C"],'],
    "Sign": ['x: Float[Tensor, "*shape"],', "limit: float,"],
}


@pytest.mark.slow(cases=5)
@pytest.mark.parametrize("name", SHOWN)
def test_a_draft_imports_and_passes_its_checks(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"drafted_functions_{name.lower()}"
    (tmp_path / f"{module}.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    namespace: dict[str, type[Function]] = {}
    exec(FUNCTIONS, namespace)
    text = draft_function(module, namespace[name])
    for line in SHOWN[name]:
        assert f"    {line}\n" in text
    file = tmp_path / f"{module}_draft.py"
    file.write_text(text)
    (operator,) = import_operators(str(file)).operators
    rows = ["reference", "layouts", "fake", "mutation", "gradient", "validation"]
    report = checks.run(operator, select=rows, examples=8, isolate=False)
    assert report.ok, report.rows


class Accumulate(Function):
    @staticmethod
    def forward(ctx, total, x):
        ctx.mark_dirty(total)
        return total.add_(x)

    @staticmethod
    def backward(ctx, g):
        return g, g


class Configured(Function):
    @staticmethod
    def forward(ctx, x, device=torch.device("cpu")):  # noqa: B008
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2, None


class NotWritten(Function):
    """A backward that is still to be written; the draft is of its forward."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, n: int | None = None):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise NotImplementedError


def test_a_function_that_writes_is_refused_by_the_argument() -> None:
    with pytest.raises(DeclarationError) as caught:
        draft_function("m", Accumulate)
    assert str(caught.value) == (
        "Accumulate: its forward writes into its argument 'total' (mark_dirty), and an adopted "
        'Function may not. Write it as an operator with mutates_args=("total",) (opsmith.op).'
    )


def test_a_default_that_no_declaration_carries_is_refused_by_name() -> None:
    with pytest.raises(DeclarationError) as caught:
        draft_function("m", Configured)
    assert str(caught.value) == (
        "Configured: argument 'device' is device(type='cpu') by default, which no declaration can "
        "carry. Let apply take numbers, texts and tensors, and make the rest of them."
    )


@pytest.mark.slow
def test_a_function_without_a_backward_is_drafted_by_its_forward() -> None:
    text = draft_function("m", NotWritten, "torch.rand(4, 6)")
    assert '    x: Float[Tensor, "*shape"],\n    n: int | None = None,\n' in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "aten::add.out",
            "returns the argument that it writes into (out), and a declared operator that writes "
            "returns nothing else. Adopt its form without out.",
        ),
        (
            "aten::aminmax.out",
            "returns the argument that it writes into (min and max), and a declared operator that "
            "writes returns nothing else. Adopt its form without min and max.",
        ),
        (
            "aten::add_.Tensor",
            "returns the argument that it writes into (self), and a declared operator that writes "
            "returns nothing else. Adopt its form without the underscore.",
        ),
        ("aten::item", "returns number, expected tensors"),
    ],
)
def test_what_cannot_be_adopted_is_said(name: str, message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        draft_operator(name)
    assert str(caught.value) == f"{name}: {message}"


def test_everything_that_stands_in_the_way_is_said_at_once() -> None:
    library = torch.library.Library("draft_many", "DEF")
    library.define("odd(Tensor x, Device d, Generator? g=None, *, Storage s) -> int")
    with pytest.raises(DeclarationError) as caught:
        draft_operator("draft_many::odd")
    assert str(caught.value) == textwrap.dedent(
        """\
        draft_many::odd: returns int, expected tensors
        draft_many::odd: argument 'd' is Device, which no declaration can carry
        draft_many::odd: argument 's' is Storage, which no declaration can carry"""
    )
