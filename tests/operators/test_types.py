"""Type checkers and editors know an operator's arguments and results, as they know a function's."""

import inspect
import pydoc
import re
import subprocess
import sys

import pytest
from jaxtyping import Float
from torch import Tensor

import opsmith

_RIGHT = '''
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float, Int32
from torch import Tensor

import opsmith
from opsmith import Index


@opsmith.op("typed::pick", parallel_dims=("C",))
def pick(
    x: Float[Tensor, "N C"],
    rows: Annotated[Int32[Tensor, "P"], Index("N")],
    how: Literal["sum", "mean"] = "sum",
) -> tuple[Float[Tensor, "P C"], Float[Tensor, "P"]]:
    """Take rows of x."""
    return x[rows], x[rows].sum(1)


@pick.register_kernel("cpu")
def kernel(x: Tensor, rows: Tensor, how: str) -> tuple[Tensor, Tensor]:
    return x[rows], x[rows].sum(1)


@pick.register_cases(only=True)
def cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield {"x": torch.ones(2, 2), "rows": torch.zeros(1, dtype=torch.int32)}


@pick.register_fake
def fake(x: Tensor, rows: Tensor, how: str) -> tuple[Tensor, Tensor]:
    return x[rows], x[rows, 0]


pick.register_kernel("cuda", source="pick.cu", strided=("x",))


@opsmith.op("typed::drop")
def drop(x: Float[Tensor, "N"], rng: opsmith.Philox = None, p: float = 0.5) -> Float[Tensor, "N"]:
    """Zero some elements."""
    return x * opsmith.philox.bernoulli(rng, 1 - p, x.shape)


dropped = drop(drop(torch.ones(2), p=0.1), torch.Generator(), 0.2) + 1
rows, sums = pick(torch.ones(2, 2), torch.zeros(1, dtype=torch.int32), how="mean")
both: Tensor = rows.sum() + sums.sum()
again: tuple[Tensor, Tensor] = fake(rows, sums, "sum")
'''

#: Each wrong line, with what it is about.
_WRONG = {
    "pick(torch.ones(2, 2))": "rows",
    'pick(torch.ones(2, 2), torch.ones(2), how="max")': "max",
    "pick(torch.ones(2, 2), torch.ones(2), tall=1)": "tall",
    "number: int = pick(torch.ones(2, 2), torch.ones(2))": "int",
    'pick.register_kernal("cpu")': "register_kernal",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typed")
    (folder / "right.py").write_text(_RIGHT.lstrip())
    lines = ["import torch", "from right import pick", *_WRONG]
    (folder / "wrong.py").write_text("\n".join(lines) + "\n")
    return folder


def _said(command, folder) -> str:
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr


@pytest.mark.long
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_type_checker_knows_the_call_and_finds_each_wrong_one(checker, files):
    if checker == "mypy":
        command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir"]
        said = _said([*command, str(files / "cache"), "right.py", "wrong.py"], files)
    else:
        command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable]
        said = _said([*command, "right.py", "wrong.py"], files)
    found = re.findall(r"(\w+)\.py:(\d+):(?:\d+ -)? error: (.*)", said)
    assert {name for name, *_ in found} == {"wrong"}, said
    assert [int(line) for _, line, _ in found] == [3, 4, 5, 6, 7], said
    for (_, _, message), about in zip(found, _WRONG.values(), strict=True):
        assert about in message, said


@opsmith.op("typed::doubled")
def doubled(x: Float[Tensor, "N"], *, times: int = 2) -> Float[Tensor, "N"]:
    """Multiply x by a number."""
    return x * times


def test_help_shows_the_signature_and_the_docstring():
    page = pydoc.plain(pydoc.render_doc(doubled))
    assert "doubled(Tensor x, *, SymInt times=2) -> Tensor" in page
    assert "Multiply x by a number." in page
    assert list(inspect.signature(doubled).parameters) == ["x", "times"]
