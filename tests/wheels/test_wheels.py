"""Wheels: what is in them, and that they work where there is neither opsmith nor a compiler."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from opsmith.errors import BuildError, ExportError, MissingError
from opsmith.kernels import machine, nvcc, shipped
from opsmith.wheels import build_folder, build_wheel, carried, choice, project
from opsmith.wheels.platforms import find_platform

SAMPLE = Path(__file__).with_name("sample")
USABLE_NVCC = nvcc.usable_nvcc
LEVEL = find_platform("native").levels[0]

WITHOUT = """
import sys
sys.modules["opsmith"] = None
"""
USE = """
import torch
from sample_ops import Operator, pick, weighted_square

x, weight = torch.randn(3, 2, requires_grad=True), torch.tensor([2.0, 3.0])
out = weighted_square(x, weight)
assert torch.equal(out, weight * (x * x)), out
out.sum().backward()
torch.testing.assert_close(x.grad, (2 * weight * x).detach())
assert isinstance(pick, Operator)
compiled = torch.compile(weighted_square, fullgraph=True, backend="aot_eager")
assert torch.equal(compiled(x, weight), out)
assert torch.equal(torch.vmap(weighted_square, (0, None))(x[None], weight)[0], out)
assert pick(torch.arange(4.0), torch.tensor([3, 1])).tolist() == [3, 1]
for arguments in (
    (torch.ones(3), torch.tensor([7])),
    (torch.tensor([-1.0, 1.0]), torch.tensor([1, 0])),
    (torch.ones(3, dtype=torch.float64), torch.tensor([0])),
):
    try:
        pick(*arguments)
    except RuntimeError as error:
        print(error)
    else:
        raise AssertionError(arguments)
