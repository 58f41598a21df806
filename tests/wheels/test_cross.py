"""Wheels by Zig's compiler, for every Linux and for Arm."""

from __future__ import annotations

import importlib.util
import os
import struct
import zipfile
from pathlib import Path

import pytest
from wheel_samples import LEVEL, SAMPLE, USE, WITHOUT, contents, install, run

from opsmith.wheels import build_wheel

if importlib.util.find_spec("ziglang") is None:
    if os.environ.get("OPSMITH_REQUIRE_ZIG"):
        raise ModuleNotFoundError("OPSMITH_REQUIRE_ZIG is set, and ziglang is not installed")
    pytest.skip("no Zig here; make wheels installs it and runs these", allow_module_level=True)

ARM = 183


def test_one_for_every_linux_runs_here_errors_and_all(tmp_path: Path) -> None:
    wheel = build_wheel(SAMPLE, tmp_path, platform="x86_64", levels=[LEVEL])
    assert wheel.name == "sample_ops-1.2-py3-none-manylinux_2_28_x86_64.whl"
    install(wheel, tmp_path / "site")
    done = run(tmp_path / "site", WITHOUT + USE)
    assert done.returncode == 0, done.stderr
    assert "sample::pick: a negative element\n" in done.stdout
    said = run(tmp_path / "site", f"{WITHOUT}\nimport sample_ops._opsmith.__main__")
    assert said.stdout.startswith("calls run in C++, by gates for PyTorch "), said.stderr


def test_one_for_arm_is_built_from_any_machine(tmp_path: Path) -> None:
    wheel = build_wheel(SAMPLE, tmp_path, platform="aarch64")
    assert wheel.name == "sample_ops-1.2-py3-none-manylinux_2_28_aarch64.whl"
    libraries = {name: data for name, data in contents(wheel).items() if name.endswith(".so")}
    assert len(libraries) == 3 and any("/gates/aarch64-" in name for name in libraries)
    assert {struct.unpack_from("<H", data, 18)[0] for data in libraries.values()} == {ARM}
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
