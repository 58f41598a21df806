"""Temporary folders go, whatever was put into them."""

import os

from opsmith.system.scratch import make_plain, make_scratch, remove


def test_a_folder_goes_with_folders_that_are_closed_or_too_deep():
    folder = make_scratch("test")
    closed = folder / "closed" / "inner"
    closed.mkdir(parents=True)
    (closed / "file").write_text("1")
    (folder / "link").symlink_to("/etc")
    before = os.getcwd()
    try:
        os.chdir(folder)
        for _ in range(2500):  # deeper than Python recurses, and than a path may be long
            os.mkdir("d" * 20)
            os.chdir("d" * 20)
    finally:
        os.chdir(before)
    closed.chmod(0)
    closed.parent.chmod(0)
    remove(folder)
    assert not folder.exists()
    assert os.path.isdir("/etc")
    remove(folder)


def test_a_plain_name_tells_nothing():
    folder = make_plain()
    try:
        assert "opsmith" not in folder.name
        assert folder.suffix == ""
    finally:
        remove(folder)
    assert not folder.exists()
