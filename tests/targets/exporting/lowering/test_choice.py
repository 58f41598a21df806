"""Which form an operator takes in a model: what was asked for, or the first that can be."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between, DeclarationError, ExportError
from opsmith.targets import OperatorUse
from opsmith.targets.exporting.lowering.choice import Choice, Chooser, call_arguments, inline
from opsmith.targets.onnx import forms


@opsmith.op("test_choice::one")
def one(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x + 1


@opsmith.op("test_choice::two")
def two(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x + 2


def library(operator: Any, nodes: Any) -> Choice:
    if operator is two:
        raise DeclarationError("test_choice::two: has no kernel")
    return Choice(operator, "library", "its kernel", how=len(nodes))


def never(operator: Any, nodes: Any) -> Choice:
    raise ExportError(f"{operator.name}: is not for this runtime")


FORMS = {"library": library, "standard": never, "inline": inline}


def test_the_first_form_that_can_be_is_taken() -> None:
    chooser = Chooser("auto", FORMS, "Some Runtime")
    assert chooser.choose(one, [1, 2, 3]) == Choice(one, "library", "its kernel", 3)  # type: ignore[list-item]
    chosen = chooser.choose(two, [])
    assert chosen == Choice(two, "inline", "its reference")
    assert chosen.use(4) == OperatorUse("test_choice::two", "inline", 4, "its reference")


def test_the_report_says_that_an_inlined_reference_compares_no_values() -> None:
    @opsmith.op("test_choice::ranged")
    def ranged(
        x: Annotated[Float[Tensor, "N"], Between(0, 1)], k: Annotated[int, Between(0, 3)]
    ) -> Float[Tensor, "N"]:
        return x * k

    @opsmith.op("test_choice::numbered")
    def numbered(x: Float[Tensor, "N"], k: Annotated[int, Between(0, 3)]) -> Float[Tensor, "N"]:
        return x * k

    said = "its reference, which does not compare values with the declaration"
    assert inline(ranged, []).note == said
    assert inline(numbered, []).note == "its reference"


def test_where_the_reference_takes_a_kernels_place_the_report_says_so(tmp_path: Path) -> None:
    def library(operator: Any) -> Any:
        raise ExportError(f"{operator.name}: its kernel is written against PyTorch")

    (tmp_path / "f.cpp").write_text("")
    registered = opsmith.op("test_choice::against_torch", one.reference)
    registered.register_kernel("cpu", source=tmp_path / "f.cpp", api="torch")
    assert forms.chooser("auto", 20, library).choose(registered, []).use(1).note == (
        "its reference; the cpu kernel does not run there, as it is written against PyTorch "
        '(api="torch")'
    )
    assert forms.chooser("auto", 20, library).choose(one, []).note == "its reference"
    assert forms.chooser("auto", 20, None).choose(registered, []).note == "its reference"


def test_auto_tries_only_the_forms_that_the_target_says() -> None:
    chooser = Chooser("auto", FORMS, "Some Runtime", automatic=("inline",))
    assert chooser.choose(one, []).form == "inline"
    assert Chooser("library", FORMS, "Some Runtime", ("inline",)).choose(one, []).form == "library"


@pytest.mark.parametrize("key", [one, "test_choice::one"])
def test_a_form_may_be_asked_for_by_operator(key: Any) -> None:
    chooser = Chooser({key: "inline"}, FORMS, "Some Runtime")
    assert chooser.choose(one, []).form == "inline"
    assert chooser.names(one) and not chooser.names(two)
    chooser.require_known(["test_choice::one", "test_choice::two"])
    with pytest.raises(ExportError) as caught:
        chooser.require_known(["test_choice::two", "test_choice::three"])
    assert str(caught.value) == (
        "form names 'test_choice::one', which the model does not call; its custom operators are "
        "test_choice::two, test_choice::three"
    )
    with pytest.raises(ExportError, match=r"its custom operators are none$"):
        chooser.require_known([])


def test_a_form_that_there_is_not_is_refused_at_once() -> None:
    there = "there are auto, library, standard, inline, or a mapping from operator names to these"
    with pytest.raises(ExportError) as caught:
        Chooser("best", FORMS, "Some Runtime")
    assert str(caught.value) == f"form='best'; {there}"
    with pytest.raises(ExportError) as caught:
        Chooser({one: "inline", two: "best"}, FORMS, "Some Runtime")
    assert str(caught.value) == f"form='best' for test_choice::two; {there}"


def test_the_form_that_was_asked_for_is_not_replaced_by_another() -> None:
    with pytest.raises(ExportError) as caught:
        Chooser("library", FORMS, "Some Runtime").choose(two, [])
    assert str(caught.value) == "test_choice::two: has no kernel"
    with pytest.raises(ExportError, match=r"^test_choice::one: needs a static shape$"):
        Chooser({one: "inline"}, FORMS, "Some Runtime").exclude(
            one, "inline", "needs a static shape"
        )


def test_an_operator_in_no_form_is_told_why_not_in_each() -> None:
    chooser = Chooser("auto", FORMS, "Some Runtime")
    chooser.exclude(two, "inline", "its reference has a branch")
    with pytest.raises(ExportError) as caught:
        chooser.choose(two, [])
    assert str(caught.value) == (
        "test_choice::two: Some Runtime cannot carry it in any form.\n"
        "  library: has no kernel\n"
        "  standard: is not for this runtime\n"
        "  inline: its reference has a branch"
    )
    assert chooser.choose(one, []).form == "library", "another operator keeps its forms"


def test_a_form_that_was_taken_away_leaves_the_next() -> None:
    chooser = Chooser("auto", FORMS, "Some Runtime")
    chooser.exclude(one, "library", "its library does not link")
    assert chooser.choose(one, []).form == "inline"


def test_the_inline_form_needs_a_reference() -> None:
    # Only of an operator of others may a declaration say nothing.
    adopted: Any = SimpleNamespace(name="theirs::bare", explained=False)
    with pytest.raises(ExportError) as caught:
        inline(adopted, [])
    assert str(caught.value) == (
        "theirs::bare: its declaration has no reference, which the inline form needs. Write one in "
        "plain PyTorch in place of '...'."
    )


def test_a_calls_arguments_are_found_by_name_however_they_were_given() -> None:
    @opsmith.op("test_choice::three")
    def three(x: Float[Tensor, "N"], k: int = 1, *, s: float = 0.5) -> Float[Tensor, "N"]:
        return x * k * s

    node = torch.fx.Graph().call_function(three.overload, ("x", 2), {"s": 3.0})
    assert call_arguments(three, node) == {"x": "x", "k": 2, "s": 3.0}
