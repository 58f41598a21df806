"""Reading the words of ptxas on kernels, and finding nvcc."""

import importlib.util
from types import SimpleNamespace

import pytest

from opsmith.checks.harness import ptxas
from opsmith.errors import MissingDependencyError
from opsmith.kernels.toolchain import nvcc

SAID = """\
ptxas info    : 32 bytes gmem
ptxas info    : Compiling entry function '_Z5firstPf' for 'sm_90'
ptxas info    : Function properties for _Z5firstPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 31 registers, used 1 barriers, 16 bytes smem
ptxas info    : Compile time = 343.622 ms
ptxas info    : Compiling entry function '_Z6secondPf' for 'sm_90'
ptxas info    : Function properties for _Z6secondPf
    128 bytes stack frame, 96 bytes spill stores, 92 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
ptxas info    : Compiling entry function '_Z5thirdPf' for 'sm_90'
ptxas info    : Function properties for _Z5thirdPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers
"""
PTX = """\
.visible .entry _Z5firstPf(
\t.param .u64 _Z5firstPf_param_0
)
.maxntid 96, 2, 1
{
}
.visible .entry _Z6secondPf(
\t.param .u64 _Z6secondPf_param_0
)
.maxntid 64
{
}
.visible .entry _Z5thirdPf(
\t.param .u64 _Z5thirdPf_param_0
)
{
}
"""


def test_registers_spills_shared_memory_and_bounds_are_read():
    assert ptxas.described(ptxas.parse(SAID, PTX)) == [
        "_Z5firstPf (sm_90): 31 registers, 16 bytes of shared memory, at most 192 threads by its "
        "__launch_bounds__",
        "_Z6secondPf (sm_90): 255 registers, 96 bytes spilled, at most 64 threads by its "
        "__launch_bounds__",
        "_Z5thirdPf (sm_90): 255 registers, at most 256 threads have registers",
    ]


def test_without_nvcc_the_message_says_how_to_get_it(monkeypatch):
    def none(what):
        raise MissingDependencyError(what)

    monkeypatch.setattr(nvcc, "find_nvcc", none)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r"k\.cu: needs nvcc, which pip install"):
        ptxas.find("k.cu")


def test_nvcc_of_a_wheel_is_found(monkeypatch, tmp_path):
    def none(what):
        raise MissingDependencyError(what)

    program = tmp_path / "cu13" / "bin" / "nvcc"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\necho release 13.0\n")
    program.chmod(0o755)
    monkeypatch.setattr(nvcc, "find_nvcc", none)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    found = ptxas.find("k.cu")
    assert (found.path, found.version.strip()) == (str(program), "release 13.0")


@pytest.mark.parametrize(
    ("chosen", "expected"), [("", ["80", "90"]), ("86;90a", ["86", "90a"]), ("all", ["80", "90"])]
)
def test_architectures(monkeypatch, chosen, expected):
    monkeypatch.setenv("OPSMITH_CUDA_ARCHS", chosen)
    assert ptxas.architectures() == expected


def test_instances_of_a_template_share_a_line():
    one = ptxas.Resources("add<float>", "sm_80", 12, 0, 0, None)
    two = ptxas.Resources("add<double>", "sm_80", 20, 8, 0, None)
    assert ptxas.described([one, two]) == ["add (sm_80): 12 to 20 registers, 8 bytes spilled"]
