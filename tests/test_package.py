"""What `pip install opsmith` brings, and what it leaves alone."""

import ast
import builtins
import importlib
import inspect
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from torch import Tensor

import opsmith

REPOSITORY = Path(__file__).parents[1]
PUBLIC = ("opsmith", "opsmith.testing", "opsmith.checks", "opsmith.bench", "opsmith.targets")


@pytest.fixture(scope="module")
def distributions(tmp_path_factory) -> Path:
    """A folder with a wheel and a source distribution, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("distributions")
    copy = folder / "copy"
    litter = shutil.ignore_patterns(".*", "*.egg-info", "__pycache__")

    def ignore(folder: str, names: list[str]) -> set[str]:
        made = {"build", "dist"} if Path(folder) == REPOSITORY else set()
        return {*litter(folder, names), *made.intersection(names)}

    shutil.copytree(REPOSITORY, copy, ignore=ignore)
    script = (
        "from setuptools import build_meta\n"
        "build_meta.build_wheel('..')\n"
        "build_meta.build_sdist('..')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def sources() -> set[str]:
    """Every file of the package that is not Python's own litter."""
    packages = (REPOSITORY / "opsmith", REPOSITORY / "emulators")
    files = (path for folder in packages for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(REPOSITORY)) for path in files if "__pycache__" not in path.parts}


@pytest.mark.slow
def test_a_wheel_holds_every_file_of_the_package(distributions):
    with zipfile.ZipFile(next(distributions.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    assert sources() <= names
    assert {name.partition("/")[0] for name in names} == {
        "emulators",
        "opsmith",
        "pytest_opsmith.py",
        next(name for name in names if name.endswith("/METADATA")).partition("/")[0],
    }


@pytest.mark.slow
def test_a_source_distribution_can_be_tested(distributions):
    with tarfile.open(next(distributions.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert sources() <= names
    for file in ("Makefile", "constraints.txt", "tests/test_package.py", "gallery/__init__.py"):
        assert file in names


def test_installing_moves_no_torch(distributions):
    with zipfile.ZipFile(next(distributions.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        metadata = message_from_bytes(wheel.read(name))
    requirements = metadata.get_all("Requires-Dist")
    assert [r for r in requirements if r.startswith("torch")] == ["torch>=2.10"]
    # NVIDIA's compiler is parted into wheels that fit each other in one release alone.
    requirements = [r for r in requirements if not r.endswith('extra == "cuda"')]
    bounded = [r for r in requirements if re.search(r"<|==|~=", r.partition(";")[0])]
    assert bounded == [], "an upper bound of ours may move what is installed"


def test_every_requirement_is_pinned_in_the_constraints(distributions):
    with zipfile.ZipFile(next(distributions.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/METADATA"))
        metadata = message_from_bytes(wheel.read(name))
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = {normal_name(line) for line in lines if not line.startswith("#")}
    wanted = {normal_name(requirement) for requirement in metadata.get_all("Requires-Dist")}
    assert wanted - {"opsmith"} <= pinned


def normal_name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


def test_every_public_name_is_what_type_checkers_are_told():
    tree = ast.parse((REPOSITORY / "opsmith" / "__init__.pyi").read_text())
    imports = [one for one in tree.body if isinstance(one, ast.ImportFrom)]
    homes = {alias.name: one.module for one in imports for alias in one.names}
    assert sorted(homes) == sorted(opsmith.__all__)
    for name, module in homes.items():
        assert getattr(opsmith, name) is getattr(importlib.import_module(module), name)
        assert name in dir(opsmith)
    with pytest.raises(AttributeError, match="module 'opsmith' has no attribute 'opp'"):
        _ = opsmith.opp


@pytest.mark.parametrize("module", PUBLIC)
def test_every_error_that_a_public_function_raises_is_public(module):
    home = importlib.import_module(module)
    things = [getattr(home, name) for name in home.__all__]
    members = [member for one in things if inspect.isclass(one) for member in vars(one).values()]
    documented = [getattr(one, "__doc__", None) or "" for one in (*things, *members)]
    named = {
        name for text in documented for name in re.findall(r"^ *(\w+Error): ", text, re.MULTILINE)
    }
    public = {*opsmith.__all__, *home.__all__, *dir(builtins)}
    assert named - public == set()


def test_the_citation_names_this_version():
    cited = (REPOSITORY / "CITATION.cff").read_text()
    assert f"\nversion: {opsmith.__version__}\n" in cited


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_other_systems_than_linux_are_refused_in_one_sentence(system):
    """The system is pretended: what this shows is the words, and that nothing is imported first."""
    said = f"opsmith works on Linux, and this is {system}. On Windows use WSL 2, on macOS a Linux "
    used = f"import sys; sys.platform = {system!r}; import opsmith; opsmith.op"
    done = subprocess.run([sys.executable, "-c", used], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: opsmith.op: {said}")
    ran = f"import sys; sys.platform = {system!r}; from opsmith.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", ran], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {said}")


def test_the_class_that_op_returns_is_public():
    @opsmith.op("package_test::same")
    def same(x: Tensor) -> Tensor:
        return x.clone()

    assert type(same) is opsmith.DefinedOperator
    assert "DefinedOperator" in opsmith.__all__


def test_each_use_of_register_kernel_has_a_signature_and_a_docstring_of_its_own():
    tree = ast.parse(inspect.getsource(sys.modules[opsmith.DefinedOperator.__module__]))
    uses = [
        one
        for one in ast.walk(tree)
        if isinstance(one, ast.FunctionDef)
        and one.name == "register_kernel"
        and "overload" in map(ast.unparse, one.decorator_list)
    ]
    told = [{a.arg for a in (*use.args.args, *use.args.kwonlyargs)} for use in uses]
    assert [names & {"function", "source", "grid", "tvm_ffi"} for names in told] == [
        {"function"},
        set(),
        {"source"},
        {"grid"},
        {"function", "tvm_ffi"},
    ]
    assert len({ast.get_docstring(use) for use in uses} - {None}) == len(uses)
    given = set(inspect.signature(opsmith.DefinedOperator.register_kernel).parameters)
    assert set.union(*told) == given


@pytest.mark.slow
def test_the_packages_that_hold_public_names_are_attributes():
    script = (
        "import opsmith; print([getattr(opsmith, name).__name__ for name in opsmith._PACKAGES])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str([f"opsmith.{name}" for name in opsmith._PACKAGES])
