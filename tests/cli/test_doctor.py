import json
import stat
import sys
from importlib import metadata

import pytest
import torch

from opsmith.cli import doctor
from opsmith.kernels import DEVICES, Device
from opsmith.targets import Target, all_targets, get_target


@pytest.fixture
def only_path(tmp_path, monkeypatch):
    """An empty folder as the whole PATH, where a test may put programs."""
    for variable in ("CXX", "CUDACXX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def found(name: str) -> doctor.Finding:
    return next(finding for finding in doctor.examine() if finding.name == name)


def program(path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.slow
def test_the_table_fits_a_hundred_columns(cli):
    outcome = cli("doctor")
    assert outcome.code == 0
    assert outcome.stderr.strip() == "ready to build"
    assert max(map(len, outcome.stdout.splitlines())) <= 100
    for name in ("python", "torch", "C++ compiler", "cmake", "ninja", "nvcc", "onnxruntime"):
        assert name in outcome.stdout


@pytest.mark.slow
def test_json_says_the_same(cli):
    outcome = cli("doctor", "--json")
    said = json.loads(outcome.stdout)
    assert said["ok"] is True
    torch = next(finding for finding in said["findings"] if finding["name"] == "torch")
    assert torch["ok"]
    assert torch["essential"]
    assert torch["version"].startswith("2.")


def test_no_compiler_is_essential_and_says_how_to_get_one(cli, only_path):
    outcome = cli("doctor")
    assert outcome.code == 1
    assert "apt install g++" in outcome.stdout
    assert "needed, and not here: C++ compiler" in outcome.stderr


def test_calls_that_pass_through_python_are_said_with_the_reason(only_path):
    gates = found("gates in C++")
    assert (gates.ok, gates.essential) == (False, False)
    assert gates.note.startswith(
        "Python does the same, slower: the autograd gate (once for this PyTorch): "
    )
    assert "needs a C++ compiler, and none is on the PATH" in gates.note


@pytest.mark.slow
def test_gates_that_are_built_are_said():
    assert found("gates in C++").note == "built for this PyTorch"


def test_a_compiler_without_cpp20_does_not_count(only_path):
    program(
        only_path / "g++",
        'case "$1" in --version) echo "g++ (Old) 7.5.0";; *) echo "no c++20" >&2; exit 1;; esac',
    )
    compiler = found("C++ compiler")
    assert not compiler.ok
    assert compiler.version == "7.5.0"
    assert "does not compile C++20: no c++20" in compiler.note


def test_cxx_that_names_nothing_is_said(only_path, monkeypatch):
    monkeypatch.setenv("CXX", "clang++-99")
    remedy = found("C++ compiler").remedy
    assert remedy.startswith(
        "CXX names the C++ compiler 'clang++-99', and there is no such program"
    )


def test_a_device_is_shown_by_its_row_alone(monkeypatch):
    class Fake(Device):
        present = False

        def missing(self):
            return "" if self.present else "no fake device on this machine"

        def architectures(self):
            return ("fk_1", "fk_2")

        def model(self):
            return "Fake 1000"

        def toolkit(self):
            return "Fake 3"

        def remedy(self):
            return "plug one in"

    row = Fake("fake", "PrivateUse2", None, 14, "aoti_torch_device_type_meta", title="Fake")
    monkeypatch.setitem(DEVICES, "fake", row)
    device = found("Fake device")
    assert (device.ok, device.essential, device.remedy) == (False, False, "plug one in")
    assert device.used_for == "Fake kernels"
    assert "Fake 3" in found("torch").note
    monkeypatch.setattr(Fake, "present", True)
    device = found("Fake device")
    assert (device.ok, device.version, device.note, device.remedy) == (
        True,
        "fk_1 fk_2",
        "Fake 1000",
        "",
    )


def test_a_pytorch_without_cuda_says_where_one_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert found("torch").note == "built for CPUs"
    assert found("CUDA device").remedy == (
        "this PyTorch is a CPU build; see https://pytorch.org/get-started"
    )
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert found("torch").note == "built for CUDA 12.8"
    assert found("CUDA device").remedy == "see whether nvidia-smi lists a device"


def test_a_cuda_device_is_named_with_its_architecture(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    device = found("CUDA device")
    assert (device.ok, device.version, device.note) == (True, "sm_90", "NVIDIA H100")


def test_nvcc_is_found_with_its_release(only_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(only_path))
    assert found("nvcc").remedy.startswith("needs the CUDA compiler nvcc, and it is neither on")
    program(only_path / "nvcc", f"echo '{NVCC}'")
    nvcc = found("nvcc")
    assert (nvcc.ok, nvcc.version, nvcc.used_for) == (True, "13.0", "CUDA kernels")


NVCC = """nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Cuda compilation tools, release 13.0, V13.0.88"""


def test_a_package_that_does_not_import_is_not_here(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "netron", None)
    netron = found("netron")
    assert not netron.ok
    assert "netron is installed, but importing it says" in netron.note


def test_what_kernel_languages_need_is_said_where_it_is_not(monkeypatch):
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    bisheng = found("bisheng")
    assert (bisheng.ok, bisheng.essential, bisheng.used_for) == (False, False, "Ascend C kernels")
    assert bisheng.remedy.startswith("needs CANN, whose compiler bisheng takes Ascend C")
    monkeypatch.setattr(doctor, "_installed_version", lambda name: "")
    triton = found("triton")
    assert (triton.ok, triton.essential, triton.used_for) == (False, False, "Triton kernels")
    assert triton.remedy == "pip install 'opsmith[triton]'"


@pytest.mark.slow
def test_each_target_has_a_row_of_its_own_words(monkeypatch):
    findings = list(doctor.examine())
    rows = {finding.name: finding for finding in findings}
    assert len(rows) == len(findings)
    for target in all_targets():
        name = "python modules" if target.name == "python" else target.name
        assert rows[name].used_for == f"target {target.title}"
    assert rows["onnxruntime"].version == metadata.version("onnxruntime")
    assert rows["aotinductor"].ok

    monkeypatch.setattr(type(get_target("onnx")), "packages", ("no_such_package", "onnx"))
    row = found("onnx")
    assert not row.ok
    remedy = 'no_such_package is not installed. Get it: pip install "opsmith[onnx]"'
    assert row.remedy == remedy


def test_a_runtime_that_does_not_import_is_not_here(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(Target, "available", lambda self: None)
    row = found("onnxruntime")
    assert not row.ok
    assert row.note.startswith("onnxruntime is installed, but importing it says: ")
    assert row.remedy == 'pip install "opsmith[onnx]"'


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("g++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022", "12.2.0"),
        ("cmake version 4.4.4\n\nCMake suite (kitware.com/cmake).", "4.4.4"),
        ("1.13.0.git.kitware.jobserver-pipe-1", "1.13.0"),
        ("Ubuntu clang version 18.1.3 (1ubuntu1)", "18.1.3"),
        ("", ""),
    ],
)
def test_versions_are_read_from_what_tools_print(line, version):
    assert doctor._first_version(line) == version
