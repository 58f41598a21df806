"""What compiled code uses of a processor, and whether another one has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith import ArtifactError
from opsmith.system import machine

X86 = "processor\t: 0\nflags\t\t: fpu sse2 avx2 avx512f hypervisor fma\nbugs\t: mds\n"
ARM = (
    "processor\t: 0\nBogoMIPS\t: 2100.00\n"
    "Features\t: fp asimd evtstrm aes cpuid asimddp sve i8mm\nCPU part\t: 0xd40\n"
)


@pytest.fixture
def cpuinfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that describes the processor; it does not exist yet."""
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    return tmp_path / "cpuinfo"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (X86, ["avx2", "avx512f", "fma", "sse2"]),
        (ARM, ["aes", "asimd", "asimddp", "fp", "i8mm", "sve"]),
        ("processor : 0\n", []),
    ],
)
def test_features_are_those_that_a_compiler_may_use(
    cpuinfo: Path, text: str, expected: list[str]
) -> None:
    cpuinfo.write_text(text)
    assert machine.features() == expected


@pytest.mark.usefixtures("cpuinfo")
def test_a_system_that_does_not_say_has_no_features() -> None:
    assert machine.features() == []


def test_native_code_needs_what_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPSMITH_ARCH", raising=False)
    assert machine.needed() == machine.features()


@pytest.mark.parametrize(
    ("chosen", "features"),
    [
        ("generic", set()),
        ("armv8-a", set()),
        ("x86-64-v3", {"avx2", "fma"}),
        ("x86-64-v4", {"avx2", "fma", "avx512f"}),
    ],
)
def test_code_for_older_processors_needs_less(
    monkeypatch: pytest.MonkeyPatch, chosen: str, features: set[str]
) -> None:
    monkeypatch.setenv("OPSMITH_ARCH", chosen)
    needed = set(machine.needed())
    assert features <= needed
    assert bool(features) == bool(needed)


def require(built_for: str, needs: list[str]) -> None:
    machine.require("dist was", built_for, "Linux-here", needs, "Export it here")


def test_code_for_another_machine_is_refused(cpuinfo: Path) -> None:
    cpuinfo.write_text(ARM)
    require("Linux-here", ["sve", "evtstrm"])
    with pytest.raises(ArtifactError) as raised:
        require("Linux-m68k", [])
    assert str(raised.value) == (
        "dist was compiled for Linux-m68k, this machine is Linux-here. Export it here."
    )
    with pytest.raises(ArtifactError) as raised:
        require("Linux-here", ["sve", "sme", "sve2"])
    assert str(raised.value) == (
        "dist was compiled for a processor with sme, sve2, which this one lacks. Export it here, "
        "or with OPSMITH_ARCH set to a level that both processors have, as in "
        "OPSMITH_ARCH=x86-64-v3, or =generic."
    )


def test_a_processor_that_is_not_described_is_believed(cpuinfo: Path) -> None:
    require("Linux-here", ["sme"])
    cpuinfo.write_text(ARM)
    with pytest.raises(ArtifactError, match="with sme, which this one lacks"):
        require("Linux-here", ["sme"])
