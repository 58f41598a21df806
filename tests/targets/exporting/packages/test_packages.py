"""What targets for operators share: their kernels, their comparison, the packages they write."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import ArtifactError, CheckError, ExportError
from opsmith.system.version import version
from opsmith.targets.exporting.artifact import Agreement, Artifact, File, Manifest
from opsmith.targets.exporting.operator_export import compare_operators, kernel_of, obstacle
from opsmith.targets.exporting.packages import runtime, writer


@opsmith.op("test_packages::mix", mutates_args=("count",))
def mix(
    x: Float[Tensor, "N"], more: list[Float[Tensor, "N"]], count: Float[Tensor, "N"], k: float = 2.0
) -> Float[Tensor, "N"]:
    count.add_(1)
    return sum(more, x * k)


@opsmith.op("test_packages::half")
def half(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]:
    return x / 2, -x / 2


@opsmith.op("test_packages_too::half")
def other_half(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x / 2


@mix.register_cases
def cases(dtype: torch.dtype, seed: int) -> Any:
    for n in range(2, 14):
        yield {
            "x": torch.full((n,), 3.0, dtype=dtype),
            "more": [torch.ones(n, dtype=dtype)],
            "count": torch.zeros(n, dtype=dtype),
        }


@half.register_cases
def halves(dtype: torch.dtype, seed: int) -> Any:
    yield {"x": torch.tensor([4.0, 2.0], dtype=dtype)}


class Runner:
    """A runtime that adds an error to what an operator writes or returns."""

    def __init__(self, errors: dict[str, float], *, drop: bool = False) -> None:
        self.errors = errors
        self.drop = drop
        self.called: list[tuple[str, int]] = []

    def run(self, name: str, arguments: dict[str, Any]) -> list[Tensor]:
        self.called.append((name, len(arguments["x"])))
        found = {"test_packages::mix": mix, "test_packages::half": half}[name]
        returned = found.reference(*arguments.values())
        many = list(returned) if isinstance(returned, tuple) else [returned]
        many += [arguments["count"]] if "count" in arguments else []
        many[-1] = many[-1] + self.errors.get(name, 0.0)
        return many[1:] if self.drop else many


def test_operators_are_compared_on_their_first_cases() -> None:
    runner: Any = Runner({})
    found = compare_operators([mix, half], runner, "Some Runtime")
    assert found.samples == 9 and found.largest == 0
    assert runner.called == [
        *(("test_packages::mix", n) for n in range(2, 10)),
        ("test_packages::half", 2),
    ]


def test_the_largest_difference_is_named_with_operator_and_result() -> None:
    # Of the largest value: 1 for the count, 2 for the second half.
    errors = {"test_packages::mix": 3e-6, "test_packages::half": 2e-6}
    runner: Any = Runner(errors)
    found = compare_operators([mix, half], runner, "Some Runtime")
    assert found == Agreement(9, found.largest, "test_packages::mix: count (written into)")
    assert found.largest == pytest.approx(3e-6, rel=0.1)
    runner = Runner({"test_packages::half": 2e-6})
    found = compare_operators([mix, half], runner, "Some Runtime")
    assert found.output.startswith("test_packages::half: ")
    assert found.largest == pytest.approx(1e-6, rel=0.2)


def test_a_runtime_that_disagrees_is_told_by_operator() -> None:
    runner: Any = Runner({"test_packages::mix": 0.5})
    with pytest.raises(CheckError, match=r"Some Runtime.*\n?.*test_packages::mix: count"):
        compare_operators([half, mix], runner, "Some Runtime")
    runner = Runner({}, drop=True)
    with pytest.raises(CheckError, match="Some Runtime"):
        compare_operators([half], runner, "Some Runtime")


def test_what_has_no_kernel_for_a_runtime_says_what_to_add(tmp_path: Path) -> None:
    def why_not(operator: Any, kernel: Any) -> str | None:
        return obstacle(operator, kernel, "Some Runtime")

    with pytest.raises(ExportError) as caught:
        kernel_of(half, why_not)
    add = 'half.register_kernel("cpu", source="half.cpp").'
    assert str(caught.value) == (
        "test_packages::half: Some Runtime calls a C++ kernel, and the operator has none for the "
        f"CPU. Add one: {add}"
    )
    path = tmp_path / "half.cpp"
    path.write_text("")

    def declared(name: str) -> Any:
        return opsmith.op(f"test_packages::{name}", half.reference)

    in_python, against_torch, good, elsewhere = map(
        declared, ("python", "torch", "good", "elsewhere")
    )
    in_python.register_kernel("cpu", lambda x: (x, x))
    assert "calls a C++ kernel" in str(why_not(in_python, in_python.kernels["cpu"]))
    against_torch.register_kernel("cpu", source=path, api="torch")
    kernel = against_torch.kernels["cpu"]
    assert why_not(against_torch, kernel) == (
        f'its CPU kernel {kernel.where} is written against PyTorch (api="torch"), which Some '
        "Runtime does not have. Write it against <opsmith/kernel.h>."
    )
    elsewhere.register_kernel("xpu", source=path)
    assert why_not(elsewhere, elsewhere.kernels["xpu"]) == (
        "Some Runtime calls kernels for the CPU, and this one is for xpu."
    )
    in_torch = declared("elsewhere_in_torch")
    in_torch.register_kernel("xpu", source=path, api="torch")
    assert "this one is for xpu" in str(why_not(in_torch, in_torch.kernels["xpu"]))
    (tmp_path / "elsewhere.cpp").write_text("")
    elsewhere.register_kernel("xpu", source=tmp_path / "elsewhere.cpp")
    advice = 'register_kernel("cpu", source="elsewhere_cpu.cpp")'  # the other is taken
    assert advice in str(why_not(elsewhere, None))
    good.register_kernel("cpu", source=path)
    assert why_not(good, good.kernels["cpu"]) is None
    assert kernel_of(good, why_not) is good.kernels["cpu"].source


def test_a_package_has_its_namespace_s_name_or_the_one_that_is_chosen() -> None:
    assert writer.package_name([mix, other_half], None, "python") == "test_packages_python"
    assert writer.package_name([mix], "ops", "python") == "ops"
    for wrong in ("my-ops", "class", "1st"):
        with pytest.raises(ExportError) as caught:
            writer.package_name([mix], wrong, "jax")
        assert str(caught.value) == f"package={wrong!r} is not the name of a Python package"


def test_names_that_two_operators_share_get_their_namespaces() -> None:
    signatures = [operator.signature for operator in (half, mix, other_half)]
    assert writer.attributes_of(signatures) == [
        "test_packages_half",
        "mix",
        "test_packages_too_half",
    ]


def test_a_packages_project_is_what_pip_reads() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python before 3.11 has none")
    assert writer.head() == (
        f"# Written by opsmith {version()} from the declarations. Do not edit: export again.\n"
    )
    plain = tomllib.loads(writer.project("my_ops", ["jax", "numpy"]))
    assert plain == {
        "build-system": {
            "requires": ["setuptools>=77"],
            "build-backend": "setuptools.build_meta",
        },
        "project": {"name": "my-ops", "version": "0", "dependencies": ["jax", "numpy"]},
        "tool": {
            "setuptools": {
                "packages": {"find": {"include": ["my_ops", "my_ops.*"]}},
                "package-data": {"my_ops": ["*.so", "*.dylib"]},
            }
        },
    }
    more = tomllib.loads(writer.project("a", [], python=">=3.12", data=["*.pyi"]))
    assert more["project"]["requires-python"] == ">=3.12"
    assert more["project"]["dependencies"] == []
    assert more["tool"]["setuptools"]["package-data"] == {"a": ["*.so", "*.dylib", "*.pyi"]}


def artifact(tmp_path: Path, text: str) -> Artifact:
    folder = tmp_path / "pack"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(text)
    (folder / "problems.py").write_text("class OpsmithError(Exception): ...\n")
    digest = hashlib.sha256(text.encode()).hexdigest()
    files = {"pack/__init__.py": File(digest, len(text))}
    return Artifact(tmp_path, Manifest("python", {}, kind="operators", files=files))


def test_two_packages_of_one_name_are_two_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    text = "from .problems import OpsmithError\nvalue = {}\n"
    one, two = (
        writer.imported(artifact(tmp_path / str(n), text.format(n)), "pack", "problems")
        for n in (1, 2)
    )
    assert (one.value, two.value) == (1, 2)
    assert one.__name__ != two.__name__
    assert sys.modules[one.__name__] is one
    # Where opsmith is, an artifact's errors are opsmith's.
    assert one.OpsmithError is opsmith.OpsmithError
    assert not sys.dont_write_bytecode
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_package_that_cannot_be_imported_is_no_module(tmp_path: Path) -> None:
    before = set(sys.modules)
    with pytest.raises(ArtifactError) as caught:
        writer.imported(artifact(tmp_path, "import no_such_runtime\n"), "pack", "problems")
    assert str(caught.value) == (f"{tmp_path} cannot be loaded: No module named 'no_such_runtime'")
    left = set(sys.modules) - before
    assert not [name for name in left if name.endswith("_pack")]


def test_a_library_is_loaded_if_it_is_what_was_exported(tmp_path: Path) -> None:
    path = tmp_path / "lib.so"
    with pytest.raises(ArtifactError, match=f"^{path} cannot be read: .*No such file"):
        runtime.load(path, "00")
    path.write_bytes(b"no library")
    known = hashlib.sha256(b"no library").hexdigest()
    with pytest.raises(ArtifactError) as caught:
        runtime.load(path, "00")
    assert str(caught.value) == (
        f"{path} is not the file that was exported: its SHA-256 is {known}, expected 00. "
        "Export again."
    )
    runtime.require(path, known)
    with pytest.raises(ArtifactError, match=f"^{path} does not load: "):
        runtime.load(path, known)
