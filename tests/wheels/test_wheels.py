"""What wheels hold, what they do not, and what cannot be one."""

from __future__ import annotations

import hashlib
import json
import textwrap
from pathlib import Path

import pytest
from wheel_samples import LEVEL, SAMPLE, USABLE_NVCC, contents

from opsmith.errors import ExportError, MissingDependencyError
from opsmith.kernels.toolchain import nvcc
from opsmith.system import machine
from opsmith.wheels import build_wheel, building, project
from opsmith.wheels.platforms import find_platform


@pytest.mark.slow
def test_it_holds_what_it_says(wheel: Path) -> None:
    files = contents(wheel)
    assert wheel.name.startswith("sample_ops-1.2-py3-none-manylinux_2_")
    listed = json.loads(files["sample_ops/_opsmith/libraries.json"])
    assert {(one["operator"], one["level"]) for one in listed["libraries"]} == {
        ("sample::pick", LEVEL),
        ("sample::weighted_square", LEVEL),
    }
    for one in listed["libraries"]:
        data = files[f"sample_ops/_opsmith/{one['file']}"]
        assert hashlib.sha256(data).hexdigest() == one["sha256"]
        assert one["needs"] == machine.needed(LEVEL)
    metadata = files["sample_ops-1.2.dist-info/METADATA"].decode()
    needs = [line for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert [line.split(": ")[1].split(">")[0] for line in needs] == ["torch", "numpy", "jaxtyping"]
    # The author's lines are where they were, for messages.
    ours = (SAMPLE / "src/sample_ops/squares.py").read_text().splitlines()
    theirs = files["sample_ops/squares.py"].decode().splitlines()
    assert len(ours) == len(theirs)
    assert ours.index("def setup_context(ctx, inputs, output):") == theirs.index(
        "def setup_context(ctx, inputs, output):"
    )
    assert not any("import opsmith" in line for line in theirs)


@pytest.mark.slow
def test_what_it_does_not_hold_is_said(wheel: Path, said: list[str]) -> None:
    assert said == [
        "sample::weighted_square (cuda): its Python comes along, and Triton compiles it where it "
        "is called: the kernel is in Triton. Triton is not installed. Get it: pip install "
        '"triton>=3.6"',
        'sample::negated (cpu): left out, since api="torch" binds to one PyTorch; its source comes '
        "along, and is compiled where opsmith is installed",
        "sample::pick (cuda): left out, its source comes along: it needs the CUDA compiler nvcc",
    ]
    files = contents(wheel)
    for place in ("kernels/pick.cu", "kernels/negated.cpp", "in_triton.py"):
        assert f"sample_ops/{place}" in files


@pytest.mark.long
def test_with_nvcc_it_holds_libraries_for_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        USABLE_NVCC("this test")
    except MissingDependencyError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(nvcc, "usable_nvcc", USABLE_NVCC)
    monkeypatch.setenv("OPSMITH_CUDA_ARCHS", "80;90")
    said: list[str] = []
    files = contents(build_wheel(SAMPLE, tmp_path, levels=[LEVEL], say=said.append))
    assert not [sentence for sentence in said if sentence.startswith("sample::pick")]
    listed = json.loads(files["sample_ops/_opsmith/libraries.json"])["libraries"]
    (entry,) = [one for one in listed if one["device"] == "cuda"]
    data = files[f"sample_ops/_opsmith/{entry['file']}"]
    assert b"sm_80" in data and b"sm_90" in data
    assert b"libtorch_cuda.so" in data


def test_cross_compiled_wheels_say_that_nvcc_needs_this_machine() -> None:
    found = project.read(SAMPLE)
    _, said = building.choose(found, find_platform("x86_64"))
    assert (
        "sample::pick (cuda): left out, since nvcc calls this machine's compiler, which only "
        "--platform native uses; its source comes along" in said
    )


@pytest.mark.slow
def test_commands_plugins_and_licenses_come_along(wheel: Path) -> None:
    files = contents(wheel)
    info = "sample_ops-1.2.dist-info"
    assert files[f"{info}/entry_points.txt"].decode().split("\n") == [
        "[console_scripts]",
        "sample-ops = sample_ops.squares:weighted_square",
        "",
        "[sample.plugins]",
        "squares = sample_ops.squares",
        "",
    ]
    assert files[f"{info}/licenses/LICENSE.txt"] == (SAMPLE / "LICENSE.txt").read_bytes()


@pytest.mark.slow
def test_two_builds_are_the_same_bytes_and_other_files_stay(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("of an artifact")
    assert build_wheel(SAMPLE, tmp_path, levels=[LEVEL]).read_bytes() == wheel.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["manifest.json", wheel.name]
    assert (tmp_path / "manifest.json").read_text() == "of an artifact"


def test_what_cannot_be_a_wheel_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="is neither a Python file nor a folder with a pyproject"):
        build_wheel(tmp_path, tmp_path)
    with pytest.raises(ExportError, match="there is no platform 'mips'; there are x86_64, aarch64"):
        build_wheel(SAMPLE, tmp_path, platform="mips")
    plain = tmp_path / "declares_nothing.py"
    plain.write_text("x = 1\n")
    with pytest.raises(ExportError, match=r"declares no operator; declare one with @opsmith\.op"):
        build_wheel(plain, tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "absent"\nversion = "1"\n')
    with pytest.raises(ExportError, match="there is no package absent/ or src/absent/"):
        build_wheel(tmp_path, tmp_path)


def test_a_project_may_name_its_package_and_the_modules_that_declare(tmp_path: Path) -> None:
    folder = tmp_path / "named_ops"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "halves.py").write_text(
        textwrap.dedent("""
            import opsmith
            from jaxtyping import Float
            from torch import Tensor

            @opsmith.op("wheel_named::halve")
            def halve(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
                return x / 2
        """)
    )
    project_ = '[project]\nname = "other-name"\nversion = "2"\n[tool.opsmith]\n'
    (folder / "pyproject.toml").write_text(f'{project_}package = "named_ops"\n')
    with pytest.raises(ExportError, match=r"or name them in \[tool\.opsmith\] modules\.$"):
        project.read(folder)
    (folder / "pyproject.toml").write_text(
        f'{project_}package = "named_ops"\nmodules = ["named_ops.halves"]\n'
    )
    found = project.read(folder)
    assert (found.stem, found.package) == ("other_name-2", "named_ops")
    assert [operator.name for operator in found.operators] == ["wheel_named::halve"]
    assert sorted(map(str, found.files)) == ["__init__.py", "halves.py"]


def test_a_wheel_requires_what_its_declarations_import(tmp_path: Path) -> None:
    source = tmp_path / "typed_ops"
    source.mkdir()
    (source / "__init__.py").write_text(
        textwrap.dedent("""
            import opsmith
            from jaxtyping import Float
            from torch import Tensor

            @opsmith.op("wheel_typed::halve")
            def halve(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
                return x / 2
        """)
    )

    def requires(dependencies: str) -> list[str]:
        (source / "pyproject.toml").write_text(
            f'[project]\nname = "typed-ops"\nversion = "1"\ndependencies = {dependencies}\n'
        )
        metadata = project.read(source).about()["METADATA"].decode().splitlines()
        return [line.split(": ")[1] for line in metadata if line.startswith("Requires-Dist")]

    assert requires("[]") == ["torch>=2.10", "numpy", "jaxtyping>=0.3"]
    # The author's own bounds stay.
    assert requires('["jaxtyping>=0.3.1"]') == ["jaxtyping>=0.3.1", "torch>=2.10", "numpy"]
