"""Inlined references: what they assume of sizes, their constants, and what cannot be inlined."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from calling import Call
from jaxtyping import Float
from torch import Tensor
from torch.export import Dim

import opsmith
from opsmith import ExportError
from opsmith.targets import prepare
from opsmith.targets.exporting.lowering.assumptions import (
    _COMPARISON,
    Assumption,
    Assumptions,
    raised_at,
)
from opsmith.targets.exporting.lowering.choice import Choice, Chooser, inline
from opsmith.targets.exporting.lowering.functional import twin
from opsmith.targets.exporting.lowering.inlining import (
    Lowered,
    MakesConstants,
    _exclude_culprit,
    lower,
    overload_of,
)

pytestmark = pytest.mark.slow(cases=2)


@opsmith.op("inlining_test::double")
def double(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


@opsmith.op("inlining_test::quadruple")
def quadruple(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return double(double(x))


@opsmith.op("inlining_test::listed")
def listed(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    return [x + 1, x + 2]  # type: ignore[return-value]


@opsmith.op("inlining_test::counted", mutates_args=("x",))
def counted(x: Float[Tensor, "N"]) -> None:
    x += 1


@opsmith.op("inlining_test::silent")
def silent(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    raise ValueError


@opsmith.op("inlining_test::loud")
def loud(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    raise ValueError("not for tracing.\nAnd more of it.")


@opsmith.op("inlining_test::ordered")
def ordered(x: Float[Tensor, "N"], y: Float[Tensor, "M"]) -> Float[Tensor, "N"]:
    return x * 2 if x.shape[0] < y.shape[0] else x * 3


@opsmith.op("inlining_test::tied")
def tied(x: Float[Tensor, "N"], y: Float[Tensor, "M"]) -> Float[Tensor, "N"]:
    return x + y if x.shape == y.shape else x * 3


@opsmith.op("inlining_test::weighted")
def weighted(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    a = torch.tensor([1.0, 2.0], dtype=x.dtype)
    b = torch.as_tensor([[3, 3], [3, 3]])
    return x * a.sum() + OUTER.sum() + b.sum() + torch.tensor([]).sum()


@opsmith.op("inlining_test::there")
def there(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return back(x) + 1


@opsmith.op("inlining_test::back")
def back(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return there(x) - 1


@opsmith.op("inlining_test::longer")
def longer(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 5 if x.shape[0] > 3 else x * 3


@opsmith.op("inlining_test::long_and_silent")
def long_and_silent(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    if x.shape[0] > 3:
        raise ValueError(x)
    return x * 3


@opsmith.op("inlining_test::tied_rows")
def tied_rows(x: Float[Tensor, "N 3"], y: Float[Tensor, "M 3"]) -> Float[Tensor, "N 3"]:
    return x - y if x.shape == y.shape else x * 3


OUTER = torch.tensor([[0.5, 1.5, -2.0]])
LARGE = torch.arange(1025.0)


@opsmith.op("inlining_test::large")
def large(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x + LARGE.sum()


def lowered(
    function: Any, *inputs: Tensor, form: Any = "inline", dynamic: bool = True, pure: bool = True
) -> Lowered:
    forms = {
        "library": lambda operator, nodes: Choice(operator, "library", how=len(nodes)),
        "inline": inline,
    }
    chooser = Chooser(form, forms, "the test's runtime", automatic=["inline"])
    shapes = (tuple({0: Dim(f"n{i}", min=2)} for i in range(len(inputs))),) if dynamic else None
    return lower(prepare(Call(function), inputs, dynamic_shapes=shapes), chooser, pure=pure)


def refused(*args: Any, **options: Any) -> str:
    with pytest.raises(ExportError) as caught:
        lowered(*args, **options)
    return str(caught.value)


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    (number,) = (n for n, line in enumerate(lines, 1) if line.strip() == text)
    return f"{__file__}:{number}: {text}"


def forms_of(found: Lowered) -> dict[str, tuple[str, int]]:
    return {choice.operator.name: (choice.form, count) for choice, count in found.choices}


X, Y = torch.randn(4), torch.randn(6)


# --- operators -----------------------------------------------------------------------------------


@pytest.mark.parametrize("pure", [True, False])
def test_what_a_reference_calls_has_a_form_too_and_is_counted(pure: bool) -> None:
    found = lowered(lambda x: quadruple(x) + double(x), X, pure=pure)
    assert forms_of(found) == {
        "inlining_test::quadruple": ("inline", 1),
        "inlining_test::double": ("inline", 1),
    }
    assert found.kept == ()
    kept = lowered(quadruple, X, form={"inlining_test::double": "library"}, pure=pure)
    assert forms_of(kept) == {
        "inlining_test::quadruple": ("inline", 1),
        "inlining_test::double": ("library", 2),
    }
    assert [(choice.operator, choice.how) for choice in kept.kept] == [(double, 2)]
    targets = [node.target for node in kept.program.graph.nodes]
    assert targets.count(double.overload) == 2
    torch.testing.assert_close(kept.program.module()(X), X * 4)


def test_results_may_come_as_a_list() -> None:
    first, second = lowered(listed, X).program.module()(X)
    torch.testing.assert_close((first, second), (X + 1, X + 2))


def test_an_operator_that_writes_is_called_by_its_twin() -> None:
    assert overload_of(counted) is twin(counted)
    assert overload_of(double) is double.overload
    kept = lowered(lambda x: counted(y := x.clone()) or y, X, form="library")
    assert twin(counted) in [node.target for node in kept.program.graph.nodes]
    assert forms_of(kept) == {"inlining_test::counted": ("library", 1)}
    torch.testing.assert_close(kept.program.module()(X), X + 1)


def test_a_mapping_that_names_what_no_reference_calls_is_refused() -> None:
    assert refused(quadruple, X, form={"inlining_test::loud": "inline"}) == (
        "form names 'inlining_test::loud', which the model does not call; its custom operators are "
        "inlining_test::quadruple, inlining_test::double"
    )


@pytest.mark.parametrize(
    ("operator", "why", "line"),
    [
        (silent, "ValueError", "raise ValueError"),
        (
            loud,
            "ValueError: not for tracing",
            'raise ValueError("not for tracing.\\nAnd more of it.")',
        ),
    ],
)
@pytest.mark.parametrize("pure", [True, False])
def test_a_reference_that_cannot_be_traced_is_named_with_its_line(
    operator: Any, why: str, line: str, pure: bool
) -> None:
    message = refused(lambda x: operator(double(x)), X, pure=pure)
    assert message == (
        f"{operator.name}: its reference cannot be taken apart into PyTorch's operators, as the "
        f"inline form needs: {why}.\n  at {line_of(line)}\n"
        "Write the reference in plain PyTorch (torch functions, no NumPy, no .item()), or give it "
        "a C++ kernel for the library form."
    )


def test_a_reference_from_no_file_is_named_without_a_line() -> None:
    def unwritten(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        raise ValueError("not for tracing")

    code = unwritten.__code__.replace(co_filename="<text>")
    unwritten.__code__ = code
    operator = opsmith.op("inlining_test::unwritten", unwritten)
    assert refused(operator, X).endswith(
        "as the inline form needs: ValueError: not for tracing. Write the reference in plain "
        "PyTorch (torch functions, no NumPy, no .item()), or give it a C++ kernel for the library "
        "form."
    )


def test_an_adopted_operator_that_writes_is_called_by_its_twin() -> None:
    library = torch.library.Library("inlining_adopted", "FRAGMENT")
    library.define("bump(Tensor(a!) x) -> ()")
    library.impl("bump", lambda x: counted.reference(x), "CompositeExplicitAutograd")

    @opsmith.adopt("inlining_adopted::bump", mutates_args=("x",))
    def bump(x: Float[Tensor, "*s"]) -> None:
        x += 1

    kept = lowered(lambda x: bump(y := x.clone()) or y, X, form="library")
    assert twin(bump) in [node.target for node in kept.program.graph.nodes]
    assert forms_of(kept) == {"inlining_adopted::bump": ("library", 1)}
    torch.testing.assert_close(kept.program.module()(X), X + 1)


def test_references_that_call_each_other_without_an_end_are_refused() -> None:
    message = refused(lambda x: there(double(x)), X, dynamic=False)
    assert message == (
        "inlining_test::double, inlining_test::there, inlining_test::back: some of their "
        "references call each other without an end"
    )


@pytest.mark.long  # test_what_a_reference_calls_has_a_form_too_...
def test_a_reference_may_call_another_as_deep_as_it_likes() -> None:
    def declare(depth: int, inner: Any) -> Any:
        def chained(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
            return inner(x) + 1

        return opsmith.op(f"inlining_test::chained_{depth}", chained)

    outermost = double
    for depth in range(17):
        outermost = declare(depth, outermost)
    found = lowered(outermost, X, dynamic=False)
    assert len(found.choices) == 18
    torch.testing.assert_close(found.program.module()(X), X * 2 + 17)


def test_a_failure_that_no_reference_explains_is_pytorchs_own() -> None:
    error = ValueError("a node is odd")
    chooser = Chooser("auto", {"inline": inline}, "the test's runtime")
    program = prepare(Call(double), (X,)).program
    with pytest.raises(ExportError) as caught:
        _exclude_culprit(program, [double], True, chooser, error)
    assert str(caught.value) == "PyTorch could not decompose the model:\na node is odd"
    assert caught.value.__cause__ is error


@pytest.mark.parametrize("pure", [True, False])
def test_what_a_reference_assumed_that_is_not_inlined_in_the_end_is_forgotten(pure: bool) -> None:
    library = {"library": lambda operator, nodes: Choice(operator, "library")}
    forms = {"inline": inline, **library}
    chooser = Chooser("auto", forms, "the test's runtime")
    model = prepare(Call(long_and_silent), (X,), dynamic_shapes=(({0: Dim("n", min=2)},),))
    assert forms_of(lower(model, chooser, pure=pure)) == {
        "inlining_test::long_and_silent": ("library", 1)
    }


def test_a_runtime_without_values_that_change_gets_none_where_nothing_is_inlined() -> None:
    def model(x: Tensor) -> Tensor:
        y = x.clone()
        counted(y)
        y.add_(1)
        return y

    found = lowered(model, X, form="library", pure=True).program
    names = [str(node.target) for node in found.graph.nodes if node.op == "call_function"]
    assert not [name for name in names if "copy_" in name or "add_" in name]
    torch.testing.assert_close(found.module()(X), X + 2)


# --- sizes ---------------------------------------------------------------------------------------


def test_a_reference_that_compares_two_sizes_is_refused() -> None:
    message = refused(lambda x, y: ordered(double(x), y), X, Y)
    assert message == (
        "inlining_test::ordered: its reference branches on sizes, and the graph has the branch "
        "of the example alone: n0 < n1.\n"
        f"  at {line_of('return x * 2 if x.shape[0] < y.shape[0] else x * 3')}\n"
        "Export with sizes that do not change, or that are bounded (Dim(…, min=…, max=…)), use the "
        "library form, or write the reference without the branch."
    )


def test_a_reference_that_ties_two_sizes_together_is_refused() -> None:
    message = refused(lambda x, y: tied(double(x), y), X, torch.randn(4))
    assert message == (
        "inlining_test::tied: with the reference inlined the input 'inputs_1' would be (n0) in "
        "place of (n1): a reference branches on sizes, and the example's sizes decide.\n"
        f"  at {line_of('return x + y if x.shape == y.shape else x * 3')}\n"
        "Give an example whose sizes differ where they may, write the reference without the "
        "branch, or use the library form."
    )


def test_a_shape_that_is_tied_is_shown_whole() -> None:
    x = torch.randn(4, 3)
    message = refused(lambda x, y: tied_rows(x, y), x, x.clone())
    assert "the input 'inputs_1' would be (n0, 3) in place of (n1, 3)" in message


def test_every_branch_on_sizes_is_said_with_its_operator() -> None:
    message = refused(lambda x, y: longer(x) + ordered(double(x), y), X, Y)
    assert message == (
        "inlining_test::longer, inlining_test::ordered: its reference branches on sizes, and "
        "the graph has the branch of the example alone: n0 > 3 and n0 < n1.\n"
        f"  at {line_of('return x * 5 if x.shape[0] > 3 else x * 3')}\n"
        f"  at {line_of('return x * 2 if x.shape[0] < y.shape[0] else x * 3')}\n"
        "Export with sizes that do not change, or that are bounded (Dim(…, min=…, max=…)), use the "
        "library form, or write the reference without the branch."
    )


def test_a_branch_in_no_file_is_said_without_a_line() -> None:
    found = Assumptions(prepare(Call(double), (X,), dynamic_shapes=(({0: Dim("n", min=2)},),)))
    (size,) = found._model.shape_environment.var_to_val
    # Code that was made from text, in a thread of its own.
    found._found.append(Assumption(SimpleNamespace(expr=size > 7), double, ""))
    with pytest.raises(ExportError) as caught:
        found.require_no_branches([double])
    assert str(caught.value).startswith(
        "inlining_test::double: its reference branches on sizes, and the graph has the branch of "
        "the example alone: n > 7. Export with sizes"
    )


@pytest.mark.parametrize("operator", [ordered, tied])
def test_a_branch_on_sizes_that_do_not_change_is_none(operator: Any) -> None:
    for y in (X.clone(), Y):
        found = lowered(operator, X, y, dynamic=False)
        torch.testing.assert_close(found.program.module()(X, y), operator(X, y))


@pytest.mark.parametrize(
    ("text", "compares"),
    [
        *((f"n0 {sign} n1", True) for sign in ("<", "<=", ">", ">=", "!=")),
        ("n0 + 1 < n1 - 2", True),
        ("s77 > 3", True),
        ("s77 <= 10", True),
        ("n0 - 4 >= 0", True),
        ("n0 + 4 != 0", False),
        ("n0 > 2", False),
        ("n0 >= 0", False),
        ("n0 != 1", False),
        ("n0 == n1", False),
        ("2*n0 < n1", False),
        ("n0 < 3*n1", False),
    ],
)
def test_pytorchs_own_questions_about_0_and_1_are_no_branches(text: str, compares: bool) -> None:
    assert (_COMPARISON.fullmatch(text) is not None) == compares


def test_the_line_of_an_error_is_the_innermost_of_the_users() -> None:
    def inner() -> None:
        torch.ones(2) @ torch.ones(3)

    with pytest.raises(RuntimeError) as caught:
        inner()
    assert raised_at(caught.value) == line_of("torch.ones(2) @ torch.ones(3)")
    assert raised_at(ValueError()) == ""
    with pytest.raises(SyntaxError) as caught_:
        exec(compile("raise SyntaxError", "<nowhere>", "exec"))
    assert raised_at(caught_.value) == line_of(
        'exec(compile("raise SyntaxError", "<nowhere>", "exec"))'
    )


# --- constants -----------------------------------------------------------------------------------


def test_constants_of_a_reference_become_operations() -> None:
    found = lowered(weighted, X)
    torch.testing.assert_close(found.program.module()(X), X * 3 + 12)
    assert not found.program.constants and not found.program.state_dict


@opsmith.op("inlining_test::signed")
def signed(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x / torch.tensor([0.0, -0.0, 0.0, -0.0]) + x.new_tensor([-0.0, 4.0]).sum()


def test_constants_keep_the_signs_of_their_zeros() -> None:
    x = torch.ones(4)
    found = lowered(signed, x, dynamic=False).program.module()(x)
    assert found.tolist() == signed(x).tolist() == [INF, -INF, INF, -INF]


INF = float("inf")


@pytest.mark.parametrize("like", [X, X.double(), X.to("meta")])
def test_constants_are_of_the_type_and_on_the_device_that_the_reference_says(like: Tensor) -> None:
    plain = {"dtype": like.dtype, "device": like.device}
    for make, data in itertools.product(
        [
            lambda data: torch.tensor(data, **plain),
            lambda data: torch.as_tensor(data, **plain),
            lambda data: torch.asarray(data, **plain),
            lambda data: like.new_tensor(data),
            lambda data: X.new_tensor(data, **plain),
        ],
        [[1, 2], [3.0, 3.0], 4, []],
    ):
        with MakesConstants():
            found = make(data)
        expected = torch.tensor(data, **plain)
        assert (found.dtype, found.device) == (expected.dtype, expected.device)
        assert found.shape == expected.shape
        assert like.is_meta or torch.equal(found, expected)
    with torch.device("meta"), MakesConstants():
        made = torch.tensor([1.0])
    assert made.is_meta


def test_a_constant_of_equal_numbers_is_one_operation() -> None:
    @opsmith.op("inlining_test::evened")
    def evened(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * torch.tensor([[2.0], [2.0], [2.0]]).sum()

    targets = [str(node.target) for node in lowered(evened, X).program.graph.nodes]
    assert targets.count("aten.full.default") == 1
    assert not [target for target in targets if "stack" in target or "cat" in target]


def test_a_large_constant_of_a_reference_is_refused() -> None:
    rest = LARGE[1:]
    with MakesConstants():
        made = rest + torch.full((1024,), 2.0)
    assert torch.equal(made, rest + 2)
    assert (
        "needs: ExportError: a reference uses a constant of 1025 elements, and an inlined "
        "reference may have at most 1024. Pass the constant as an argument." in refused(large, X)
    )
