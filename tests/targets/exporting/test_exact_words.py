"""What an export says, asks for and compares, word by word; no runtime is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor, nn
from torch.export import Dim

import opsmith
from opsmith import CheckError, ExportError
from opsmith.targets import (
    Artifact,
    Model,
    ModelTarget,
    OperatorUse,
    Option,
    Outcome,
    Runner,
    prepare,
)
from opsmith.targets.exporting import export as exporting, operator_export
from opsmith.targets.exporting.tracing import evaluating
from opsmith.targets.exporting.verification import compare, largest_difference, relative_difference


class Echo(Runner):
    """Gives back what PyTorch would, a little off."""

    def __init__(self, model: Model, error: float) -> None:
        self.model, self.error = model, error
        self.shapes: list[tuple[int, ...]] = []

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        assert all(value.is_contiguous() for value in inputs)
        self.shapes.append(tuple(inputs[0].shape))
        args, kwargs = self.model.unflatten([value.clone() for value in inputs])
        with torch.no_grad():
            returned = self.model.program.module()(*args, **kwargs)
        return [torch.as_tensor(returned) + self.error]


class EchoTarget(ModelTarget):
    name = "echo"
    title = "Echo"
    options = (
        Option("form", "how", default="auto", choices=("auto", "inline"), by_operator=True),
        Option("kind", "which", choices=("big", "small")),
        Option("opset", "its number", default=18, kind=int),
        Option("error", "added", default=0.0, kind=float),
        Option("fast", "or not", default=False, kind=bool),
    )
    unverified = ""
    uses: tuple[OperatorUse, ...] = ()

    def export_model(self, model: Model, folder: Path, options: Mapping[str, Any]) -> Outcome:
        self.model, self.given = model, dict(options)
        (folder / "model.txt").write_text("echo")
        return Outcome(self.uses, {"echo": "3"}, {"pair": (1, 2)}, self.unverified)

    def load_model(self, artifact: Artifact) -> Runner:
        return Echo(self.model, self.given["error"])


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> EchoTarget:
    found = EchoTarget()
    monkeypatch.setattr(exporting, "get_target", lambda name: found)
    return found


def refused(error: type[Exception], call: Any, /, *args: Any, **more: Any) -> str:
    with pytest.raises(error) as caught:
        call(*args, **more)
    return str(caught.value)


def export(out: Path, value: float = 1.0, **more: Any) -> list[str]:
    said: list[str] = []
    args = (torch.full((3,), value),)
    opsmith.export(nn.Identity(), args, target="echo", out=out, say=said.append, **more)
    return said


# --- options -------------------------------------------------------------------------------------


def test_options_are_filled_in_and_none_means_the_default(target, tmp_path: Path) -> None:
    export(tmp_path / "one", opset=None, form={"a::b": "inline"}, fast=True)
    assert target.given == {
        "form": {"a::b": "inline"},
        "kind": None,
        "opset": 18,
        "error": 0.0,
        "fast": True,
    }
    export(tmp_path / "two", kind="small", opset="17", error=1e-9)
    assert (target.given["kind"], target.given["opset"], target.given["form"]) == (
        "small",
        "17",
        "auto",
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"color": 1}, "target 'echo' has no option 'color'; there are form, kind, opset, error, "),
        ({"kind": "huge"}, "target 'echo': kind='huge'; there are big, small"),
        (
            {"form": 3},
            "target 'echo': form=3; expected a str, or a mapping from operator names to these",
        ),
        ({"form": "other"}, "target 'echo': form='other'; there are auto, inline"),
        ({"opset": "new"}, "target 'echo': opset='new'; expected int"),
        ({"error": [1]}, "target 'echo': error=[1]; expected float"),
    ],
)
def test_an_option_that_the_target_does_not_take_is_said(
    target, tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    assert refused(ExportError, export, tmp_path / "dist", **given).startswith(said)
    assert list(tmp_path.iterdir()) == []


def test_a_target_without_options_says_that_there_are_none(target, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(EchoTarget, "options", ())
    message = refused(ExportError, export, tmp_path / "dist", color=1)
    assert message == "target 'echo' has no option 'color'; there are none"


# --- what an export says -------------------------------------------------------------------------


def test_each_operator_is_said_with_its_form_its_calls_and_why(target, tmp_path: Path) -> None:
    target.uses = (OperatorUse("a::b", "library"), OperatorUse("a::c", "inline", 2, "asked for"))
    out = tmp_path / "dist"
    assert export(out, verify=False) == [
        "a::b: library, 1 call",
        "a::c: inline, 2 calls (asked for)",
        f"Echo artifact: {out}",
    ]
    manifest = Artifact.open(out).manifest
    assert (manifest.kind, manifest.operators, manifest.agreement) == ("model", target.uses, None)
    assert manifest.details == {"pair": [1, 2]}
    assert manifest.versions["torch"] == torch.__version__
    assert list(manifest.versions) == ["opsmith", "torch", "python", "echo"]


def test_what_cannot_be_run_here_is_not_compared_and_says_why(target, tmp_path: Path) -> None:
    target.unverified = "it is for another machine"
    said = export(tmp_path / "dist", error=5.0)
    assert said[0] == "not compared with PyTorch: it is for another machine"
    assert Artifact.open(tmp_path / "dist").manifest.agreement is None


def test_the_largest_difference_is_said_with_the_output_that_has_it(target, tmp_path) -> None:
    said = export(tmp_path / "dist", 1000.0, verify=[], error=0.25)  # the example alone
    assert said[0] == (
        "largest difference between Echo and PyTorch over 1 sample: 0.00025 of the largest value "
        "(in 'output')"
    )
    agreement = Artifact.open(tmp_path / "dist").manifest.agreement
    assert agreement is not None
    assert (agreement.samples, agreement.output) == (1, "output")
    assert agreement.largest == pytest.approx(0.00025)


def test_a_target_says_which_of_its_packages_are_not_installed() -> None:
    class Needing(EchoTarget):
        install = 'pip install "opsmith[echo]"'

    for packages, said in (
        ((), None),
        (("torch", "numpy"), None),
        (("torch", "no_echo"), 'no_echo is not installed. Get it: pip install "opsmith[echo]"'),
        (
            ("no_echo", "torch", "no.echo"),
            'no_echo, no.echo are not installed. Get it: pip install "opsmith[echo]"',
        ),
    ):
        found = Needing()
        found.packages = packages  # type: ignore[misc]
        assert found.available() == said


@pytest.mark.parametrize(
    ("hint", "dtype"), [(Float32, "float32"), (Float, "float32"), (Int, "int8")]
)
def test_operators_are_compared_in_one_dtype_of_theirs(hint: Any, dtype: str) -> None:
    asked: list[Any] = []

    def same(x: Any) -> Any:
        return x

    same.__annotations__ = {"x": hint[Tensor, "N"], "return": hint[Tensor, "N"]}
    operator = opsmith.op(f"exact_words::same_{hint.__name__}")(same)

    @operator.register_cases
    def cases(dtype: torch.dtype, seed: int) -> Any:
        asked.append((dtype, seed))
        for n in range(12):
            yield {"x": torch.ones(n, dtype=dtype)}

    found = list(operator_export._cases(operator))
    assert [len(one["x"]) for one in found] == list(range(8))
    assert asked == [(getattr(torch, dtype), 0)]


# --- the example ---------------------------------------------------------------------------------


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x - y + self.w


def test_one_tensor_given_for_two_inputs_or_for_a_parameter_stays_two_inputs() -> None:
    x, model = torch.ones(3, requires_grad=True), Twice()
    for args in ((x, x), (model.w, x), (x, model.w.detach())):
        made = prepare(model, args)
        assert [spec.name for spec in made.inputs] == ["x", "y"]
        first, second = made.args
        assert first is not second and first is not model.w
        assert [value.requires_grad for value in made.args] == [v.requires_grad for v in args]
        returned = made.program.module()(torch.full((3,), 5.0), torch.full((3,), 2.0))
        assert returned.tolist() == [4.0, 4.0, 4.0]


def test_a_program_that_was_traced_with_one_tensor_for_two_inputs_is_refused() -> None:
    x = torch.ones(3)
    program = torch.export.export(Twice(), (x, x))
    assert refused(ExportError, prepare, program) == (
        "the ExportedProgram was traced with one tensor for the inputs 'x' and 'y', and "
        "torch.export reads one input for all of them. Trace it with a copy for each: "
        "example.clone()"
    )
    prepare(torch.export.export(Twice(), (x, x.clone())))


def test_what_an_example_is_needed_for_is_said() -> None:
    assert refused(ExportError, prepare, nn.Identity()) == (
        "exporting a module needs example arguments: export(model, (x,), …)"
    )
    program = torch.export.export(nn.Identity(), (torch.ones(3),))
    assert len(prepare(program).args) == 1
    assert len(prepare(program, (torch.zeros(3),)).args) == 1
    program.example_inputs = None
    assert refused(ExportError, prepare, program) == (
        "the ExportedProgram carries no example inputs; pass args"
    )

    class Raises(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("not today")

    message = refused(ExportError, prepare, Raises(), (torch.ones(3),))
    assert message.startswith("torch.export.export could not trace Raises:\n")
    assert "not today" in message and "The example has size 1" not in message


ROWS = Dim("rows")


@pytest.mark.parametrize(
    "shapes",
    [
        {"y": (ROWS,), "x": (ROWS,)},
        ({0: ROWS}, [ROWS]),
        ((ROWS,), (ROWS,)),
        {"x": {0: ROWS}, "y": {0: ROWS}},
    ],
)
def test_sizes_have_the_names_that_the_user_gave(shapes: Any) -> None:
    class Sum(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x + y

    model = prepare(Sum(), (torch.ones(4), torch.ones(4)), None, shapes)
    assert [spec.shape for spec in model.inputs] == [("rows",), ("rows",)]
    assert [spec.shape for spec in model.outputs] == [("rows",)]
    assert list(model.dims) == ["rows"]


def test_a_size_that_pytorch_names_leaves_the_others_their_names() -> None:
    class Sum(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return x.sum() + y

    for hint in (Dim.AUTO, Dim.DYNAMIC, None):
        made = prepare(Sum(), (torch.ones(5), torch.ones(4)), None, ((hint,), (ROWS,)))
        assert made.inputs[1].shape == ("rows",)
        assert isinstance(made.inputs[0].shape[0], int) == (hint is None)


def test_only_what_trains_otherwise_is_said_to_be_evaluated_and_all_train_again() -> None:
    said: list[str] = []
    plain, dropping = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Dropout())
    dropping[0].eval()
    for model in (plain, dropping):
        with pytest.raises(ZeroDivisionError), evaluating(model, said.append):
            assert not any(module.training for module in model.modules())
            raise ZeroDivisionError
    assert plain.training and dropping.training and dropping[1].training
    assert not dropping[0].training
    assert said == ["Sequential is in training mode; it is exported in evaluation mode"]
    for kind in (nn.BatchNorm1d(2), nn.GRU(2, 2)):
        with evaluating(kind, said.append):
            pass
    assert len(said) == 3
    with evaluating(plain.eval(), said.append), evaluating(nn.Dropout().eval(), said.append):
        pass
    assert len(said) == 3


# --- comparing -----------------------------------------------------------------------------------


def test_results_of_another_number_shape_or_dtype_are_said() -> None:
    one = torch.ones(2)
    assert refused(CheckError, largest_difference, ["a"], [one], [one, one], "Echo") == (
        "Echo returned 2 tensors, PyTorch 1"
    )
    for found in (torch.ones(1, 2), torch.ones(2, dtype=torch.float64)):
        assert refused(CheckError, largest_difference, ["a"], [one], [found], "Echo") == (
            f"Echo returned 'a' as {found.dtype} {tuple(found.shape)}, PyTorch as torch.float32 "
            "(2,)"
        )


@pytest.mark.parametrize(
    ("dtype", "allowed"),
    [
        (torch.float16, 2e-2),
        (torch.bfloat16, 1e-1),
        (torch.float32, 1e-3),
        (torch.float64, 1e-6),
        (torch.int64, 1.0),
        (torch.bool, 1.0),
    ],
)
def test_a_dtype_decides_what_rounding_explains(dtype: torch.dtype, allowed: float) -> None:
    scale = 1 if dtype is torch.bool else 4096
    expected = torch.tensor([0, scale]).to(dtype)
    inside = torch.tensor([int(scale * allowed * 0.9), scale]).to(dtype)
    largest, name = largest_difference(["a"], [expected], [inside], "Echo")
    assert (0 <= largest <= allowed, name) == (True, "a")
    if dtype in (torch.bool, torch.float64):
        return
    outside = torch.tensor([int(scale * allowed * 1.2) + 1, scale]).to(dtype)
    assert refused(CheckError, largest_difference, ["a"], [expected], [outside], "Echo") == (
        "Echo disagrees with PyTorch in the output 'a': the largest difference is "
        f"{relative_difference(expected, outside):.3g} of the largest value, allowed is "
        f"{allowed:g}. Nothing was written. Pass verify=False to export all the same."
    )


def test_the_output_that_differs_most_is_named() -> None:
    one, off, more = torch.ones(2), torch.tensor([1, 1.0001]), torch.tensor([1, 1.0002])
    largest, name = largest_difference("abc", [one] * 3, [off, more, one], "Echo")
    assert (name, largest) == ("b", pytest.approx(2e-4, rel=1e-3))
    assert largest_difference([], [], [], "Echo") == (0.0, "")


def test_infinities_and_complex_numbers_are_compared_too() -> None:
    inf = float("inf")
    assert relative_difference(torch.tensor([inf]), torch.tensor([-inf])) == inf
    assert relative_difference(torch.tensor([inf, 2.0]), torch.tensor([inf, 1.0])) == 0.5
    assert relative_difference(torch.tensor([1.0]), torch.tensor([float("nan")])) == inf
    z = torch.tensor([3 + 4j])
    assert relative_difference(z, z + 1j) == pytest.approx(0.2)
    assert relative_difference(z, z) == 0


def test_a_sampled_size_that_the_model_does_not_take_says_nothing_of_the_runtime() -> None:
    class Exp(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.exp()

    made = prepare(Exp(), (torch.ones(4),), None, ({0: Dim("n")},))
    asked: list[int] = []

    class Picky(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            asked.append(len(x))
            if len(x) > limit:
                raise ValueError("too many")
            return x.exp()

    picky = Model(made.program, Picky(), made.args, made.kwargs, made.dim_names)
    limit, runner = 5, Echo(made, 0.0)
    agreement = compare(picky, runner, "Echo")
    assert max(asked) > limit and [shape[0] for shape in runner.shapes] == [4, 4, 5, 3]
    assert agreement.samples == 4
    with pytest.raises(ValueError, match="too many"):
        compare(picky, runner, "Echo", [(torch.ones(6),)])  # the caller's own
    limit = 3
    with pytest.raises(ValueError, match="too many"):
        compare(picky, runner, "Echo")  # the example
