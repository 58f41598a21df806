"""Which processor an artifact says that it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith.targets.aotinductor import machine


def test_features_are_those_that_a_compiler_may_use(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nflags\t\t: fpu sse2 avx2 avx512f hypervisor fma md_clear\n"
    )
    assert machine.features_here(tmp_path / "cpuinfo") == {"sse2", "avx2", "avx512f", "fma"}
    assert machine.features_here(tmp_path / "nothing") == set()


def test_native_code_needs_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPSMITH_ARCH", raising=False)
    assert machine.describe()["features"] == sorted(machine.features_here())
    assert machine.inductor_settings() == {}


@pytest.mark.parametrize(
    ("chosen", "features", "bits", "march"),
    [
        ("generic", set(), 1, ""),
        ("x86-64-v3", {"avx2", "fma"}, 256, "x86-64-v3"),
        ("x86-64-v4", {"avx2", "fma", "avx512f"}, 512, "x86-64-v4"),
    ],
)
def test_code_for_older_processors_needs_less(
    monkeypatch: pytest.MonkeyPatch, chosen: str, features: set[str], bits: int, march: str
) -> None:
    monkeypatch.setenv("OPSMITH_ARCH", chosen)
    needed = set(machine.describe()["features"])
    assert features <= needed
    assert bool(features) == bool(needed)
    assert machine.inductor_settings() == {"cpp.simdlen": bits, "cpp.march": march}
