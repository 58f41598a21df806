"""An exported Python package: what it needs, what it is refused for, what tools see of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks

pytest.importorskip("nanobind")


import ort_operators as operators

from gallery.my_add.my_add import my_add

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two packages in one folder."""
    folder = tmp_path_factory.mktemp("python")
    for operator, package in ((my_add, "adding"), (operators.reverse, "reversing")):
        opsmith.export(operator, target="python", out=folder / package, package=package, say=None)
        shutil.move(folder / package / package, folder / f"{package}_")
        for name in ("pyproject.toml", "setup.py", "README.md", "manifest.json"):
            (folder / f"{package}_files").mkdir(exist_ok=True)
            shutil.move(folder / package / name, folder / f"{package}_files" / name)
        (folder / package).rmdir()
        (folder / f"{package}_").rename(folder / package)
    return folder


def run(python: Path | str, script: str, folder: Path) -> str:
    done = subprocess.run(
        [str(python), "-c", script], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_a_package_needs_numpy_alone(dist, numpy_python) -> None:
    script = """
import sys
import numpy as np
import adding
x = np.arange(4, dtype=np.float32)
assert (adding.my_add(x, b=x) == 3 * x).all()
assert adding.FUNCTIONS["tutorial::my_add"] is adding.my_add
try:
    adding.my_add(x, x[:2])
except ValueError as error:
    assert isinstance(error, adding.ArgumentError) and isinstance(error, RuntimeError)
    print(error)
assert not {"torch", "opsmith", "nanobind"} & set(sys.modules)
"""
    assert run(numpy_python, script, dist).splitlines() == [
        "tutorial::my_add: argument 'b' does not fit Float[Tensor, \"*shape\"]: "
        "dimensions from 0 (*shape) are (2,), expected (4,).",
        "  got: shape (2,), dtype float32",
        "  bound so far: *shape=(4,) (*shape by 'a')",
    ]


def test_two_packages_live_in_one_process(dist, numpy_python) -> None:
    script = """
import numpy as np
import adding, reversing
x = np.arange(80000.0).reshape(8000, 10)
for _ in range(20):
    assert (reversing.reverse(adding.my_add(x, x)) == 3 * x[:, ::-1]).all()
try:
    adding.my_add(x, 3)
except reversing.ArgumentError:
    raise SystemExit("one package raised the other's error")
except adding.ArgumentError:
    pass
"""
    assert run(numpy_python, script, dist) == ""


def test_threads_are_there_after_a_fork(dist, numpy_python) -> None:
    script = """
import os
os.environ["OPSMITH_NUM_THREADS"] = "3"
import numpy as np
import reversing
x = np.arange(80000.0).reshape(8000, 10)
def works():
    return all((reversing.reverse(x) == x[:, ::-1]).all() for _ in range(20))
assert works()
threads = len(os.listdir("/proc/self/task"))
assert threads >= 3, threads
child = os.fork()
if child == 0:
    os._exit(0 if works() and len(os.listdir("/proc/self/task")) == 3 else 1)
assert os.waitpid(child, 0)[1] == 0
assert works()
"""
    assert run(numpy_python, script, dist) == ""


def test_a_file_that_was_changed_is_not_loaded(dist, tmp_path) -> None:
    for pattern in ("lib*.so", "_native*.so"):
        package = tmp_path / pattern.strip("*.") / "adding"
        shutil.copytree(dist / "adding", package)
        (path,) = package.glob(pattern)
        path.write_bytes(path.read_bytes() + b"!")
        done = subprocess.run(
            [sys.executable, "-c", "import adding"],
            capture_output=True,
            text=True,
            check=False,
            cwd=package.parent,
        )
        assert f"{path} is not the file that was exported: its SHA-256 is" in done.stderr


def test_another_python_is_told_which_one_the_package_is_for(dist, tmp_path) -> None:
    package = tmp_path / "adding"
    shutil.copytree(dist / "adding", package)
    (extension,) = package.glob("_native*.so")
    text = (package / "__init__.py").read_text()
    (package / "__init__.py").write_text(
        text.replace(extension.name, "_native.cpython-39-x86_64-linux-gnu.so")
    )
    done = subprocess.run(
        [sys.executable, "-c", "import adding"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    here = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    assert "ImportError: adding was exported for CPython " in done.stderr
    assert f"and this is {here} on " in done.stderr
    assert done.stderr.strip().endswith("Export again with it.")


def test_one_extension_serves_every_python_where_nanobind_is_shared(
    tmp_path, backend_python
) -> None:
    artifact = opsmith.export(
        my_add, target="python", out=tmp_path / "dist", package="adding", backend="shared", say=None
    )
    names = {Path(name).name for name in artifact.manifest.files}
    assert "_native.abi3.so" in names
    assert "CPython 3.10 and later" in artifact.manifest.details["serves"]
    script = """
import numpy as np
import adding
x = np.arange(4, dtype=np.float32)
assert (adding.my_add(x, x) == 3 * x).all()
"""
    assert run(backend_python, script, tmp_path / "dist") == ""


@pytest.mark.long  # pip builds in an environment of its own
def test_pip_makes_a_wheel_for_this_platform(tmp_path) -> None:
    artifact = opsmith.export(my_add, target="python", out=tmp_path / "dist", say=None)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
    done = subprocess.run(
        [*command, "-w", str(tmp_path), str(artifact.folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = {Path(name).name for name in archive.namelist()}
    written = {Path(name).name for name in artifact.manifest.files if "/" in name}
    assert written <= files


def test_a_type_checker_knows_what_is_taken_and_returned(dist, tmp_path) -> None:
    pytest.importorskip("mypy")
    # Arrays as NumPy's and PyTorch's are typed; reading the stubs of those takes a minute.
    (tmp_path / "user.py").write_text("""
from typing import Any
import adding

class Mine:
    def __dlpack__(self, *, stream: int | None = None, copy: bool | None = None) -> Any:
        raise NotImplementedError
    def __dlpack_device__(self) -> tuple[int, int]:
        raise NotImplementedError

class Other:
    def __dlpack__(self, stream: Any = None) -> object:
        raise NotImplementedError
    def __dlpack_device__(self) -> tuple[Any, int]:
        raise NotImplementedError

found: Mine = adding.my_add(Mine(), b=Other())
adding.my_add(3, Mine())
adding.my_add(Mine())
""")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "user.py"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={"MYPYPATH": str(dist), "PATH": "/usr/bin:/bin"},
    )
    lines = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(lines) == 2, done.stdout + done.stderr
    assert '"my_add" cannot be "int"' in lines[0]
    assert 'Missing positional argument "b"' in lines[1]


def test_an_operator_without_a_cpp_kernel_is_refused(tmp_path) -> None:
    with pytest.raises(opsmith.ExportError) as caught:
        opsmith.export(operators.python_only, target="python", out=tmp_path / "dist")
    assert str(caught.value) == (
        "ort_test::python_only: a Python module calls a C++ kernel, and the operator has none for "
        "the CPU. Add one: "
        'python_only.register_kernel("cpu", source="python_only.cpp").'
    )
    assert not (tmp_path / "dist").exists()


def test_a_kernel_against_pytorch_is_refused(tmp_path) -> None:
    source = Path(__file__).parents[2] / "operators" / "torch_library_sources" / "muladd.cpp"

    @opsmith.op("python_test::against_torch")
    def against_torch(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x

    against_torch.register_kernel("cpu", source=source, api="torch")
    with pytest.raises(opsmith.ExportError, match=r"is written against PyTorch \(api=\"torch\"\)"):
        opsmith.export(against_torch, target="python", out=tmp_path / "dist")


def test_a_package_must_have_a_name_that_can_be_imported(tmp_path) -> None:
    with pytest.raises(opsmith.ExportError, match="'my-ops' is not the name of a Python package"):
        opsmith.export(my_add, target="python", out=tmp_path / "dist", package="my-ops")


def test_the_readme_shows_the_functions(dist) -> None:
    text = (dist / "adding_files" / "README.md").read_text()
    assert "## `my_add(a, b)`" in text
    assert "Give 2a + b, elementwise." in text


def row(operator: opsmith.Operator) -> Any:
    report = checks.run(operator, select=["python"], isolate=False, examples=12)
    (found,) = [row for row in report.rows if row.check == "python" and row.kernel == "cpu"]
    return found


def test_the_row_of_the_check_passes_and_runs_the_kernel() -> None:
    found = row(operators.everything)
    assert found.status == "passed", found.message
    assert found.cases > 3


def test_the_row_of_the_check_finds_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    from opsmith.targets.hosted import functions

    monkeypatch.setattr(functions, "to_torch", lambda value: torch.as_tensor(value) + 1)
    found = row(operators.reverse)
    assert found.status == "failed"
    assert "in the Python module" in found.message
