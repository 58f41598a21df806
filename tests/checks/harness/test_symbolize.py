"""The place of a fault is the user's line, in the kernel's folder or beside it."""

from pathlib import Path
from types import SimpleNamespace

import pytest

import opsmith
from opsmith.checks.harness.symbolize import innermost

HEADER = Path(opsmith.__file__).parent / "kernels/include/opsmith/cuda.h"


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ((f"{HEADER}:7", "/elsewhere/common.h:5", "/kernels/f.cu:9"), "/kernels/f.cu:9"),
        ((f"{HEADER}:7", "/elsewhere/common.h:5", "??:0"), "/elsewhere/common.h:5"),
        ((f"{HEADER}:7", "??:0"), f"{HEADER}:7"),
        (("??:0",), ""),
    ],
)
def test_a_line_of_the_user_comes_before_those_of_our_headers(tmp_path, monkeypatch, lines, place):
    tool = tmp_path / "addr2line"
    tool.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    build = SimpleNamespace(library="f.so", source=Path("/kernels/f.cu"), with_lines=lambda: "f.so")
    assert innermost(["7f20 f.so", "7f40 other.so"], build) == place
