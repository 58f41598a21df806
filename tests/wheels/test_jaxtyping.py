"""What stands for ``jaxtyping`` in an installed package is read as that is."""

from __future__ import annotations

import importlib.util
import sys
import typing
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
import torch
from torch import Tensor

from opsmith.signature import hints
from opsmith.wheels import carried

FILE = Path(carried.__file__).parent / "runtime" / "jaxtyping.py"
NAMES = sorted(
    name
    for name, value in vars(jaxtyping).items()
    if isinstance(value, type) and issubclass(value, jaxtyping.AbstractDtype)
)
T = typing.TypeVar("T", bound=Tensor)
U = typing.TypeVar("U", Tensor, np.ndarray)
V = typing.TypeVar("V")


def _ours() -> Any:
    spec = importlib.util.spec_from_file_location("jaxtyping_of_a_wheel", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OURS = _ours()


def _read(annotation: Any) -> list[Any]:
    """What opsmith makes of an annotation."""
    found: list[Any] = [hints.show(annotation)]
    try:
        part = hints.strip(annotation)
        found += [part.optional, part.constraints, hints.type_of(part.base, ())]
    except hints.AnnotationProblem as problem:
        found.append(str(problem))
    return found


def _scope(by: Any) -> dict[str, Any]:
    class Halves(by.AbstractDtype):
        dtypes = ["float16", "bfloat16"]  # noqa: RUF012

    class One(by.AbstractDtype):
        dtypes = "uint16"

    class Wider(by.Float):
        dtypes = (*by.Float.dtypes, "uint32")

    known = {name: getattr(by, name) for name in (*NAMES, "AbstractDtype")}
    return {**globals(), **known, "Halves": Halves, "One": One, "Wider": Wider}


def test_it_has_every_name_of_dtypes() -> None:
    assert "Float" in NAMES and len(NAMES) > 30
    assert {*OURS.DTYPES, "AbstractDtype"} >= set(NAMES)
    with pytest.raises(AttributeError, match="has no attribute 'PyTree'"):
        OURS.PyTree  # noqa: B018


@pytest.mark.parametrize("name", [name for name in NAMES if name != "AbstractDtype"])
def test_each_name_stands_for_the_same_dtypes(name: str) -> None:
    ours, theirs = getattr(OURS, name), getattr(jaxtyping, name)
    assert _read(ours[Tensor, "N C"]) == _read(theirs[Tensor, "N C"])
    assert repr(ours[Tensor, "N C"]) == repr(theirs[Tensor, "N C"])
    assert (ours.__name__, ours.__module__) == (theirs.__name__, theirs.__module__)


@pytest.mark.parametrize(
    "text",
    [
        'Float[Tensor, "N C"] | None',
        'typing.Optional[Int32[Tensor, " N *s "]]',
        'list[Float[Tensor, "N"]]',
        'tuple[Float[Tensor, "N"], Int64[Tensor, "M"]]',
        'typing.Annotated[Float[Tensor, "N"], "note"] | None',
        'Halves[Tensor, "N"]',
        'One[Tensor, ""]',
        'Wider[Tensor, "N"]',
        'Float[T, "N"]',
        'Float[U, "N"]',
        'Float[V, "N"]',
        'Float[np.ndarray, "N"]',
        'Float[Tensor | np.ndarray, "N"]',
        'Float[Tensor | int | float, "..."]',
        'Float[float, ""]',
        'Shaped[bool, "*s"]',
        'Shaped[Float[Tensor, "N C"], "B"]',
        'Float32[Shaped[Tensor, "N"], "B"]',
        'Inexact[Num[Tensor, "N"], "B"]',
        'Float[typing.Any, "N"]',
        'Float[np.typing.NDArray[np.float32], "N"]',
    ],
)
def test_annotations_of_every_form_are_read_alike(text: str) -> None:
    assert _read(eval(text, _scope(OURS))) == _read(eval(text, _scope(jaxtyping)))


@pytest.mark.parametrize(
    "text", ['Float[float, "N"]', 'Int[float, ""]', 'Float["N C"]', 'Bool[Float[Tensor, "N"], "B"]']
)
def test_what_says_nothing_is_refused_as_well(text: str) -> None:
    for by in (OURS, jaxtyping):
        with pytest.raises(ValueError):  # noqa: PT011  # each has its words
            eval(text, _scope(by))


def test_annotations_that_are_strings_are_evaluated() -> None:
    def function(x: 'Float[Tensor, "N"]') -> 'list[Float[Tensor, "N"]]':
        raise NotImplementedError

    read = typing.get_type_hints(function, _scope(OURS))
    assert [hints.show(one) for one in read.values()] == [
        'Float[Tensor, "N"]',
        'list[Float[Tensor, "N"]]',
    ]


@pytest.mark.parametrize("by", [OURS, jaxtyping], ids=["ours", "jaxtyping"])
def test_whether_a_value_fits_is_as_jaxtyping_says(by: Any) -> None:
    scope = _scope(by)
    x = torch.ones(2, 3)
    for text, fits in {
        'Float[Tensor, "N C"]': True,
        'Float[Tensor, "N N"]': False,
        'Halves[Tensor, "N C"]': False,
        'Halves[Tensor, "..."] | Shaped[Tensor, "2 _"]': True,
        'Shaped[Int[Tensor, "3"], "2"]': False,
    }.items():
        assert isinstance(x, eval(text, scope)) is fits, text


def test_where_jaxtyping_is_not_there_to_say_it_the_way_to_it_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jaxtyping", None)
    with pytest.raises(
        ImportError, match=r"^whether a value is a Float\[Tensor, 'N'\] is for jaxtyping to say"
    ):
        isinstance(torch.ones(2), OURS.Float[Tensor, "N"])
