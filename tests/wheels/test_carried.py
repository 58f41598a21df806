"""The modules that come along: what becomes of their imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith.errors import ExportError
from opsmith.wheels import carried


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
