"""A target of another package: what the page on writing one promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import opsmith
from opsmith.cli import doctor
from opsmith.targets import all_targets, get_target, target_names
from opsmith.targets.exporting import registry as target_registry

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "targets.md"
FILES = re.compile(r"^`([\w/]+\.(?:py|toml))`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMANDS = re.compile(r"^(opsmith \S.*?)(?:  +\S.*)?$", re.MULTILINE)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for ``sys.path`` into which the page's package was installed."""
    folder = tmp_path_factory.mktemp("outside")
    source, site = folder / "source", folder / "site"
    files = dict(FILES.findall(PAGE.read_text()))
    assert set(files) == {"pyproject.toml", "opsmith_pt2/__init__.py", "model.py"}
    (source / "opsmith_pt2").mkdir(parents=True)
    for name in ("pyproject.toml", "opsmith_pt2/__init__.py"):
        (source / name).write_text(files[name])
    site.mkdir()
    (site / "model.txt").write_text(files["model.py"])
    build = "from setuptools import build_meta; build_meta.build_wheel('..')"
    done = subprocess.run([sys.executable, "-c", build], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # What pip does with a wheel.
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        wheel.extractall(site)
    return site


@pytest.mark.long
def test_a_target_of_another_package_is_like_our_own(installed, tmp_path):
    (tmp_path / "model.py").write_text((installed / "model.txt").read_text())
    np.save(tmp_path / "x.npy", np.array([[1, -2, 3]] * 4, np.float32))
    path = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    said = {}
    for command in COMMANDS.findall(PAGE.read_text())[:5]:
        done = subprocess.run(
            [sys.executable, "-m", *command.split()],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, "TERMINAL_WIDTH": "100"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        said[command.split()[1]] = said.get(command.split()[1], "") + done.stdout
    assert "pt2  torch.export\n    see https://example.org/opsmith-pt2\n" in said["export"]
    assert "    --note …  a text to keep beside the program" in said["export"]
    assert "docs_targets::scale_rows: inline, 1 call" in said["export"]
    assert re.search("✓ +pt2 +target torch.export", said["doctor"])
    assert said["run"] == "output: float32 (4, 3)\n"
    assert re.search("docs_targets::scale_rows.*passed", said["check"], re.DOTALL)
    assert (tmp_path / "dist" / "NOTE.txt").read_text() == "hello"


@pytest.fixture
def entry_point(tmp_path, monkeypatch) -> Iterator[object]:
    """Write a package with one entry point, as if it were installed."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, value: str, text: str) -> None:
        (tmp_path / "outside_targets.py").write_text(text)
        info = tmp_path / "outside_targets-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-targets\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[opsmith.targets]\n{name} = {value}\n")
        target_registry._found.cache_clear()

    yield write
    sys.modules.pop("outside_targets", None)
    target_registry._found.cache_clear()


NAMED = """
from opsmith.targets import ModelTarget

class Other(ModelTarget):
    name = {name!r}
    title = "Other"
    def export_model(self, model, folder, options): ...
    def load_model(self, artifact): ...

TARGET = Other()
"""


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("broken", "1 / 0", "importing outside_targets:TARGET raised ZeroDivisionError: division"),
        ("broken", "TARGET = 3", "outside_targets:TARGET has type int, expected Target"),
        ("broken", NAMED.format(name="x"), "outside_targets:TARGET has the name 'x'"),
        ("onnx", NAMED.format(name="onnx"), "there is another of this name"),
    ],
)
def test_a_broken_target_is_named_with_its_package_and_stops_no_other(
    entry_point, name, text, words
):
    entry_point(name, "outside_targets:TARGET", text)
    message = f"the target {name!r} of the package 'outside-targets' cannot be used: {words}"
    with pytest.warns(UserWarning, match=re.escape(message)):
        names = target_names()
    assert {"aotinductor", "onnx", "onnxruntime"} <= set(names)
    assert type(get_target("onnx")).__module__ == "opsmith.targets.onnx"
    if name == "broken":
        with pytest.raises(opsmith.OpsmithError, match=re.escape(message)):
            get_target(name)
    rows = [row for row in doctor.examine() if row.name == name and not row.ok]
    assert [row.note.startswith(message) for row in rows] == [True]


def test_a_target_of_another_package_is_listed_in_its_place(entry_point):
    entry_point("beside", "outside_targets:TARGET", NAMED.format(name="beside"))
    names = [target.name for target in all_targets()]
    assert "beside" in names and names == sorted(names)
