"""The other ways to take a project elsewhere: pip, source distributions, Hugging Face's layout."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path

import pytest
from wheel_samples import LEVEL, SAMPLE, WITHOUT, run

import opsmith
from opsmith.errors import OptionError
from opsmith.wheels import build_folder, build_tvm_ffi_folder

DECLARED = """
import opsmith
from jaxtyping import Float
from torch import Tensor


@opsmith.op("scaling::twice")
def twice(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return 2 * x


twice.register_kernel("cpu", source="twice.cpp")
"""
KERNEL = """
#include <opsmith/kernel.h>
#include "twice.h"

template <typename T>
void twice(const opsmith::Context&, const scaling::twice_args<T>& a) {
  for (int64_t i = 0; i < a.x.numel(); ++i) a.out[i] = 2 * a.x[i];
}
OPSMITH_KERNEL(scaling, twice, cpu, float, double)
"""
WITHOUT_TORCH = "import sys; sys.modules['torch'] = sys.modules['opsmith'] = None\n"


@pytest.mark.long
def test_hugging_faces_layout_holds_one_package_under_any_name(tmp_path: Path) -> None:
    folder = build_folder(SAMPLE, tmp_path, levels=[LEVEL])
    assert folder.parent == tmp_path / "build"
    assert folder.name == f"torch-stable-abi210-cpu-{platform.machine()}-linux"
    said = json.loads((folder / "metadata.json").read_text())
    assert said["name"] == "sample-ops" and said["version"] == 1
    digests = said["digest"]["files"]
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert set(digests) == there - {"metadata.json"}
    for place, digest in digests.items():
        data = (folder / place).read_bytes()
        assert base64.b64decode(digest) == hashlib.sha256(data).digest(), place
    # As kernels imports it: under a name of its own for each build.
    text = f"""
        import importlib.util, sys
        import torch
        spec = importlib.util.spec_from_file_location(
            {said["id"]!r}, {str(folder / "__init__.py")!r}
        )
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert "sample_ops" not in sys.modules
        x, weight = torch.randn(3, 2), torch.randn(2)
        torch.testing.assert_close(module.weighted_square(x, weight), weight * x * x)
        print(module.weighted_square.kernels["cpu"].calls)
    """
    done = run(tmp_path, WITHOUT + textwrap.dedent(text))
    assert done.stdout == "1\n", done.stderr


@pytest.mark.slow
def test_hugging_faces_layout_through_tvm_ffi_needs_no_pytorch(tmp_path: Path) -> None:
    source = tmp_path / "scaling.py"
    source.write_text(DECLARED)
    (tmp_path / "twice.cpp").write_text(KERNEL)
    with pytest.raises(OptionError, match=r"levels: a folder through tvm-ffi .* Leave levels out"):
        build_tvm_ffi_folder(source, tmp_path / "hub", levels=[LEVEL])
    folder = build_tvm_ffi_folder(source, tmp_path / "hub", name="scaling")
    assert build_tvm_ffi_folder(source, tmp_path / "hub", name="scaling") == folder
    release = "".join(metadata.version("apache-tvm-ffi").split(".")[:2])
    name = f"tvm-ffi{release}-cpu-{platform.machine()}-linux"
    assert folder == tmp_path / "hub" / "build" / name
    script = """
        import importlib.util, json, sys
        from pathlib import Path
        import numpy as np
        folder = Path(sys.argv[1])
        name = json.loads((folder / "metadata.json").read_text())["id"]
        spec = importlib.util.spec_from_file_location(name, folder / "__init__.py")
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        print(module.twice(np.arange(3.0)), sys.modules["torch"])
    """
    words = [sys.executable, "-c", WITHOUT_TORCH + textwrap.dedent(script), str(folder)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "[0. 2. 4.] None\n", done.stderr


@pytest.mark.long
@pytest.mark.parametrize("editable", [False, True])
def test_pip_installs_the_folder(tmp_path: Path, editable: bool) -> None:
    folder, venv = tmp_path / "sample", tmp_path / "venv"
    shutil.copytree(SAMPLE, folder)
    picks = folder / "src" / "sample_ops" / "picks.py"
    picks.write_text(picks.read_text().replace('pick.register_kernel("cuda"', "# "))  # see _no_nvcc
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = [str(venv / "bin" / "python")]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    words = ["--no-deps", "--no-build-isolation", *(["-e"] if editable else []), str(folder)]
    setting = ["-C", f"level={LEVEL}"]
    # An editable opsmith is on no path that another Python can be given.
    here = [str(Path(opsmith.__file__).parents[1])]
    here += [path for path in sys.path if path and not path.startswith(str(SAMPLE))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(here)}
    subprocess.run(
        [*pip, "--python", *python, "install", *setting, *words], check=True, env=environment
    )
    done = subprocess.run(
        [*python, "-c", "import sample_ops; print(sample_ops.__file__)"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    place = folder if editable else venv
    assert done.stdout.strip().startswith(str(place)), done.stdout


def test_an_sdist_holds_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tarfile

    from opsmith.wheels import backend

    monkeypatch.chdir(SAMPLE)
    name = backend.build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        names = archive.getnames()
    assert name == "sample_ops-1.2.tar.gz"
    for expected in ("PKG-INFO", "pyproject.toml", "src/sample_ops/kernels/square.h"):
        assert f"sample_ops-1.2/{expected}" in names
