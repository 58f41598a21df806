import json
import stat
import sys
from importlib import metadata

import pytest

from opsmith.cli import doctor
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


def test_the_table_fits_a_hundred_columns(cli):
    outcome = cli("doctor")
    assert outcome.code == 0
    assert outcome.stderr.strip() == "ready to build"
    assert max(map(len, outcome.stdout.splitlines())) <= 100
    for name in ("python", "torch", "C++ compiler", "cmake", "ninja", "nvcc", "onnxruntime"):
        assert name in outcome.stdout


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


def test_a_package_that_does_not_import_is_not_here(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "netron", None)
    netron = found("netron")
    assert not netron.ok
    assert "netron is installed, but importing it says" in netron.note


def test_each_target_has_a_row_of_its_own_words(monkeypatch):
    rows = {finding.name: finding for finding in doctor.examine()}
    for target in all_targets():
        assert rows[target.name].used_for == f"target {target.title}"
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
