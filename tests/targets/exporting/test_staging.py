"""What an export that is killed leaves behind."""

import signal
import subprocess
import sys

import pytest

from opsmith.system.scratch import partial_folder
from opsmith.targets.exporting import artifact

_WAITS = """
import sys
from pathlib import Path
from opsmith.system.scratch import partial_folder
with partial_folder(Path(sys.argv[1])) as folder:
    (folder / "model").write_text("half")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def elsewhere(tmp_path):
    """Another process that is exporting to ``dist``, and its folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WAITS, tmp_path / "dist"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        yield process, tmp_path / process.stdout.readline().strip()
        process.kill()


def _partial(folder):
    return [path for path in folder.iterdir() if path.name.endswith(".partial")]


def test_the_next_export_clears_what_a_killed_one_left(elsewhere, tmp_path):
    process, left = elsewhere
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert _partial(tmp_path) == [left]
    with artifact.replacing(tmp_path / "dist", overwrite=False) as folder:
        assert _partial(tmp_path) == [folder]
    assert _partial(tmp_path) == []


@pytest.mark.slow
def test_what_a_living_export_writes_stays(elsewhere, tmp_path):
    _, held = elsewhere
    with partial_folder(tmp_path / "dist"):
        assert (held / "model").read_text() == "half"
    assert _partial(tmp_path) == [held]


def test_what_belongs_to_others_stays(tmp_path):
    other = tmp_path / ".dist2.abc.partial"
    other.mkdir()
    (tmp_path / ".dist.other.partial").mkdir()
    (tmp_path / ".dist.file.partial").write_text("a file")
    with partial_folder(tmp_path / "dist"):
        pass
    assert other.is_dir()
    assert (tmp_path / ".dist.other.partial").is_dir()
    assert (tmp_path / ".dist.file.partial").is_file()


def test_an_artifact_is_replaced_in_one_step(tmp_path, monkeypatch):
    out = tmp_path / "dist"
    for text in ("old", "new"):
        with artifact.replacing(out, overwrite=True) as folder:
            manifest = artifact.Manifest(text, {}).to_json()
            (folder / artifact.MANIFEST).write_text(manifest)
            if text == "new":
                # A kill between two steps would leave no artifact at all.
                monkeypatch.setattr(artifact.os, "rename", lambda *_: pytest.fail("two steps"))
    assert (out / artifact.MANIFEST).read_text() == manifest
    assert list(tmp_path.iterdir()) == [out]
