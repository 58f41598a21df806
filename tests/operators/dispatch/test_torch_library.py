"""What `torch.library` does with its own custom operators, it does with opsmith's."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import DeclarationError


def test_torch_librarys_functions_take_an_operator() -> None:
    @opsmith.op("test_torch_library::taken")
    def taken(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    x = torch.ones(2, requires_grad=True)
    torch.library.register_kernel(taken, "cpu", lambda x: x * 3)
    assert taken(torch.ones(1)).item() == 3
    torch.library.register_autograd(taken, lambda ctx, grad: grad * 3)
    torch.library.register_vmap(taken, lambda info, in_dims, x: (x * 4, in_dims[0]))
    assert torch.vmap(taken)(torch.ones(2, 1)).tolist() == [[4], [4]]
    torch.library.register_fake(taken, torch.empty_like)
    outcomes = torch.library.opcheck(taken, (x,))
    assert set(outcomes.values()) == {"SUCCESS"}
    torch.library.register_fake(taken, lambda x: x.new_empty(x.shape[0] + 1))
    with pytest.raises(torch.testing._internal.optests.OpCheckError, match="taken"):
        torch.library.opcheck(taken, (x,))
    with pytest.raises(DeclarationError, match="an operator of opsmith has no effects"):
        taken.register_effect(None)


def test_a_torch_dispatch_class_has_its_own_rule() -> None:
    @opsmith.op("test_torch_library::dispatched")
    def dispatched(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None):
            return func(*args, **(kwargs or {}))

    for factor in (5, 6):  # the later one takes its place
        torch.library.register_torch_dispatch(
            dispatched, Mode, lambda mode, func, types, args=(), kwargs=None, f=factor: args[0] * f
        )
        with Mode():
            assert dispatched(torch.ones(1)).item() == factor
    assert dispatched(torch.ones(1)).item() == 2

    @dispatched.register_torch_dispatch(Mode)
    def negative(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Tensor:
        return -args[0]

    with Mode():
        assert dispatched(torch.ones(1)).item() == -1
    assert negative(None, None, (), (torch.ones(1),)).item() == -1


@pytest.mark.slow
def test_a_kernel_can_be_disabled_for_a_while(tmp_path: Path) -> None:
    @opsmith.op("test_torch_library::switched")
    def switched(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    switched.register_kernel("cpu", lambda x: x * 3)

    def value() -> float:
        return switched(torch.ones(1)).item()

    with switched.set_kernel_enabled("cpu", enabled=False):
        assert value() == 2
        with switched.set_kernel_enabled("cpu"):
            assert value() == 3
        assert value() == 2
        switched.register_kernel("cpu", lambda x: x * 4)
        assert value() == 2
    assert value() == 4
    source = tmp_path / "switched.cpp"
    source.write_text(
        textwrap.dedent("""
            #include <opsmith/kernel.h>
            #include "switched.h"
            template <typename T>
            void switched(const opsmith::Context&, const test_torch_library::switched_args<T>& a) {
              for (int64_t i = 0; i < a.N; ++i) a.out[i] = 5 * a.x[i];
            }
            OPSMITH_KERNEL(test_torch_library, switched, cpu, float)
        """)
    )
    switched.register_kernel("cpu", source=source, flags=("-O0",))
    for _ in range(2):
        assert value() == 5
        with pytest.raises(KeyError), switched.set_kernel_enabled("cpu", enabled=False):
            assert value() == 2
            switched.build()
            assert value() == 2
            raise KeyError
    assert value() == 5
    with (
        pytest.raises(DeclarationError, match="no kernel is registered for it; there are cpu"),
        switched.set_kernel_enabled("cuda", enabled=False),
    ):
        pass


def test_compilers_are_told_which_strides_a_kernel_takes() -> None:
    """Contiguous ones; a tensor that is written must stay the one it is."""

    def tags(**declared: Any) -> set[torch.Tag]:
        def function(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
            return x.clone()

        return set(opsmith.op("test_torch_library::strides", function, **declared).overload.tags)

    kinds = {
        torch.Tag.needs_contiguous_strides,
        torch.Tag.needs_exact_strides,
        torch.Tag.needs_fixed_stride_order,
        torch.Tag.flexible_layout,
    }
    assert tags() & kinds == {torch.Tag.needs_contiguous_strides}
    assert tags(mutates_args=("x",)) & kinds == {torch.Tag.needs_exact_strides}
    own = torch.Tag.needs_fixed_stride_order
    assert tags(tags=(own,)) & kinds == {own}


def test_a_schema_gives_the_types_that_annotations_do_not() -> None:
    schema = "(Tensor x, Tensor? y, Tensor[] many, int[2] pad, float[] w, *, int k=3) -> Tensor"

    @opsmith.op("test_torch_library::written", schema=schema)
    def written(x: Float[Tensor, "N"], y, many, pad, w, *, k) -> Float[Tensor, "N"]:
        return x * k

    assert str(written.overload._schema) == (
        "test_torch_library::written(Tensor x, Tensor? y, Tensor[] many, SymInt[2] pad, "
        "float[] w, *, SymInt k=3) -> Tensor"
    )
    assert written(torch.ones(1), None, [], (1, 2), [0.5]).item() == 3
    with pytest.raises(opsmith.ArgumentError, match="has 2 dimensions, expected 1"):
        written(torch.ones(1, 1), None, [], (1, 2), [0.5])

    @opsmith.op("test_torch_library::writes", schema="(Tensor(a!) x) -> ()", mutates_args=("x",))
    def writes(x):
        x.zero_()

    x = torch.ones(2)
    assert writes(x) is None
    assert x.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("(Tensor x) ->", r"schema='\(Tensor x\) ->' does not parse: "),
        ("(Tensor y) -> Tensor", r"has the parameters \(y\), the function has \(x\)"),
        ("(int x) -> Tensor", "the schema differs from the declaration's"),
        ("(Tensor(a!) x) -> Tensor", "the schema differs from the declaration's"),
        ("(Tensor x) -> (Tensor, Tensor)", "the schema differs from the declaration's"),
    ],
)
def test_a_schema_that_says_otherwise_is_refused(schema: str, message: str) -> None:
    def function(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x.clone()

    with pytest.raises(DeclarationError, match=message):
        opsmith.op("test_torch_library::otherwise", function, schema=schema)


def test_a_type_that_no_operator_takes_is_named() -> None:
    def function(x: Float[Tensor, "N"], d) -> Float[Tensor, "N"]:
        return x.clone()

    with pytest.raises(DeclarationError, match="the schema has the type Device, which operators"):
        opsmith.op("test_torch_library::typed", function, schema="(Tensor x, Device d) -> Tensor")
