"""A folder of the gallery, and the headers beside the folders, work in another project."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[2] / "gallery"
FOLDERS = sorted(path.parent for path in GALLERY.glob("*/__init__.py"))
OUTSIDE = re.compile(r'^\s*#include "\.\./(.+)"', re.MULTILINE)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_folder_needs_only_the_headers_beside_it(folder):
    for source in folder.glob("*.[ch]*"):
        for name in OUTSIDE.findall(source.read_text()):
            assert (GALLERY / name).parent == GALLERY, source
            assert (GALLERY / name).suffix in (".h", ".cuh"), source
    for module in folder.glob("*.py"):
        assert "gallery." not in module.read_text(), module


def test_a_folder_that_is_copied_is_imported(tmp_path):
    shutil.copytree(GALLERY / "deform_conv2d", tmp_path / "deform_conv2d")
    command = [sys.executable, "-m", "opsmith", "show", "deform_conv2d/deform_conv2d.py"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "vision::deform_conv2d" in shown.stdout
