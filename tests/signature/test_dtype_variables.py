"""Which classes share a dtype variable, and what a call's choice of dtypes says."""

from typing import Any

import jaxtyping
import pytest
from hypothesis import given, strategies as st
from torch import Tensor

import opsmith
from opsmith import ArgumentError
from opsmith.signature import TensorInfo, bind, signature_of
from opsmith.signature.dtype_variables import combinations, fit, joined, parts, variables_of
from opsmith.signature.dtypes import COMMON, DTypes, known_dtypes

_THEIRS = ("Float", "Complex", "Int", "UInt", "Integer", "Real", "Inexact", "Num", "Shaped")


def _theirs(name: str) -> DTypes:
    dtypes = getattr(jaxtyping, name).dtypes
    known = known_dtypes(dtypes) if isinstance(dtypes, tuple | list) else COMMON
    return DTypes(tuple(one for one in known if one in COMMON), name)


_OWN = st.builds(
    lambda names, number: DTypes(known_dtypes(names), f"Own{number}", own=len(names) > 1),
    st.sets(st.sampled_from(COMMON), min_size=1, max_size=4),
    st.integers(0, 2),
)
_CLASSES = st.lists(st.one_of(st.sampled_from(_THEIRS).map(_theirs), _OWN), max_size=6)


@given(_CLASSES, st.randoms(use_true_random=False))
def test_the_order_of_tensors_decides_the_order_of_variables_alone(
    classes: list[DTypes], rng: Any
) -> None:
    shuffled = list(classes)
    rng.shuffle(shuffled)
    found, other = variables_of(classes), variables_of(shuffled)
    assert {(frozenset(one.classes), one.names) for one in found} == {
        (frozenset(one.classes), one.names) for one in other
    }
    firsts = [min(classes.index(one) for one in variable.classes) for variable in found]
    assert firsts == sorted(firsts)


@given(_CLASSES)
def test_every_class_of_several_dtypes_has_one_variable_whose_dtypes_it_covers(
    classes: list[DTypes],
) -> None:
    variables = variables_of(classes)
    owners = [class_ for variable in variables for class_ in variable.classes]
    assert len(owners) == len(set(owners))
    assert set(owners) == {class_ for class_ in classes if class_.generic}
    for variable in variables:
        for class_ in variable.classes:
            for name in variable.names:
                dtype = variable.dtype_of(class_, name)
                assert dtype in class_
                assert variable.chosen_by(class_, dtype) == name
        assert len(variable.classes) == 1 or not any(class_.own for class_ in variable.classes)


@given(_CLASSES, st.data())
def test_a_choice_with_unbound_variables_is_a_call_of_each_choice_that_completes_it(
    classes: list[DTypes], data: st.DataObject
) -> None:
    variables = variables_of(classes)
    every = combinations(variables)
    if not variables or not every:
        return
    chosen = data.draw(st.sampled_from(every))
    kept = [one if data.draw(st.booleans()) else None for one in parts(chosen)]
    completing = {
        one for one in every if all(k in (None, p) for k, p in zip(kept, parts(one), strict=True))
    }
    assert {one for one in every if fit(joined(kept), one)} == completing
    assert joined(list(parts(chosen))) == chosen


_NAMES = {
    "x": ("float16", "float32", "float64"),
    "y": ("float16", "float32", "float64"),
    "i": ("int32", "int64"),
    "j": ("int32", "int64"),
}
_F: Any = opsmith.DtypeVar("F", *_NAMES["x"])
_I: Any = opsmith.DtypeVar("I", *_NAMES["i"])


def _declared(i: _I[Tensor, "N"], x: _F[Tensor, "N"], y: _F[Tensor, "N"] | None, j: _I[Tensor, "N"]) -> _F[Tensor, "N"]: ...  # type: ignore # noqa: E501  # fmt: skip


_SIGNATURE = signature_of(_declared, "ns::f")


@given(st.fixed_dictionaries({name: st.sampled_from(names) for name, names in _NAMES.items()}))
def test_a_call_binds_each_variable_once(dtypes: dict[str, str]) -> None:
    arguments = {name: TensorInfo((2,), dtype) for name, dtype in dtypes.items()}
    if dtypes["x"] == dtypes["y"] and dtypes["i"] == dtypes["j"]:
        chosen = bind(_SIGNATURE, arguments).dtype
        assert chosen == f"{dtypes['i']}+{dtypes['x']}"
        assert _SIGNATURE.dtypes_in(chosen) == set(dtypes.values())
        return
    # Arguments are compared in their order: y comes before j.
    wrong, by = ("y", "x") if dtypes["x"] != dtypes["y"] else ("j", "i")
    with pytest.raises(ArgumentError) as caught:
        bind(_SIGNATURE, arguments)
    assert str(caught.value).splitlines()[0] == (
        f"ns::f: argument '{wrong}' has dtype {dtypes[wrong]}, expected {dtypes[by]}: every "
        f"{'F' if by == 'x' else 'I'} tensor of a call has one dtype, and '{by}' fixed it."
    )
