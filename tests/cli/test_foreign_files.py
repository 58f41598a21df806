"""No command deletes or overwrites what it did not write."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import opsmith
from opsmith.errors import ExportError
from opsmith.kernels.libraries import prebuilt
from opsmith.system.files import write_atomically
from opsmith.targets import Artifact
from opsmith.wheels import building, huggingface

OPERATOR = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("foreign::twice")
def twice(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2

twice.register_kernel("cpu", source="twice.cpp")
"""


class _Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


def _export(out: Path) -> None:
    opsmith.export(
        _Model(), (torch.ones(2),), target="onnx", out=out, overwrite=True, verify=False, say=None
    )


@pytest.mark.slow
def test_an_export_leaves_what_others_have_in_its_folder(tmp_path):
    dist = tmp_path / "dist"
    _export(dist)
    own = {path.relative_to(dist) for path in dist.rglob("*")}
    (dist / "my_ops-0.1.0-py3-none-any.whl").write_text("a wheel")
    (dist / "notes" / "deep").mkdir(parents=True)
    (dist / "notes" / "today.txt").write_text("today")
    (dist / "latest").symlink_to("nowhere")
    _export(dist)
    assert (dist / "my_ops-0.1.0-py3-none-any.whl").read_text() == "a wheel"
    assert (dist / "notes" / "today.txt").read_text() == "today"
    assert (dist / "notes" / "deep").is_dir()
    assert os.readlink(dist / "latest") == "nowhere"
    others = {"my_ops-0.1.0-py3-none-any.whl", "notes", "notes/deep", "notes/today.txt", "latest"}
    assert {path.relative_to(dist) for path in dist.rglob("*")} == own | set(map(Path, others))
    assert set(Artifact.open(dist).manifest.files) == {
        path.as_posix() for path in own if path.name != "manifest.json"
    }


def test_a_new_operator_is_written_into_no_folder_that_is_there(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    Path("rows", "mine.txt").write_text("mine")
    for line in (["new", "rows"], ["new", "--package", "rows::scale"]):
        assert cli(*line).code == 2
        assert [path.name for path in Path("rows").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    "line",
    [
        "check twice.py --report notes.md",
        "check twice.py --junit twice.cpp",
        "judge twice.py --candidate twice.cpp --verdict twice.py",
        "bench twice.py --save twice.py",
        "show twice.py --svg twice.cpp",
        "run dist --out twice.py",
        "adopt aten::asinh --out twice.py",
    ],
)
def test_a_report_is_written_over_no_source(line, tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    for name in ("twice.py", "twice.cpp", "notes.md"):
        Path(name).write_text(OPERATOR)
    done = cli(*line.split())
    option, name = line.split()[-2:]
    assert done.code == 2
    assert f"{option}" in done.stderr
    assert f"{name} is a source file; nothing was written" in done.stderr
    assert Path(name).read_text() == OPERATOR


def test_a_temporary_name_of_another_program_is_left_alone(tmp_path):
    other = tmp_path / ".report.html.original"
    other.write_text("mine")
    write_atomically(tmp_path / "report.html", "new")
    assert other.read_text() == "mine"


def test_commands_for_editors_go_over_no_file_of_another_kind(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    Path("twice.py").write_text(OPERATOR)
    Path("twice.cpp").write_text("#include <opsmith/kernel.h>\n")
    Path("compile_commands.json").write_text("// mine\n[]")
    done = cli("build", "twice.py", "--compile-commands")
    assert done.code == 1
    assert "compile_commands.json is no list of commands, and is not overwritten" in done.stderr
    assert Path("compile_commands.json").read_text() == "// mine\n[]"


@pytest.fixture
def unbuilt(tmp_path, monkeypatch):
    """A project whose wheel is there without compiling anything."""

    def build_wheel(source, out, **options):
        with zipfile.ZipFile(out / "some.whl", "w") as archive:
            archive.writestr("some_ops/__init__.py", "")
            listing = f"some_ops/{prebuilt.FOLDER}/{prebuilt.LIST}"
            archive.writestr(listing, '{"sources": {}}')
        return out / "some.whl"

    found = SimpleNamespace(package="some_ops", name="some-ops", version="1.0", table={})
    monkeypatch.setattr(huggingface.project, "read", lambda *_: found)
    monkeypatch.setattr(building, "build_wheel", build_wheel)
    return tmp_path / "project"


def test_hugging_faces_layout_goes_over_no_file_of_others(unbuilt, tmp_path):
    folder = huggingface.build_folder(unbuilt, tmp_path)
    (folder / "mine.txt").write_text("mine")
    assert huggingface.build_folder(unbuilt, tmp_path) == folder
    assert (folder / "mine.txt").read_text() == "mine"
    (folder / "metadata.json").unlink()
    (folder / "__init__.py").write_text("mine")
    with pytest.raises(ExportError, match=r"has a file __init__\.py that no earlier build"):
        huggingface.build_folder(unbuilt, tmp_path)
    assert (folder / "__init__.py").read_text() == "mine"
    assert not (folder / "metadata.json").exists()
