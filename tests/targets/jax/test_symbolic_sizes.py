"""Programs of `jax.export` with symbolic sizes, for declarations with equations."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.slow

KERNEL = """
#include <opsmith/kernel.h>

#include "halves.h"

void halves(const opsmith::Context&, const symbolic_sizes::halves_args& a) {
  for (int64_t i = 0; i < a.B * a.C; ++i) a.out[i] = a.x[2 * i] + a.x[2 * i + 1];
}
OPSMITH_KERNEL(symbolic_sizes, halves, cpu)
"""


@opsmith.op("symbolic_sizes::halves")
def halves(x: Float32[Tensor, "B 2*C"]) -> Float32[Tensor, "B C"]:
    return x.unflatten(1, (-1, 2)).sum(2)


@pytest.fixture(scope="module")
def in_jax(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("symbolic_sizes")
    (folder / "halves.cpp").write_text(KERNEL)
    halves.register_kernel("cpu", source=folder / "halves.cpp")
    opsmith.export(halves, target="jax", out=folder / "dist", say=None)
    return opsmith.load(folder / "dist").halves


def exported(function: Any, sizes: str) -> Any:
    from jax import export

    given = jax.ShapeDtypeStruct(export.symbolic_shape(sizes), "float32")
    with pytest.raises(ValueError, match="no compatibility guarantees") as caught:
        export.export(jax.jit(function))(given)
    (name,) = re.findall(r"@(opsmith_jax\w+)", str(caught.value))
    allowed = export.DisabledSafetyCheck.custom_call(name)
    program = export.export(jax.jit(function), disabled_checks=[allowed])(given)
    return export.deserialize(program.serialize())


def test_one_program_runs_with_all_sizes_that_the_equation_allows(in_jax: Any) -> None:
    program = exported(in_jax, "b, 2*c")
    for shape in ((3, 8), (1, 2), (5, 6)):
        x = torch.rand(shape)
        found = torch.from_numpy(jax.device_get(program.call(x.numpy())).copy())
        torch.testing.assert_close(found, halves(x))
    with pytest.raises(ValueError, match="Division had remainder 1"):
        program.call(torch.rand(3, 7).numpy())


def test_sizes_that_may_break_the_equation_are_refused_in_its_words(in_jax: Any) -> None:
    from jax import export

    given = jax.ShapeDtypeStruct(export.symbolic_shape("b, c"), "float32")
    with pytest.raises(opsmith.ArgumentError) as caught:
        export.export(jax.jit(in_jax))(given)
    assert "dimension 1 (2*C) is c, expected 2*C for some C: a multiple of 2." in str(caught.value)
