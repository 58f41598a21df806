"""Gates that come with a wheel: calls need no Python where PyTorch is one of those it is for."""

from __future__ import annotations

import hashlib
import json
import subprocess
import textwrap
from pathlib import Path

import pytest
import torch
from gate_calls import CALL, RECORDED, SAY
from wheel_samples import LEVEL, WITHOUT, contents, install, run

from opsmith.errors import BuildError, ExportError
from opsmith.kernels.libraries import prebuilt
from opsmith.kernels.toolchain.audit import dynamic_symbols, is_unstable_torch
from opsmith.system import machine
from opsmith.wheels import build_wheel, gates
from opsmith.wheels.platforms import find_platform

HERE = prebuilt.release_of(torch.__version__)
LIST = Path("recorded_ops/_opsmith/libraries.json")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The operators' wheel."""
    folder = tmp_path_factory.mktemp("recorded")
    return build_wheel(RECORDED, folder, levels=[LEVEL])


@pytest.fixture
def place(built: Path, tmp_path: Path) -> Path:
    """Where it is installed."""
    install(built, tmp_path / "site")
    return tmp_path / "site"


def change(site: Path, **entry: str) -> Path:
    """Say otherwise of the gates; their file."""
    listed = json.loads((site / LIST).read_text())
    listed["gates"][0].update(entry)
    (site / LIST).write_text(json.dumps(listed))
    return (site / LIST).with_name("gates") / Path(listed["gates"][0]["file"]).name


@pytest.mark.long
def test_calls_that_record_or_write_run_no_python_and_give_what_python_gives(place: Path) -> None:
    by_gates = run(place, WITHOUT + CALL, PATH="")
    assert by_gates.returncode == 0, by_gates.stderr
    frames, _, given = by_gates.stdout.partition("\n")
    assert (frames, by_gates.stderr) == ("frames 0", "")
    said = run(place, WITHOUT + SAY)
    assert said.stdout == f"calls run in C++, by gates for PyTorch {HERE}\n", said.stderr

    change(place, torch="2.99.0")
    by_python = run(place, WITHOUT + CALL, PATH="")
    assert by_python.returncode == 0, by_python.stderr
    frames, _, expected = by_python.stdout.partition("\n")
    assert int(frames.removeprefix("frames ")) > 2 and not by_python.stderr, by_python.stderr
    assert expected == given
    said = run(place, WITHOUT + SAY)
    assert said.stdout == (
        f"this is PyTorch {torch.__version__} ({machine.platform_name().partition('-')[2]}), and "
        "the package has gates for "
        f"2.99.0 ({find_platform('native').machine}): calls pass through Python\n"
    )


@pytest.mark.long  # a wheel with gates takes a minute; test_of_all_libraries_... looks into one
@pytest.mark.parametrize("problem", ["damaged", "does not load"])
def test_gates_that_do_not_load_are_said_once_and_done_without(place: Path, problem: str) -> None:
    file = change(place)
    file.write_bytes(file.read_bytes() + b"x")
    expected = "is damaged"
    if problem == "does not load":
        command = ["g++", "-shared", "-x", "c++", "-", "-o", str(file)]
        text = "void of_another_pytorch(); void f() { of_another_pytorch(); }"
        subprocess.run(command, input=text, text=True, check=True)
        change(place, sha256=hashlib.sha256(file.read_bytes()).hexdigest())
        expected = "undefined symbol: _Z18of_another_pytorchv"
    done = run(place, WITHOUT + CALL)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line]
    assert len(said) == 1, done.stderr
    assert f"the gates for PyTorch {HERE} do not load, so calls pass through Python" in said[0]
    assert expected in said[0]


@pytest.mark.long
@pytest.mark.parametrize("problem", ["", "made from others", "damaged"])
def test_opsmith_takes_the_gates_that_came_with_a_package(
    place: Path, tmp_path: Path, problem: str
) -> None:
    file = change(place)
    if problem == "made from others":
        change(place, sources="0" * 64)
    elif problem == "damaged":
        file.write_bytes(file.read_bytes() + b"x")
    taken = """
        from opsmith.operators.dispatch.gates import autograd_gate as gate
        assert recorded_ops._opsmith.__name__ == "opsmith"
        print(gate.load() and gate.load()._name, gate.load_recorder() is not None)
    """
    # Without a compiler it has no other.
    nowhere = {"PATH": "", "CXX": "", "OPSMITH_CACHE": str(tmp_path / "cache")}
    done = run(place, CALL + textwrap.dedent(taken), **nowhere)
    assert done.returncode == 0, done.stderr
    expected = "None False" if problem else f"{file} True"
    assert done.stdout.splitlines()[-1] == expected
    said = [line for line in done.stderr.splitlines() if "RuntimeWarning" in line]
    if problem == "damaged":
        wanted = "recorded_ops: its gates do not load, so opsmith builds its own: "
        assert wanted in said[0] and said[0].endswith("is damaged"), done.stderr
    assert len(said) == (problem == "damaged"), done.stderr

    told = run(place, SAY, **nowhere)
    by_its_own = f"calls run in C++, through the gates of recorded_ops for PyTorch {HERE}"
    by_opsmith = (
        f"builds gates for PyTorch {HERE}, since no package brings fitting ones: opsmith doctor "
        "says whether it can"
    )
    expected = by_opsmith if problem else by_its_own
    assert told.stdout == f"opsmith is installed, and {expected}\n", told.stderr


