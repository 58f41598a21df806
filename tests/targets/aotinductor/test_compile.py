"""What inductor is told."""

from __future__ import annotations

import pytest

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
