"""The modules that come along: what becomes of their imports."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from wheel_samples import WITHOUT, run

from opsmith.errors import ExportError
from opsmith.wheels import carried

PACKAGE = """
from typing import Annotated

from jaxtyping import Float
from torch import Tensor, cat

import opsmith


def declare(name, shape):
    @opsmith.op(f"carried::{name}")
    def scaled(x: Float[Tensor, shape], w: Float[Tensor, "C"]) -> Float[Tensor, shape]:
        return x * w

    return scaled


scaled = declare("scaled", "N C")


@opsmith.op("carried::halved", autograd="reference")
def halved(
    x: Annotated[Float[Tensor, "N+1"], opsmith.Between(0, "N")],
    size: Annotated[Float[Tensor, "N"], opsmith.NonDifferentiable()],
) -> Float[Tensor, "max(N,1)"]:
    return x[:-1] / 2


@opsmith.op("carried::halved_backward")
def halved_backward(
    grad: Float[Tensor, "max(N,1)"], size: Float[Tensor, "N"]
) -> Float[Tensor, "N+1"]:
    return cat([grad, grad[:1] * 0]) / 2


halved.register_backward(halved_backward, grads={"x": 0})
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Where a package ``pack`` lies as a wheel has it, but for libraries."""
    names = ["carried::scaled", "carried::halved", "carried::halved_backward"]
    files = {**carried.modules(names), "__init__.py": carried.adapted(PACKAGE, Path("pack.py"))}
    for place, text in files.items():
        path = tmp_path / "pack" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


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


@pytest.mark.slow
def test_importing_a_package_parses_no_shape_and_loads_only_what_declarations_need(
    package: Path,
) -> None:
    text = """
        import sys
        import pack
        from pack._opsmith.signature.sizes import shapes

        assert not shapes._parsed.cache_info().misses
        late = "calls fake folding gate refusal shipped torch_onnx validation validity vmap"
        loaded = {name.split(".")[-1] for name in sys.modules if name.startswith("pack.")}
        print(sorted(loaded & set(late.split())), len(loaded))

        import torch
        from pack._opsmith import Cost, onnx_translations

        assert Cost(bytes=1).bytes == 1 and onnx_translations() == {}
        x = torch.ones(2, 3)
        assert torch.equal(pack.scaled(x, x[0]), x) and shapes._parsed.cache_info().misses
        try:
            pack.scaled(x, torch.ones(2))
        except RuntimeError as error:
            print(error)
        from pack._opsmith import nothing
    """
    done = run(package, WITHOUT + textwrap.dedent(text))
    assert done.stdout, done.stderr
    first, *refused, bound = done.stdout.splitlines()
    assert first.startswith("[] "), done.stderr
    assert int(first.removeprefix("[] ")) < 65
    assert refused[0].startswith("carried::scaled: argument 'w' does not fit"), done.stdout
    assert "bound so far" in bound
    assert "cannot import name 'nothing' from 'pack._opsmith'" in done.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("N C+", "dimension 'C+': 'C+' is not an expression"),
        ("N C D%2", "dimension 'D%2' reads 'D', which no argument binds"),
    ],
)
def test_what_a_package_declares_otherwise_than_when_it_was_built_is_checked(
    package: Path, shape: str, said: str
) -> None:
    text = f"pack.declare('other', {shape!r})"
    said = f"carried::other: parameter 'x: Float[Tensor, \"{shape}\"]': {said}"
    assert said in run(package, f"{WITHOUT}import pack; {text}").stderr
    # In the words of opsmith itself.
    assert said in run(package, f"import pack; {text}").stderr


@pytest.mark.long  # test_installed.py::test_it_works_without_... differentiates
def test_what_was_checked_when_a_package_was_built_is_differentiated_as_declared(
    package: Path,
) -> None:
    text = """
        import torch
        import pack

        x = torch.rand(3, requires_grad=True)
        pack.halved(x, torch.ones(2)).sum().backward()
        assert x.grad.tolist() == [0.5, 0.5, 0], x.grad
    """
    done = run(package, WITHOUT + textwrap.dedent(text))
    assert done.returncode == 0, done.stderr
