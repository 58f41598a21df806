"""opsmith's own wheel: on a new machine, a first check compiles the user's kernel and no more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import own_wheel
import pytest
import torch
from wheel_samples import install

from opsmith.kernels.libraries import prebuilt
from opsmith.kernels.toolchain.compilers import find_compiler
from opsmith.wheels.platforms import find_platform


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("own")
    wheel = own_wheel.build(Path(os.path.relpath(folder)), "native")
    assert wheel.parent == folder
    assert f"_{find_platform('native').machine}.whl" in wheel.name and "manylinux" in wheel.name
    install(wheel, folder / "site")
    return folder / "site"


class Machine:
    """A machine on which opsmith was just installed, with a compiler that keeps what it was told.

    Args:
        site: where opsmith is installed.
        folder: a folder of this machine's own.
    """

    def __init__(self, site: Path, folder: Path) -> None:
        self._folder, self._told = folder, folder / "told"
        compiler = folder / "g++"
        compiler.write_text(
            f'#!/bin/sh\necho "$@" >> {self._told}\nexec {find_compiler("").path} "$@"\n'
        )
        compiler.chmod(0o755)
        self._variables = {
            "PYTHONPATH": str(site),
            "OPSMITH_CACHE": str(folder / "cache"),
            "CXX": str(compiler),
        }
        self.run("new", "my_op", "--dir", str(folder))
        self.operator = folder / "my_op" / "my_op.py"

    def run(self, *words: str) -> str:
        """Run opsmith; return what it prints."""
        command = [sys.executable, "-m", "opsmith", *words]
        environment = {k: v for k, v in os.environ.items() if k not in ("CXXFLAGS", "LDFLAGS")}
        done = subprocess.run(
            command,
            env=environment | self._variables,
            cwd=self._folder,  # Python would import the opsmith of this one first
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def compiled(self) -> set[str]:
        """The sources that were compiled."""
        lines = (line.split() for line in self._told.read_text().splitlines())
        return {Path(words[words.index("-c") + 1]).name for words in lines if "-c" in words}


@pytest.mark.slow
def test_a_first_check_compiles_the_kernels_own_files_alone(site: Path, tmp_path: Path) -> None:
    new = Machine(site, tmp_path)
    report = json.loads(new.run("check", "--quick", "--json", str(new.operator)))
    rows = {row["check"]: row["status"] for row in report["rows"]}
    assert all(rows[name] == "passed" for name in ("exact", "bounds", "schedules", "gradient"))
    assert {name for name in new.compiled() if not name.startswith("my_op")} == set()
    new.run("export", str(new.operator), "--target", "python", "--out", str(tmp_path / "dist"))
    assert {name for name in new.compiled() if not name.startswith("my_op")} == set()


@pytest.mark.slow(cases=1)  # each compiles a gate
@pytest.mark.parametrize("other", ["torch", "sources"])
def test_gates_for_another_pytorch_are_compiled_here(
    site: Path, tmp_path: Path, other: str
) -> None:
    listed = site / "opsmith" / prebuilt.FOLDER / prebuilt.LIST
    text = listed.read_text()
    gates = json.loads(text)["gates"]
    assert [one["torch"] for one in gates] == [prebuilt.release_of(torch.__version__)]
    try:
        listed.write_text(json.dumps({"gates": [{**gates[0], other: "2.99.0"}]}))
        new = Machine(site, tmp_path)
        new.run("check", "--check", "build", str(new.operator))
    finally:
        listed.write_text(text)
    assert {name for name in new.compiled() if not name.startswith("my_op")} == {
        "autograd_gate.cpp"
    }