@pytest.mark.slow
def test_of_all_libraries_the_gates_alone_use_what_changes_with_pytorch(
    wheel: Path, tmp_path: Path
) -> None:
    files = contents(wheel)
    (entry,) = json.loads(files["sample_ops/_opsmith/libraries.json"])["gates"]
    here = find_platform("native").machine
    assert (entry["torch"], entry["machine"]) == (HERE, here)
    assert entry["file"] == f"gates/{here}-{HERE}.so"
    unstable = set()
    for name, data in files.items():
        if name.endswith(".so"):
            library = tmp_path / "library.so"
            library.write_bytes(data)
            symbols = dynamic_symbols(library)
            if any(is_unstable_torch(one.name) for one in symbols if not one.defined):
                unstable.add(name)
    assert unstable == {f"sample_ops/_opsmith/{entry['file']}"}
    (name,) = unstable
    assert hashlib.sha256(files[name]).hexdigest() == entry["sha256"]
    assert len(files[name]) < 200_000
    for path in (str(Path.home()), str(Path(torch.__file__).parent)):
        assert path.encode() not in files[name], "where it was built is nobody's business"


def pytorch(folder: Path, version: str) -> Path:
    """A folder that looks like PyTorch."""
    (folder / "include" / "ATen").mkdir(parents=True)
    (folder / "version.py").write_text(f"__version__ = '{version}'\n")
    return folder


def test_gates_are_built_for_the_installed_pytorch_and_for_those_that_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def library(kind, paths):
        path = tmp_path / paths.version
        path.write_text(f"{kind.name} {paths.version}")
        return path

    monkeypatch.setattr(gates, "_library", library)
    monkeypatch.setattr(
        gates, "_download", lambda release, folder: pytorch(folder / "torch", release)
    )
    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path / "cache"))
    other = pytorch(tmp_path / "other", "2.98.0a0+gitabc")
    asked = [gates.find_headers(release) for release in ("2.10.0", str(other), HERE)]
    entries, files = gates.build_gates(asked, find_platform("aarch64"))
    assert [(one["torch"], one["machine"], one["file"]) for one in entries] == [
        ("2.10.0", "aarch64", "gates/aarch64-2.10.0.so"),
        (HERE, "aarch64", f"gates/aarch64-{HERE}.so"),
        ("2.98.0a0+gitabc", "aarch64", "gates/aarch64-2.98.0a0+gitabc.so"),
    ]
    assert files["_opsmith/gates/aarch64-2.10.0.so"] == b"aarch64 2.10.0"


def test_a_wheel_without_gates_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def library(kind, paths):
        raise BuildError("does not compile")

    monkeypatch.setattr(gates, "_library", library)
    said: list[str] = []
    assert gates.build_gates([], find_platform("native"), said.append) == ([], {})
    assert said == [
        f"no gates for PyTorch {torch.__version__}, calls pass through Python: does not compile"
    ]
    with pytest.raises(BuildError):  # it was asked for
        asked = [gates.find_headers(str(pytorch(tmp_path / "torch", "2.98.0")))]
        gates.build_gates(asked, find_platform("native"))


def test_what_is_no_pytorch_is_refused(tmp_path: Path) -> None:
    for asked, said in {
        "2.10": r"^2\.10: is neither a release of PyTorch, as 2\.10\.0, nor a folder$",
        str(tmp_path): r"is no PyTorch: version\.py or include/ATen is missing\.",
    }.items():
        with pytest.raises(ExportError, match=said):
            gates.find_headers(asked)


def test_builds_of_one_release_are_alike_and_others_are_not() -> None:
    assert prebuilt.release_of("2.13.0+cu130") == prebuilt.release_of("2.13.0") == "2.13.0"
    for version in ("2.15.0a0+git1234", "2.15.0.dev20261101+cpu", "2.15.0rc1"):
        assert prebuilt.release_of(version) == version


@pytest.mark.slow
def test_symbols_that_older_systems_do_not_have_are_refused(tmp_path: Path) -> None:
    library = tmp_path / "new.so"
    # std::__throw_bad_array_new_length came with GCC 11.
    text = "namespace std { void __throw_bad_array_new_length(); } void f() { "
    text += "std::__throw_bad_array_new_length(); }"
    command = ["g++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(library)]
    subprocess.run(command, input=text, text=True, check=True)
    with pytest.raises(BuildError) as caught:
        gates._audit(library, "the gates")
    assert str(caught.value) == (
        "the gates need symbols that the C++ library of older systems does not have:\n"
        "  _ZSt28__throw_bad_array_new_lengthv (GLIBCXX_3.4.29)"
    )
    subprocess.run(command, input="void f() { throw 1; }", text=True, check=True)
    gates._audit(library, "the gates")
