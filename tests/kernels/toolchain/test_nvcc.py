"""nvcc: for which GPUs it compiles, and what it says of the host compiler before a build."""

import re
from pathlib import Path

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

from opsmith.errors import MissingDependencyError
from opsmith.kernels import KernelSource, kernel_source
from opsmith.kernels.toolchain.compilers import Compiler
from opsmith.kernels.toolchain.nvcc import cuda_architectures, find_nvcc, require_host
from opsmith.kernels.toolchain.torch_paths import TorchPaths
from opsmith.signature import signature_of

LIMITS = """\
#if __GNUC__ > 13
#error -- unsupported GNU version!
#endif
#if (__clang_major__ >= 19) || (__clang_major__ < 3)
#error -- unsupported clang version!
#endif
"""
GCC = "g++ (Debian 12.2.0-14+deb12u1) {}.1.0\nCopyright (C) 2022 Free Software Foundation, Inc."
CLANG = "Debian clang version {}.0.6 (27+b1)\nTarget: x86_64-pc-linux-gnu"


@pytest.fixture
def fake_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script that answers as nvcc, in a toolkit whose header has nvcc's limits."""
    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    header = tmp_path / "toolkit" / "include" / "crt" / "host_config.h"
    for path in (nvcc, header):
        path.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.3, V12.3.107'\n")
    nvcc.chmod(0o755)
    header.write_text(LIMITS)
    monkeypatch.setenv("CUDACXX", str(nvcc))
    return nvcc


def fake_gcc(folder: Path, version: int, name: str = "g++") -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\necho 'g++ (Debian {version}.2.0-3) {version}.2.0'\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("version", "taken"),
    [
        (GCC.format(13), True),
        (GCC.format(14), False),
        (CLANG.format(18), True),
        (CLANG.format(19), False),
        ("c++ of another maker", True),
    ],
)
def test_the_toolkit_says_which_host_compilers_it_takes(fake_nvcc, version, taken):
    nvcc, host = find_nvcc("bev::pool"), Compiler("/usr/bin/c++", version)
    if taken:
        require_host(nvcc, host, "bev::pool")
        return
    with pytest.raises(MissingDependencyError, match=r"^bev::pool: this nvcc \(CUDA 12\.3, "):
        require_host(nvcc, host, "bev::pool")


def scale(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelSource:
    """A kernel for a PyTorch that has CUDA."""

    monkeypatch.setattr(TorchPaths, "links", lambda self, names: [*names])
    path = tmp_path / "scale.cu"
    path.write_text("")
    return kernel_source(signature_of(scale, "nvcc_test::scale"), "cuda", path)


def test_a_host_compiler_that_nvcc_refuses_is_diagnosed_before_the_build(
    fake_nvcc, source, tmp_path, monkeypatch
):
    monkeypatch.setenv("CXX", str(fake_gcc(tmp_path, 14)))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingDependencyError) as raised:
        source.build()
    message = str(raised.value)
    assert message.startswith("nvcc_test::scale (cuda): this nvcc (CUDA 12.3, ")
    assert f"supports GCC up to 13, and {tmp_path}/g++ is GCC 14." in message
    assert "Install g++-13 and set CXX to it" in message
    assert "flags=('-allow-unsupported-compiler',)" in message


def test_an_older_compiler_that_is_here_is_named(fake_nvcc, source, tmp_path, monkeypatch):
    older = tmp_path / "older"
    older.mkdir()
    fake_gcc(older, 12, "g++-12")
    monkeypatch.setenv("PATH", str(older), prepend=":")
    monkeypatch.setenv("CXX", str(fake_gcc(tmp_path, 14)))
    with pytest.raises(MissingDependencyError, match=r"GCC 14\. Set CXX=g\+\+-12; or let nvcc try"):
        source.build()


def test_without_nvcc_one_sentence_says_what_to_install(source, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(fake_gcc(tmp_path, 12)))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDACXX", raising=False)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(MissingDependencyError) as raised:
        source.build()
    assert str(raised.value) == (
        "nvcc_test::scale (cuda): needs the CUDA compiler nvcc, and it is neither on the PATH nor "
        f"below {tmp_path}/nowhere. Install the CUDA toolkit "
        "(https://developer.nvidia.com/cuda-downloads), or set CUDACXX."
    )


@pytest.mark.parametrize(
    ("chosen", "architectures"),
    [
        ("90", "90"),
        ("80;90", "80-real;90"),
        ("9.0, 8.0", "80-real;90"),
        ("8.0+PTX 9.0", "80;90"),
        ("sm_90a;80", "80-real;90a-real"),
        ("12.0", "120"),
        ("all-major", "all-major"),
        (" native ", "native"),
    ],
)
def test_the_environment_says_for_which_gpus(monkeypatch, chosen, architectures):
    monkeypatch.setenv("OPSMITH_CUDA_ARCHS", chosen)
    assert cuda_architectures() == architectures


def test_without_it_every_kind_of_gpu_here_has_its_code(monkeypatch):
    monkeypatch.delenv("OPSMITH_CUDA_ARCHS", raising=False)
    capabilities = [(9, 0), (8, 6), (9, 0)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
    monkeypatch.setattr(torch.cuda, "get_device_capability", capabilities.__getitem__)
    assert cuda_architectures() == "86;90"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert cuda_architectures() == "all-major"


def test_something_else_in_the_environment_is_refused_by_name(monkeypatch):
    monkeypatch.setenv("OPSMITH_CUDA_ARCHS", "80;ampere")
    with pytest.raises(
        MissingDependencyError,
        match=re.escape(
            "OPSMITH_CUDA_ARCHS has 'ampere'; expected architectures, as in 80;90, or one of "
            "all, all-major, native."
        ),
    ):
        cuda_architectures()
