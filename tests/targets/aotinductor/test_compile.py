"""What inductor is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith.targets.aotinductor import compile as compiling
from opsmith.targets.aotinductor.compile import machine_settings


def test_native_code_needs_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPSMITH_ARCH", raising=False)
    assert machine_settings() == {}


@pytest.mark.parametrize(
    ("chosen", "bits", "march"),
    [("generic", 1, ""), ("x86-64-v3", 256, "x86-64-v3"), ("x86-64-v4", 512, "x86-64-v4")],
)
def test_inductor_compiles_for_the_processor_that_kernels_are_built_for(
    monkeypatch: pytest.MonkeyPatch, chosen: str, bits: int, march: str
) -> None:
    monkeypatch.setenv("OPSMITH_ARCH", chosen)
    assert machine_settings() == {"cpp.simdlen": bits, "cpp.march": march}


@pytest.mark.parametrize("wanted", [{}, {"aot_inductor.precompile_headers": True}])
def test_no_header_is_compiled_in_advance_unless_somebody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, bool]
) -> None:
    given: dict[str, Any] = {}

    def compiler(program: object, *, package_path: str, inductor_configs: dict[str, Any]) -> None:
        given.update(inductor_configs)
        Path(package_path).touch()

    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", compiler)
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(1),))
    compiling.compile_model(program, (), wanted, tmp_path / "model.pt2")
    assert given["aot_inductor.precompile_headers"] is bool(wanted)