print("calls", weighted_square.kernels["cpu"].calls)
print("library", pick.kernels["cpu"].library.path)
"""


@pytest.fixture(scope="module", autouse=True)
def _no_nvcc() -> Iterator[None]:
    """Where nvcc is, it takes a minute for all GPUs."""

    def missing(what: str) -> None:
        raise MissingError(f"{what}: needs the CUDA compiler nvcc")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvcc, "usable_nvcc", missing)
        yield


@pytest.fixture(scope="module")
def said() -> list[str]:
    """What was said while `wheel` was built."""
    return []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, said: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return build_wheel(SAMPLE, folder, levels=[LEVEL], say=said.append)


@pytest.fixture
def site(wheel: Path, tmp_path: Path) -> Path:
    """The wheel, installed into a folder of its own."""
    folder = tmp_path / "site"
    install(wheel, folder)
    return folder


def install(wheel: Path, folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, "--no-deps", "--target", str(folder), str(wheel)], check=True)


def run(site: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env={**os.environ, "PYTHONPATH": str(site), **environment},
        capture_output=True,
        text=True,
    )


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.slow
def test_it_works_without_opsmith_a_compiler_or_a_cache(site: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run(
        site, WITHOUT + USE, PATH=str(empty), HOME=str(empty), OPSMITH_CACHE=str(empty / "cache")
    )
    assert done.returncode == 0, done.stderr
    _, value, thrown, dtype = done.stdout.split("sample::pick: ")
    assert value.startswith("argument 'rows' has value 7 at index 0, expected 0 <= value < 3 (N).")
    assert thrown == "a negative element\n"
    assert dtype.startswith("argument 'x' has dtype float64, expected float32.")
    assert f"libraries/{LEVEL}/" in done.stdout
    assert "calls 3" in done.stdout
    assert not (empty / "cache").exists()


@pytest.mark.slow
def test_torch_writes_its_standard_forms_into_onnx_without_opsmith(site: Path) -> None:
    pytest.importorskip("onnxscript")
    text = """
        import torch
        from sample_ops import weighted_square, pick
        from sample_ops._opsmith import onnx_translations

        class Model(torch.nn.Module):
            def forward(self, x, weight):
                return weighted_square(x, weight)

        program = torch.onnx.export(
            Model().eval(), (torch.randn(3, 2), torch.ones(2)), dynamo=True, verbose=False,
            opset_version=20, custom_translation_table=onnx_translations(opset=20),
        )
        print([node.op_type for node in program.model.graph])
        x, weight = torch.randn(3, 2), torch.randn(2)
        from onnx.reference import ReferenceEvaluator
        names = [value.name for value in program.model.graph.inputs]
        feed = dict(zip(names, (x.numpy(), weight.numpy())))
        (found,) = ReferenceEvaluator(program.model_proto).run(None, feed)
        torch.testing.assert_close(torch.from_numpy(found), weighted_square(x, weight))
        try:
            onnx_translations(pick)
        except RuntimeError as error:
            print(error)
    """
    done = run(site, WITHOUT + textwrap.dedent(text))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "['Mul', 'Mul']",
        "sample::pick: says nothing of standard ONNX operators; pick.register_onnx is the way to "
        "say it",
    ]


@pytest.mark.slow
def test_with_opsmith_its_operators_are_opsmiths_and_nothing_is_compiled(
    site: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    text = """
        import opsmith, sample_ops
        from opsmith.operators.importing import import_operators
        names = [operator.name for operator in import_operators("sample_ops").operators]
        assert "sample::pick" in names, names
        assert isinstance(sample_ops.pick, opsmith.Operator)
        print(sample_ops.pick.build("cpu")[0])
    """
    done = run(site, text, OPSMITH_CACHE=str(cache), PATH="")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(site / "sample_ops" / "_opsmith"))
    assert not (cache / "libraries" / "sample__pick__cpu").exists()


@pytest.mark.slow
def test_a_source_that_was_changed_is_compiled_again(site: Path, tmp_path: Path) -> None:
    source = site / "sample_ops" / "kernels" / "pick.cpp"
    source.write_text(source.read_text().replace("a negative element", "below zero"))
    text = "import sample_ops; print(sample_ops.pick.build('cpu')[0])"
    done = run(site, text, OPSMITH_CACHE=str(tmp_path / "cache"))
    assert done.stdout.startswith(str(tmp_path / "cache")), done.stderr
    alone = run(site, WITHOUT + text)
    assert (
        "sample::pick (cpu): no library came with" in alone.stderr
        and "for pick.cpp as it is. To compile it, pip install opsmith." in alone.stderr
    )


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
    assert [line.split(": ")[1].split(">")[0] for line in needs] == ["torch", "jaxtyping", "numpy"]
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
        "sample::weighted_square (cuda): is in Triton, which compiles it where it is called; its "
        "Python comes along",
        'sample::negated (cpu): left out, for api="torch" binds to one PyTorch; its source comes '
        "along, and is compiled where opsmith is",
        "sample::pick (cuda): left out, its source comes along: it needs the CUDA compiler nvcc",
    ]
    files = contents(wheel)
    for place in ("kernels/pick.cu", "kernels/negated.cpp", "in_triton.py"):
        assert f"sample_ops/{place}" in files


@pytest.mark.slow
def test_a_call_of_what_it_does_not_hold_says_how_to_get_it(site: Path) -> None:
    text = """
        import torch, sample_ops
        calls = (
            lambda: sample_ops.negated(torch.ones(2)),
            lambda: sample_ops.pick.build("cuda"),
            lambda: sample_ops.weighted_square.kernels["cuda"].kernel.function,
        )
        for call in calls:
            try:
                call()
            except Exception as error:
                print(type(error).__name__, error)
    """
    done = run(site, WITHOUT + textwrap.dedent(text))
    source, cuda, in_triton = done.stdout.splitlines()
    kernels = site / "sample_ops" / "kernels"
    assert source == (
        'BuildError sample::negated (cpu): negated.cpp has api="torch", which binds to one '
        f"PyTorch, so no library came with {kernels}. To compile it, pip install opsmith."
    )
    assert cuda == (
        f"BuildError sample::pick (cuda): no library came with {kernels} for pick.cu as it is. "
        "To compile it, pip install opsmith."
    )
    if importlib.util.find_spec("triton") is None:
        assert in_triton.startswith("MissingError sample::weighted_square (cuda): ")


@pytest.mark.slow
def test_with_nvcc_it_holds_libraries_for_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        USABLE_NVCC("this test")
    except MissingError as error:
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
    _, said = choice.choose(found, find_platform("x86_64"))
    assert (
        "sample::pick (cuda): left out, for nvcc calls this machine's compiler, and --platform "
        "native has that; its source comes along" in said
    )


def test_custom_classes_are_refused_with_the_reason(tmp_path: Path) -> None:
    source = tmp_path / "wheel_of_a_class.py"
    source.write_text(
        textwrap.dedent("""
            import opsmith
            import torch
            from jaxtyping import Float
            from torch import Tensor

            @opsmith.op("wheel_class::halve")
            def halve(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
                return x / 2

            @opsmith.custom_class("wheel_class::Scale")
            class Scale:
                by: float

                def run(self, x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
                    return x * self.by
        """)
    )
    with pytest.raises(
        ExportError,
        match=r"^wheel_class::Scale: is a custom class, whose library binds to one PyTorch, so no "
        "wheel carries it",
    ):
        build_wheel(source, tmp_path)


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
def test_two_builds_are_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    assert build_wheel(SAMPLE, tmp_path, levels=[LEVEL]).read_bytes() == wheel.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == [wheel.name]


@pytest.mark.slow
def test_two_packages_with_operators_of_one_name_are_told_apart(wheel: Path, site: Path) -> None:
    other = site / "other_ops"
    shutil.copytree(site / "sample_ops", other)
    for path in other.glob("*.py"):
        path.write_text(path.read_text().replace("sample_ops", "other_ops"))
    done = run(site, WITHOUT + "import sample_ops, other_ops")
    first, second = (site / name / "squares.py" for name in ("sample_ops", "other_ops"))
    line = next(
        number for number, text in enumerate(first.read_text().splitlines(), 1) if "@op(" in text
    )
    assert (
        "sample::weighted_square: PyTorch already has an operator of this name, declared in "
        f"{first}:{line}. Give yours, declared in {second}:{line}, another name." in done.stderr
    )


@pytest.mark.slow
def test_hugging_faces_layout_holds_one_package_under_any_name(tmp_path: Path) -> None:
    folder = build_folder(SAMPLE, tmp_path, levels=[LEVEL])
    assert folder.parent == tmp_path / "build"
    assert folder.name == f"torch-stable-abi210-cpu-{platform.machine()}-linux"
    metadata = json.loads((folder / "metadata.json").read_text())
    assert metadata["name"] == "sample-ops" and metadata["version"] == 1
    digests = metadata["digest"]["files"]
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
            {metadata["id"]!r}, {str(folder / "__init__.py")!r}
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


def test_imports_of_the_package_itself_become_relative() -> None:
    def relative(text: str) -> str:
        return carried.relative(text, Path("inner/module.py"), "pack")

    assert relative("from pack.a import b as c\nfrom pack import d\n") == (
        "from ..a import b as c\nfrom .. import d\n"
    )
    assert relative("import package, os\nfrom . import x\n") == (
        "import package, os\nfrom . import x\n"
    )
    with pytest.raises(ExportError, match=r"^inner/module\.py, line 1: imports pack by its name"):
        relative("import pack.a\n")


@pytest.mark.slow
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
    here = [path for path in sys.path if path and not path.startswith(str(SAMPLE))]
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


@pytest.mark.parametrize(
    ("text", "adapted"),
    [
        ("import opsmith\n", "from .. import _opsmith as opsmith\n"),
        ("import os, opsmith as o\n", "import os; from .. import _opsmith as o\n"),
        ("from opsmith import (\n  op,\n)\nx = 1\n", "from .._opsmith import op\n\n\nx = 1\n"),
        ("if True:\n    from opsmith import op as f  # why\n",
         "if True:\n    from .._opsmith import op as f  # why\n"),
        ("import numpy\nfrom . import opsmith\n", "import numpy\nfrom . import opsmith\n"),
        ('"""import opsmith"""\n', '"""import opsmith"""\n'),
        ("é = 1; import opsmith\n", "é = 1; from .. import _opsmith as opsmith\n"),
    ],
)  # fmt: skip
def test_imports_of_opsmith_become_those_of_what_came_along(text: str, adapted: str) -> None:
    assert carried.adapted(text, Path("inner/module.py")) == adapted


def test_an_import_that_no_wheel_carries_is_refused() -> None:
    with pytest.raises(ExportError, match=r"a\.py, line 2: imports opsmith\.testing, and a wheel"):
        carried.adapted("x = 1\nimport opsmith.testing\n", Path("a.py"))


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


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An installed package with one kernel, whose libraries are only listed."""
    folder = tmp_path / "pack"
    (folder / "_opsmith" / "libraries").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "k.cpp").write_text("//\n")
    entries = []
    for level in ("low", "high"):
        library = folder / "_opsmith" / "libraries" / f"{level}.so"
        library.write_bytes(level.encode())
        entries.append(
            {
                "source": "k.cpp",
                "operator": "a::b",
                "device": "cpu",
                "machine": machine.platform_name().partition("-")[2],
                "level": level,
                "needs": [level],
                "file": f"libraries/{level}.so",
                "sha256": hashlib.sha256(level.encode()).hexdigest(),
            }
        )
    entries[1]["needs"] = ["low", "high"]
    sources = {"k.cpp": hashlib.sha256(b"//\n").hexdigest()}
    listed = {"opsmith": "0", "sources": sources, "libraries": entries}
    (folder / "_opsmith" / "libraries.json").write_text(json.dumps(listed))
    return folder


def test_the_library_for_the_highest_level_of_this_processor_is_taken(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def processor(*has: str) -> None:
        monkeypatch.setattr(machine, "lacking", lambda needs: sorted(set(needs) - set(has)))

    def found(device: str = "cpu") -> str | None:
        path = shipped.find(package / "k.cpp", "a::b", device)
        return None if path is None else path.stem

    processor("low", "high")
    assert (found(), found("cuda")) == ("high", None)
    processor("low")
    assert found() == "low"
    processor()
    with pytest.raises(
        MissingError, match=r"a::b \(cpu\): pack has libraries for high, low, and .* without low\. "
    ):
        found()
    processor("low")
    (package / "_opsmith" / "libraries" / "low.so").write_bytes(b"other")
    with pytest.raises(BuildError, match=r"low\.so is damaged\. Install the package again\."):
        found()
    (package / "k.cpp").write_text("// changed\n")
    assert found() is None
