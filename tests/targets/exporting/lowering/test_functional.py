"""Operators that write have functional twins: new contents come back, and nothing is written."""

from __future__ import annotations

import operator as python_operator
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from calling import Call
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import ExportError
from opsmith.targets.exporting.lowering.functional import (
    _TWINS,
    CallsTwins,
    call_twin,
    decode,
    encode,
    functional,
    is_encoded,
    operator_of_twin,
    twin,
    without_mutation,
)


@opsmith.op("functional_test::shift", mutates_args=("x",))
def shift(
    x: Float[Tensor, "N"],
    steps: Sequence[float] = (0.5, 2.0),
    flips: Sequence[bool] | None = None,
    axes: Sequence[int] = (1, 2),
    *,
    label: str = "by",
) -> None:
    x += sum(steps) + len(axes)


@opsmith.op("functional_test::fold", mutates_args=("total", "count"))
def fold(
    x: Float[Tensor, "N C"], total: Float[Tensor, "C"], count: Float[Tensor, "1"] | None
) -> Float[Tensor, "C"]:
    total += x.sum(0)
    if count is not None:
        count += 1
    return total * 2


@opsmith.op("functional_test::part", mutates_args=("x",))
def part(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    x += 1
    return x * 2, x * 3


@opsmith.op("functional_test::positive", mutates_args=("seen",), data_dependent=("K",))
def positive(x: Float[Tensor, "N"], seen: Float[Tensor, "1"]) -> Float[Tensor, "K"]:
    seen += 1
    return x[x > 0]


@opsmith.op("functional_test::double")
def double(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


def ones() -> tuple[Tensor, Tensor, Tensor]:
    return torch.ones(2, 3), torch.zeros(3), torch.zeros(1)


@pytest.fixture(autouse=True)
def _anew() -> None:
    """Each test makes the twins that it needs, as if it ran alone."""
    for _, library in _TWINS.values():
        library._destroy()
    _TWINS.clear()


# --- the twin ------------------------------------------------------------------------------------


def test_a_twin_returns_results_then_new_contents_and_writes_nothing() -> None:
    x, total, count = ones()
    found = twin(fold)(x, total, count)
    assert [value.tolist() for value in found] == [[4.0] * 3, [2.0] * 3, [1.0]]
    assert (total.tolist(), count.tolist()) == ([0.0] * 3, [0.0])
    assert twin(shift)(total, [1.0], axes=[3]).tolist() == [2.0] * 3, "one value comes as itself"
    assert total.tolist() == [0.0] * 3


def test_a_twin_is_the_schema_without_its_writing() -> None:
    assert str(twin(fold)._schema) == (
        "opsmith_functional::functional_test__fold(Tensor x, Tensor total, Tensor? count) -> "
        "(Tensor, Tensor, Tensor)"
    )
    assert str(twin(shift)._schema) == (
        "opsmith_functional::functional_test__shift(Tensor x, float[] steps=[0.5, 2.], "
        'bool[]? flips=None, SymInt[] axes=[1, 2], *, str label="by") -> Tensor'
    )
    assert torch.Tag.needs_contiguous_strides in twin(fold).tags


def test_a_traced_twin_takes_as_text_what_torchscript_cannot_trace() -> None:
    traced = twin(shift, traced=True)
    assert str(traced._schema) == (
        'opsmith_functional::functional_test__shift__traced(Tensor x, str steps="[0.5, 2.0]", '
        'str? flips=None, SymInt[] axes=[1, 2], *, str label="by") -> Tensor'
    )
    x = torch.zeros(3)
    arguments = encode(shift, {"x": x, "steps": (0.1, 0.2), "flips": [True], "axes": (1,)})
    assert arguments == {"x": x, "steps": "[0.1, 0.2]", "flips": "[true]", "axes": (1,)}
    assert traced(**arguments).tolist() == pytest.approx([1.3] * 3)
    assert traced(x).tolist() == pytest.approx([4.5] * 3), "defaults are text too"


def test_what_is_text_reads_back_as_it_was() -> None:
    kinds = {name: is_encoded(shift.signature.by_name[name]) for name in shift.signature.by_name}
    assert kinds == {"x": False, "steps": True, "flips": True, "axes": False, "label": False}
    given = {"x": None, "steps": [0.1, 1e300], "flips": [True, False], "axes": [1], "label": "[1]"}
    assert decode(shift, encode(shift, given)) == given
    assert decode(shift, given) == given, "what came as numbers stays"
    assert encode(shift, {"flips": None}) == {"flips": None}


def test_a_twin_is_known_by_its_operator() -> None:
    assert operator_of_twin(twin(fold)) is fold
    assert operator_of_twin(twin(fold, traced=True)) is fold
    assert operator_of_twin(twin(shift)) is shift
    for other in (fold.overload, torch.ops.aten.add.Tensor, len, "fold", [fold]):
        assert operator_of_twin(other) is None


def test_a_twin_is_made_once_and_again_where_its_operator_is_declared_again() -> None:
    def declare(amount: int) -> opsmith.Operator:
        @opsmith.op("functional_test::again", mutates_args=("x",))
        def again(x: Float[Tensor, "N"]) -> None:
            x.add_(amount)

        return again

    first = declare(1)
    assert twin(first) is twin(first)
    assert twin(first)(torch.zeros(1)).tolist() == [1.0]
    second = declare(5)
    assert twin(second)(torch.zeros(1)).tolist() == [5.0]
    assert operator_of_twin(twin(second)) is second
    program = torch.export.export(Call(lambda x: twin(second)(x)), (torch.zeros(3),))
    assert twin(second) in [node.target for node in program.graph.nodes]


def test_a_twin_can_be_traced() -> None:
    program = torch.export.export(Call(lambda x: twin(shift)(x)), (torch.zeros(3),))
    (node,) = [node for node in program.graph.nodes if node.target is twin(shift)]
    assert tuple(node.meta["val"].shape) == (3,)


def test_a_twin_gets_what_the_call_gave_by_name() -> None:
    program = torch.export.export(Call(lambda x: shift(x.clone(), label="of")), (torch.ones(2),))
    graph = without_mutation(program, [shift]).graph
    (call,) = (node for node in graph.nodes if operator_of_twin(node.target) is shift)
    assert call.kwargs == {"label": "of"}


def test_a_twin_whose_size_the_data_decide_can_be_traced() -> None:
    program = torch.export.export(
        Call(lambda x: twin(positive)(x, x.new_zeros(1))), (torch.tensor([1.0, -1.0, 2.0]),)
    )
    for values in ([1.0, -1.0, 2.0], [-1.0, 3.0, -2.0]):
        made, seen = program.module()(torch.tensor(values))
        assert made.tolist() == [value for value in values if value > 0]
        assert seen.tolist() == [1.0]


def test_a_written_argument_that_is_none_has_an_empty_output() -> None:
    for made in (functional(fold, fold), twin(fold)):
        x, total, _ = ones()
        *_, written, absent = made(x, total, None)
        assert absent.shape == (0,)
        assert not torch.equal(written, total)


@opsmith.op("functional_test::spread", mutates_args=("xs", "last"))
def spread(
    xs: list[Float[Tensor, "..."]], step: float, last: Float[Tensor, "..."] | None = None
) -> None:
    for x in xs:
        x.add_(step)
    if last is not None:
        last.mul_(step)


def test_a_twin_of_a_written_list_returns_a_list() -> None:
    xs = [torch.zeros(2), torch.zeros(3, 1)]
    for made in (functional(spread, spread), twin(spread)):
        contents, last = made(xs, 2.0, torch.ones(1))
        assert [one.flatten().tolist() for one in contents] == [[2, 2], [2, 2, 2]]
        assert last.tolist() == [2] and not any(x.any() for x in xs)
        assert made([], 2.0, None)[0] == []


@pytest.mark.parametrize("absent", [False, True])
def test_a_call_that_writes_into_a_list_is_made_functional(absent: bool) -> None:
    def model(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        x, y = x.clone(), y.clone()
        spread([x, y[0]], 3.0, None if absent else y[1])
        return x, y

    given = torch.ones(2), torch.ones(2, 2)
    program = without_mutation(torch.export.export(Call(model), given), [spread])
    called = {node.target for node in program.graph.nodes}
    assert twin(spread) in called and spread.overload not in called
    for one, other in zip(program.module()(*given), model(*given), strict=True):
        torch.testing.assert_close(one, other)


def test_what_a_twin_works_on_is_contiguous() -> None:
    seen: list[bool] = []

    def note(x: Tensor) -> None:
        seen.append(x.is_contiguous())
        x.add_(1)

    found = functional(part_of(note), note)(torch.zeros(3, 2).T)
    assert seen == [True] and found.is_contiguous()


def part_of(function: Any) -> opsmith.Operator:
    def anything(x: Float[Tensor, "..."]) -> None: ...

    return opsmith.op("functional_test::anything", mutates_args=("x",))(anything)


# --- calling it ----------------------------------------------------------------------------------


def test_calling_a_twin_does_what_the_operator_does() -> None:
    x, total, count = ones()
    arguments = {"x": x, "total": total, "count": count}
    assert call_twin(fold, twin(fold), arguments).tolist() == [4.0] * 3
    assert (total.tolist(), count.tolist()) == ([2.0] * 3, [1.0])
    assert call_twin(shift, twin(shift), shift.arguments((total, [1.0]), {})) is None
    assert total.tolist() == [5.0] * 3
    first, second = call_twin(part, twin(part), {"x": count})
    assert (first.tolist(), second.tolist(), count.tolist()) == ([4.0], [6.0], [2.0])


def written_by(mode: CallsTwins, function: Any) -> list[str]:
    """The operators of these tests that a call with `mode` comes to."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: list[str] = []

    class Sees(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if "functional_test" in str(func):
                seen.append(str(func).removesuffix(".default"))
            return func(*args, **(kwargs or {}))

    with Sees(), mode:
        function()
    return seen


SHIFT, FOLD = "functional_test.shift", "functional_test.fold"
TWIN = "opsmith_functional.functional_test__"


def test_references_call_twins_in_place_of_what_writes() -> None:
    x, total, count = ones()
    for call in (
        lambda: fold(x, total, count),
        lambda: torch.ops.functional_test.fold(x, total, count=count),
        lambda: torch.ops.functional_test.fold.default(x, total, count=count),
    ):
        before = total.clone()
        assert written_by(CallsTwins(), call)[0] == f"{TWIN}fold"
        assert (total - before).tolist() == [2.0] * 3, "it is written all the same"
    assert written_by(CallsTwins(), lambda: double(total)) == ["functional_test.double"]


def test_only_the_operators_that_were_named_are_called_by_their_twins() -> None:
    x, total, count = ones()

    def both() -> None:
        fold(x, total, count)
        shift(total)

    found = written_by(CallsTwins([shift]), both)
    assert found[0] == FOLD
    assert f"{TWIN}shift" in found and f"{TWIN}fold" not in found
    assert f"{TWIN}shift" not in written_by(CallsTwins([]), both)


# --- a whole program -----------------------------------------------------------------------------


def traced(function: Any, *inputs: Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(Call(function), inputs, strict=False)


def targets(program: torch.export.ExportedProgram) -> list[Any]:
    return [node.target for node in program.graph.nodes if node.op == "call_function"]


def all_three(x: Tensor) -> Any:
    total, count = x.new_zeros(3), x.new_zeros(1)
    shift(total)
    folded = fold(x, total, count)
    first, second = part(count)
    return folded, first, second, total, count


def test_every_call_that_writes_becomes_its_twin_and_a_copy_back() -> None:
    x = torch.randn(2, 3)
    program = traced(all_three, x)
    before = str(program.graph)
    found = without_mutation(program, [shift, fold, part, double])
    called = targets(found)
    for one in (shift, fold, part):
        assert called.count(twin(one)) == 1 and one.overload not in called
    assert called.count(torch.ops.aten.copy_.default) == 4, "one for each that is written"
    assert str(program.graph) == before, "the program that was given stays as it is"
    for value, expected in zip(found.module()(x), all_three(x), strict=True):
        torch.testing.assert_close(value, expected)


def test_what_is_made_has_the_shapes_of_what_it_stands_for() -> None:
    found = without_mutation(traced(all_three, torch.randn(2, 3)), [shift, fold, part])
    shapes: dict[Any, Any] = {}
    for node in found.graph.nodes:
        if node.op != "call_function":
            continue
        value = node.meta["val"]
        many = isinstance(value, tuple)
        shapes[node] = [tuple(one.shape) for one in value] if many else tuple(value.shape)
    of_twin = {node.target: shape for node, shape in shapes.items()}
    assert of_twin[twin(shift)] == (3,)
    assert of_twin[twin(fold)] == [(3,), (3,), (1,)]
    assert of_twin[twin(part)] == [(1,), (1,), (1,)]
    for node, shape in shapes.items():
        if node.target is python_operator.getitem:
            assert shape == shapes[node.args[0]][node.args[1]]
        if node.target is torch.ops.aten.copy_.default:
            assert shape == shapes[node.args[0]] == shapes[node.args[1]]


def test_outputs_of_the_program_are_still_its_outputs() -> None:
    found = without_mutation(traced(all_three, torch.randn(2, 3)), [shift, fold, part])
    (output,) = [node for node in found.graph.nodes if node.op == "output"]
    assert [node.name for node in output.args[0]] == list(found.graph_signature.user_outputs)
    found.run_decompositions({})


def test_only_the_operators_that_were_given_are_replaced() -> None:
    program = traced(all_three, torch.randn(2, 3))
    called = targets(without_mutation(program, [fold]))
    assert twin(fold) in called and twin(shift) not in called
    assert shift.overload in called
    assert without_mutation(program, []) is program
    assert without_mutation(program, [double]) is program


def test_branches_are_made_functional_too() -> None:
    def either(x: Tensor) -> Tensor:
        def yes(x: Tensor) -> Tensor:
            total = torch.zeros_like(x)
            shift(total, [1.0])
            return total + x

        def no(x: Tensor) -> Tensor:
            first, second = part(x.clone())
            return first + second

        return torch.cond(x.sum() > 0, yes, no, (x,))

    x = torch.ones(3)
    program = torch.export.export(Call(either), (x,))
    found = without_mutation(program, [shift, part])
    called = [
        node.target
        for module in found.graph_module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
    ]
    assert twin(shift) in called and twin(part) in called
    assert shift.overload not in called and part.overload not in called
    for value in (x, -x):
        torch.testing.assert_close(found.module()(value), either(value))


def test_a_written_argument_of_a_call_that_is_none_is_left_out() -> None:
    program = traced(lambda x: fold(x, x.new_zeros(3), None), torch.ones(2, 3))
    found = without_mutation(program, [fold])
    x = torch.rand(2, 3)
    torch.testing.assert_close(found.module()(x), program.module()(x))


def test_a_program_that_was_functionalized_is_refused() -> None:
    program = traced(all_three, torch.randn(2, 3)).run_decompositions({})
    with pytest.raises(ExportError) as caught:
        without_mutation(program, [shift])
    assert str(caught.value) == (
        "functional_test::shift: this ExportedProgram was functionalized already "
        "(run_decompositions). Export it as torch.export.export returned it."
    )
