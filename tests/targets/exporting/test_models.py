"""What targets ask of a model, what they write beside it, and the modules that they carry."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.export import Dim
from torch.utils import _pytree as pytree

import opsmith
from opsmith import ExportError
from opsmith.system.version import version
from opsmith.targets import Model, OperatorUse, prepare
from opsmith.targets.exporting.artifact import TensorSpec
from opsmith.targets.exporting.model import _plain, operator_behind
from opsmith.targets.exporting.packages import vendoring
from opsmith.targets.exporting.readme import write_readme


@opsmith.op("models::twice")
def twice(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    return 2 * x


class Pair(NamedTuple):
    first: Tensor
    rest: list[Tensor]


class Unnamed:
    def __init__(self, held: list[Tensor]) -> None:
        self.held = held


pytree.register_pytree_node(
    Unnamed, lambda one: (one.held, None), lambda held, _: Unnamed(list(held))
)


class Called(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.function(self, x, y)


def model(function: Any, shapes: Any = None) -> Model:
    return prepare(Called(function), (torch.ones(4), torch.ones(4)), None, shapes)


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda self, x, y: x + y, ["output"]),
        (lambda self, x, y: (x + y, x - y), ["output_0", "output_1"]),
        (lambda self, x, y: {"sum": x + y, "difference": x - y}, ["sum", "difference"]),
        (lambda self, x, y: {"sum": x + y, "none": None}, ["sum"]),
        (lambda self, x, y: (x + y,), ["output"]),
        (lambda self, x, y: Pair(x + y, [x]), ["first", "rest_0"]),
        (lambda self, x, y: {"kept": (x + y, [x * 2]), "z": x}, ["kept_0", "kept_1_0", "z"]),
        (lambda self, x, y: (x, [{"boxes": y}]), ["output_0", "output_1_0_boxes"]),
        # A name that an input has, or that two values would share, is none.
        (lambda self, x, y: {"x": x + y, "z": x - y}, ["output_0", "output_1"]),
        (lambda self, x, y: {"a_0": x, "a": [y]}, ["output_0", "output_1"]),
        (lambda self, x, y: Unnamed([x, y]), ["output_0", "output_1"]),
    ],
)
def test_outputs_are_called_by_where_they_are_in_what_came_back(function: Any, names: Any):
    assert [spec.name for spec in model(function).outputs] == names


def test_a_model_says_what_a_call_of_it_changes() -> None:
    def writing(self: Any, x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        self.count.add_(1)
        return x + y

    changing = model(writing)
    functional = Model(changing.program.run_decompositions(), None, changing.args, changing.kwargs)
    assert functional.mutated_inputs() == ["y"]
    assert functional.mutated_buffers() == ["count"]
    plain = model(lambda self, x, y: x + y)
    assert (plain.mutated_inputs(), plain.mutated_buffers()) == ([], [])


def test_a_model_knows_its_operators_and_those_that_nobody_declared() -> None:
    library = torch.library.Library("models_elsewhere", "FRAGMENT")
    library.define("thrice(Tensor x) -> Tensor")
    library.impl("thrice", lambda x: 3 * x, "CompositeExplicitAutograd")
    thrice = torch.ops.models_elsewhere.thrice
    found = model(lambda self, x, y: twice(thrice(x)) + twice(y).relu())
    ((operator, calls),) = found.operators().items()
    assert (operator, [node.target for node in calls]) == (twice, [twice.overload] * 2)
    ((name, (call,)),) = found.foreign_operators().items()
    assert (name, call.target) == ("models_elsewhere::thrice", thrice.default)


def test_sizes_have_their_limits_and_their_names() -> None:
    large = Dim("n", min=2, max=2**31)
    assert model(lambda self, x, y: x + 1, ({0: large}, None)).dims == {"n": (2, 2**31)}
    n = Dim("n", min=2, max=9)
    bounded = model(lambda self, x, y: torch.cat([x, y]), ({0: n}, {0: n}))
    assert bounded.dims == {"n": (2, 9)}
    assert [spec.shape for spec in bounded.outputs] == [("2*n",)]
    assert bounded.shapes() == {"x": ("n",), "y": ("n",)}
    assert bounded.shape_environment is not None
    free = model(lambda self, x, y: x.sum() + y, ({0: Dim.AUTO}, {0: Dim("m")}))
    assert [high for _, high in free.dims.values()] == [None, None]
    assert all(name.isidentifier() for name in free.dims), "a size without a name has PyTorch's"
    # PyTorch says 2 of the symbol where the size may begin at 2.
    even = model(lambda self, x, y: x + 1, ({0: 2 * Dim("n", min=1, max=7)}, None))
    assert even.dims == {"n": (1, 7)}
    assert [spec.shape for spec in even.inputs] == [("2*n",), (4,)]
    again = prepare(bounded.program)
    assert [high for _, high in again.dims.values()] == [9]
    fixed = model(lambda self, x, y: x + y)
    assert (fixed.dims, fixed.shape_environment) == ({}, None)


def test_an_input_that_is_no_tensor_is_fixed_and_one_that_changes_is_refused() -> None:
    class Scaled(nn.Module):
        def forward(self, x: Tensor, k: int) -> Tensor:
            return x * k

    fixed = prepare(Scaled(), (torch.ones(3), 5))
    assert fixed.call.in_leaves == (0, {"is": 5})
    args, _ = fixed.unflatten([torch.zeros(3)])
    assert args[1] == 5 and args[0].tolist() == [0, 0, 0]
    assert [value.tolist() for value in fixed.flatten(args, {})] == [[0, 0, 0]]
    changing = prepare(Scaled(), (torch.ones(3), 5), None, (None, Dim.DYNAMIC))
    with pytest.raises(ExportError, match=r"^the input 'k' is a SymIntArgument: a number that ch"):
        _ = changing.call


def test_a_size_without_a_name_is_called_by_the_input_and_the_dimension() -> None:
    for size in (Dim.DYNAMIC, Dim.AUTO):
        found = model(lambda self, x, y: (x * 2, y), {"x": {0: size}, "y": {0: Dim("n")}})
        assert [spec.shape for spec in found.inputs] == [("x_dim_0",), ("n",)]
        assert found.dims == {"x_dim_0": (2, None), "n": (0, None)}
    (given,) = prepare(found.program).inputs[:1]
    assert given.shape == ("x_dim_0",)


def test_what_a_model_returned_beside_tensors_is_kept_as_it_was() -> None:
    found = model(lambda self, x, y: (x + y, None, 3, {"same": x * 2, "name": "a"}))
    assert found.call.out_leaves == (0, {"is": None}, {"is": 3}, 1, {"is": "a"})
    assert [spec.name for spec in found.outputs] == ["output_0", "output_3_same"]


def test_a_constant_that_json_has_not_is_its_text_which_no_argument_equals() -> None:
    assert [_plain(value) for value in (None, True, 2, 0.5, "a")] == [None, True, 2, 0.5, "a"]
    assert _plain(torch.float16) == "torch.float16"
    assert _plain((1, 2)) == "(1, 2)"


def test_calls_in_branches_are_calls_of_the_model_too() -> None:
    def either(self: Any, x: Tensor, y: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: twice(x), lambda x: twice(twice(x)), (x,))

    found = model(either)
    assert {operator.name: len(nodes) for operator, nodes in found.operators().items()} == {
        "models::twice": 3
    }


def test_an_adopted_operator_is_among_the_models_where_it_is_asked_for() -> None:
    library = torch.library.Library("models_adopted", "FRAGMENT")
    library.define("half(Tensor x) -> Tensor")
    library.impl("half", lambda x: x / 2, "CompositeExplicitAutograd")
    overload = torch.ops.models_adopted.half.default
    before = model(lambda self, x, y: overload(x))
    assert list(before.foreign_operators()) == ["models_adopted::half"]
    assert (operator_behind(overload), before.operators(adopted=True)) == (None, {})

    @opsmith.adopt("models_adopted::half")
    def half(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return x / 2

    assert operator_behind(overload) is half
    assert (before.foreign_operators(), before.operators()) == ({}, {})
    assert list(before.operators(adopted=True)) == [half]


def test_only_a_whole_operator_is_known_by_its_overload() -> None:
    assert operator_behind(twice.overload) is twice
    for other in (torch.ops.models.twice, torch.ops.aten.relu.default, len, "models::twice", None):
        assert operator_behind(other) is None

    @opsmith.op("models::again")
    def first(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return x + 1

    earlier = first.overload

    @opsmith.op("models::again")
    def second(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return x + 2

    assert operator_behind(second.overload) is second
    assert operator_behind(earlier) is not first


def test_a_model_keeps_the_module_that_it_was_traced_from() -> None:
    called = Called(lambda self, x, y: x + y)
    found = prepare(called, (torch.ones(4), torch.ones(4)))
    assert found.module is called
    assert prepare(found.program).module is None


def test_a_model_that_pytorch_cannot_trace_is_refused_with_pytorchs_words() -> None:
    def fails(self: Any, x: Tensor, y: Tensor) -> Tensor:
        raise ValueError("not this one")

    with pytest.raises(ExportError) as caught:
        model(fails)
    assert isinstance(caught.value.__cause__, ValueError)
    assert str(caught.value) == (
        f"torch.export.export could not trace Called:\n{caught.value.__cause__}"
    )


def test_parameters_of_a_model_may_ask_for_gradients_that_an_operator_does_not_have() -> None:
    @opsmith.op("models::overwrite", mutates_args=("memory",))
    def overwrite(memory: Float[Tensor, "N"], x: Float[Tensor, "N"]) -> None:
        memory.copy_(x)

    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((4,), 3.0))

        def forward(self, x: Tensor) -> Tensor:
            memory = torch.zeros(4)
            overwrite(memory, x * self.weight)
            return memory + 1

    with pytest.raises(opsmith.DifferentiationError, match="declares no gradient"):
        Remembers()(torch.ones(4))
    found = prepare(Remembers(), (torch.ones(4),))
    assert torch.is_grad_enabled()
    with torch.no_grad():
        result = found.program.module()(torch.full((4,), 2.0))
    assert result.tolist() == [7.0] * 4


def test_expressions_over_sizes_have_the_users_names() -> None:
    n, m = Dim("n", min=2), Dim("m", min=2)
    found = model(lambda self, x, y: torch.cat([x, y, y]), ({0: n}, {0: m}))
    assert [spec.shape for spec in found.outputs] == [("2*m + n",)]
    (x, _) = found._tensor_inputs()
    size = x.meta["val"].shape[0].node.expr
    assert found.text(sympy.Ne(size, 4)) == "n != 4"
    assert found.text(size + 1) == "n + 1"
    assert found.size(7) == 7


def test_an_example_of_size_1_where_sizes_change_is_said_to_be_the_reason() -> None:
    with pytest.raises(ExportError) as caught:
        prepare(
            Called(lambda self, x, y: x + y),
            (torch.ones(1), torch.ones(1)),
            None,
            2 * ((Dim("n"),),),
        )
    assert str(caught.value).endswith(
        "\nThe example has size 1 there; give one of size 2, which PyTorch does not fix."
    )


def test_a_program_is_called_with_the_example_that_came_with_it_or_with_another() -> None:
    program = model(lambda self, x, y: x + y).program
    x = torch.zeros(4)
    assert prepare(program).kwargs == {}
    assert [value.tolist() for value in prepare(program).args] == [[1.0] * 4] * 2
    given = prepare(program, kwargs={"x": x, "y": x})
    assert (given.args, list(given.kwargs), given.module) == ((), ["x", "y"], None)
    assert prepare(program, (x, x)).args == (x, x)


def test_a_readme_says_how_to_run_it_and_what_became_of_the_operators(tmp_path: Path) -> None:
    made: Any = SimpleNamespace(
        inputs=(TensorSpec("x", "float32", ("N", 3)),), outputs=(TensorSpec("y", "int64", (2,)),)
    )
    uses = (OperatorUse("a::b", "library"), OperatorUse("a::c", "inline", 2, "asked for"))
    write_readme(tmp_path, made, "A model", ["Needs nothing.", "", "Run it."], uses)
    text = (tmp_path / "README.md").read_text()
    whole = (
        f"# A model\n\nExported by opsmith {version()}.\n\nNeeds nothing.\n\nRun it.\n\n"
        "Inputs:\n\n- `x: float32 (N, 3)`\n\nOutputs:\n\n- `y: int64 (2,)`\n"
    )
    operators = "\nCustom operators:\n\n- `a::b`: library\n- `a::c`: inline (asked for)\n"
    assert text == whole + operators
    write_readme(tmp_path, made, "A model", ["Needs nothing.", "", "Run it."])
    assert (tmp_path / "README.md").read_text() == whole


def test_what_is_carried_imports_its_own_parts_and_nothing_of_opsmith() -> None:
    found = vendoring.modules(["targets.exporting.packages.runtime", "signature.calls"])
    assert {"_opsmith/targets/exporting/packages/runtime.py", "_opsmith/errors.py"} <= set(found)
    # Whatever is a package where it comes from, or holds others, is one here.
    assert {"_opsmith/__init__.py", "_opsmith/targets/__init__.py"} <= set(found)
    assert "_opsmith/signature/model.py" in found
    assert list(found) == sorted(found)
    assert (
        "from ....errors import ArtifactError"
        in found["_opsmith/targets/exporting/packages/runtime.py"]
    )
    for place, text in found.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level:
                folder = Path(place).parents[node.level - 1]
                inside = folder.joinpath(*(node.module or "").split("."))
                names = [inside / alias.name for alias in node.names]
                assert any(
                    f"{one}{end}" in found
                    for one in (inside, *names)
                    for end in (".py", "/__init__.py")
                ), f"{place}: {ast.unparse(node)}"


def test_a_package_is_carried_as_one_and_what_only_types_need_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {
        "errors.py": "X = 1\n",
        "heavy.py": "import nowhere\n",
        "part/__init__.py": "from opsmith.errors import X\n",
        "part/inner.py": (
            "from opsmith import part\n"
            "if TYPE_CHECKING:\n    from opsmith.heavy import H\n"
            "from json import loads\nfrom . import opsmith\n"
        ),
        "top.py": "from opsmith.part import inner\n",
    }
    for place, text in texts.items():
        path = tmp_path / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(vendoring, "_ROOT", tmp_path)
    inner = texts["part/inner.py"].replace("opsmith.heavy", "..heavy", 1)
    carried = {
        "_opsmith/__init__.py": '"""Part of opsmith."""\n',
        "_opsmith/errors.py": "X = 1\n",
        "_opsmith/part/__init__.py": "from ..errors import X\n",
        "_opsmith/part/inner.py": inner.replace("from opsmith import", "from .. import", 1),
        "_opsmith/top.py": "from .part import inner\n",
    }
    assert vendoring.modules(["top"]) == carried
    # A file in a package's place still holds what is in the package.
    light = tmp_path / "light.py"
    light.write_text("Y = 2\n")
    found = vendoring.modules(["top"], instead={"part": light})
    del carried["_opsmith/errors.py"]
    assert found == {**carried, "_opsmith/part/__init__.py": "Y = 2\n"}


def test_modules_may_lie_in_the_package_itself() -> None:
    found = vendoring.modules(
        ["targets.exporting.packages.runtime"],
        moved={"targets.exporting.packages": ""},
        folder="",
    )
    assert set(found) == {"errors.py", "runtime.py"}
    assert "\nfrom .errors import ArtifactError\n" in found["runtime.py"]


def test_modules_may_be_moved_and_replaced(tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("from opsmith.errors import ArtifactError\nX = ArtifactError\n")
    found = vendoring.modules(
        ["targets.exporting.packages.runtime"],
        moved={"targets": "up"},
        instead={"targets.exporting.packages.runtime": other},
    )
    assert found["_opsmith/up/exporting/packages/runtime.py"] == other.read_text().replace(
        "opsmith.", "...."
    )
    assert (
        vendoring.place_of("targets.exporting.packages.runtime", {"targets": "up"})
        == "_opsmith.up.exporting.packages.runtime"
    )
    assert (
        vendoring.place_of("targetsx.packaged", {"targets": "up"}) == "_opsmith.targetsx.packaged"
    )
    assert vendoring.place_of("errors") == "_opsmith.errors"
