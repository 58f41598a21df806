"""Floats whose values are declared have a proof: the row has drawn them, and nobody compares."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
from alone import row_alone
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between, Index, Sorted

pytestmark = pytest.mark.slow

SOURCE = """
#include <opsmith/kernel.h>
#include "{name}.h"

template <typename T>
void {name}(const opsmith::Context&, const declared_values::{name}_args<T>& a) {{
  for (int64_t r = 0; r < a.R; ++r) {{
    const auto row = static_cast<int64_t>(a.rows(r, 0));
    a.out[r] = a.x[{row}] * a.rows(r, 1);
  }}
}}
OPSMITH_KERNEL(declared_values, {name}, cpu, float, double)
"""


def scaled(
    x: Annotated[Float[Tensor, "N"], Between(-2.0, 2.0)],
    rows: Annotated[Float[Tensor, "R 2"], Index("N", column=0)],
) -> Float[Tensor, "R"]:
    return x[rows[:, 0].long()] * rows[:, 1]


@pytest.mark.parametrize(
    ("name", "row", "status"),
    [("right", "row", "passed"), ("wrong", "(row + 1) % a.N", "failed")],
)
def test_the_formula_of_floats_with_declared_values_is_compared(
    name: str, row: str, status: str, tmp_path: Path, no_shrinking: None
) -> None:
    source = tmp_path / f"{name}.cpp"
    source.write_text(SOURCE.format(name=name, row=row))
    operator = opsmith.op(f"declared_values::{name}")(scaled)
    operator.register_kernel("cpu", source=source)
    found = row_alone(operator, "exact", examples=8)
    assert found.status == status, found.message


def test_floats_in_order_in_a_namespace_that_a_struct_of_the_system_has_are_compared(
    tmp_path: Path, no_shrinking: None
) -> None:
    """Numbers of a field are in no order; <fcntl.h> has a struct `stat`."""

    @opsmith.op("stat::width")
    def width(ends: Annotated[Float[Tensor, "N 2"], Sorted()]) -> Float[Tensor, "N"]:
        return ends[:, 1] - ends[:, 0]

    (tmp_path / "width.cpp").write_text("""
#include <opsmith/kernel.h>
#include "width.h"
template <typename T>
void width(const opsmith::Context&, const stat::width_args<T>& a) {
  for (int64_t n = 0; n < a.N; ++n) a.out[n] = a.ends(n, 1) - a.ends(n, 0);
}
OPSMITH_KERNEL(stat, width, cpu, float, double)
""")
    width.register_kernel("cpu", source=tmp_path / "width.cpp")
    found = row_alone(width, "exact", examples=8)
    assert found.status == "passed", found.message
