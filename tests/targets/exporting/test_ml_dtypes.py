"""Runtimes whose arrays have float8 from another package than their other dtypes."""

from pathlib import Path

import pytest
import torch
from jaxtyping import Float8e4m3fn, Float8e5m2, Float32
from torch import Tensor

import opsmith
from opsmith import checks


@pytest.mark.long
@pytest.mark.parametrize("dtype", [Float8e4m3fn, Float8e5m2])
def test_float8_goes_in_and_comes_out(tmp_path: Path, dtype) -> None:
    name = dtype.__name__.lower()
    cpp = {"float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}[name]

    @opsmith.op(f"{name}_test::scaled")
    def scaled(x: dtype[Tensor, "N"], factor: Float32[Tensor, "N"]) -> dtype[Tensor, "N"]:
        """Multiply in single precision, clamped to what the dtype has room for."""
        most = torch.finfo(x.dtype).max
        return (x.float() * factor).clamp(-most, most).to(x.dtype)

    (tmp_path / "scaled.cpp").write_text(f"""
        #include <opsmith/kernel.h>
        #include <algorithm>
        #include "scaled.h"
        void scaled(const opsmith::Context&, const {name}_test::scaled_args& a) {{
          using type = opsmith::{cpp};
          const float most = static_cast<float>(std::numeric_limits<type>::max());
          for (int64_t i = 0; i < a.N; ++i) {{
            const float product = static_cast<float>(a.x[i]) * a.factor[i];
            a.out[i] = type(product < -most ? -most : product > most ? most : product);
          }}
        }}
        OPSMITH_KERNEL({name}_test, scaled, cpu)
    """)
    scaled.register_kernel("cpu", source=tmp_path / "scaled.cpp")
    report = checks.run(scaled, select=["reference", "jax", "python"])
    assert report.ok, report.explain()
    ran = {row.check for row in report.rows if row.cases}
    assert ran == {"reference", "jax", "python"}
