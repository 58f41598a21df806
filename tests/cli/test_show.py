"""`opsmith show`: what follows from a declaration, as a tree and as a picture."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

UNSPECIFIED = """
from typing import Annotated

import opsmith
from jaxtyping import Float
from opsmith import Unspecified
from torch import Tensor

@opsmith.op("show::shares")
def shares(
    x: Annotated[Float[Tensor, "N"], Unspecified(nan=True, inf=True)]
) -> Float[Tensor, "N"]:
    return x / x.sum()
"""

AGAINST_TORCH = """
import opsmith
from jaxtyping import Float32
from torch import Tensor

@opsmith.op("show::scale")
def scale(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2

scale.register_kernel("cpu", source="scale.cpp", api="torch")
"""


def branches(text):
    """The lines of a tree without what draws it."""
    return [line.strip(" │├└─") for line in text.splitlines()]


@pytest.fixture
def show(cli, monkeypatch):
    """Show an operator of the gallery."""
    monkeypatch.chdir(REPOSITORY)
    return lambda name, *options: cli("show", f"gallery/{name}/{name}.py", *options)


def test_all_that_follows_is_shown(show):
    outcome = show("bev_pool_v2")
    assert outcome.code == 0
    assert {
        "bev::bev_pool_v2",
        "cpu: gallery/bev_pool_v2/bev_pool_v2.cpp",
        "fake kernel: from the shapes of the results",
        "gradient: bev::bev_pool_v2_backward, recorded without Python where its kernel is compiled",
        "batching: at once, along C",
        "AOTInductor: aotinductor, aotinductor-cpp",
    } <= set(branches(outcome.stdout))


def test_values_for_which_results_are_unspecified_are_shown(cli, tmp_path):
    (tmp_path / "shares.py").write_text(UNSPECIFIED)
    lines = branches(cli("show", str(tmp_path / "shares.py")).stdout)
    assert "results are unspecified for NaN and infinity of 'x'" in lines
    assert "checks of arguments: from the declaration (dtypes, shapes)" in lines


def test_conditions_on_sizes_are_shown(cli, tmp_path):
    text = UNSPECIFIED.replace('"show::shares"', '"show::even", where=("N % 2 == 0", "N > 2")')
    (tmp_path / "shares.py").write_text(text)
    lines = branches(cli("show", str(tmp_path / "shares.py")).stdout)
    assert (
        "checks of arguments: from the declaration (dtypes, shapes, conditions N % 2 == 0; N > 2)"
        in " ".join(lines)
    )


def test_sharding_rules_are_shown_and_what_has_none_says_why(show):
    lines = " ".join(line.removeprefix("– ") for line in branches(show("bev_pool_v2").stdout))
    forward, _, backward = lines.partition("bev::bev_pool_v2_backward schema")
    assert 'parallel_dims=("C",): feat Shard(4) → Shard(4)' in forward
    assert 'linear_in=("depth",): depth Partial() → Partial()' in forward
    assert (
        "P: the values of 'interval_starts' are compared with P, which would be smaller in a part"
    ) in forward
    assert "as the backward of bev::bev_pool_v2: what its rules leave to each rank" in backward


def test_what_does_not_follow_says_why(show):
    lines = [line.removeprefix("– ") for line in branches(show("numpy_sin").stdout)]
    assert "AOTInductor: a package runs without Python, and the kernel is Python" in lines
    assert "gradient: none declared; asking for one raises" in lines


def test_a_kernel_for_another_device_is_no_python_and_its_file_is_not_advised(show):
    lines = [line.removeprefix("– ") for line in branches(show("add_custom").stdout)]
    assert {
        "AOTInductor: Inductor makes no code for npu",
        "Python: a Python module calls kernels for the CPU, and this one is for npu.",
        "ONNX Runtime: onnx-inline (the reference), onnx-inline-torchscript (the reference)",
    } <= set(lines)
    assert "add_custom.cpp" not in "".join(lines).partition("runtimes")[2]


def test_a_runtime_that_takes_the_reference_says_that_the_kernel_does_not_run_there(cli, tmp_path):
    (tmp_path / "scale.cpp").write_text("")
    (tmp_path / "show_scale.py").write_text(AGAINST_TORCH)
    shown = " ".join(branches(cli("show", tmp_path / "show_scale.py").stdout))
    assert (
        "ONNX Runtime: onnx-inline, onnx-inline-torchscript; the cpu kernel does not run there, as "
        'it is written against PyTorch (api="torch")'
    ) in shown


def test_a_picture_of_it_is_drawn(show, tmp_path):
    picture = tmp_path / "op.svg"
    outcome = show("my_add", "--svg", picture)
    assert (outcome.code, outcome.stderr) == (0, f"{picture}\n")
    drawn = "".join(ElementTree.parse(picture).getroot().itertext()).replace("\xa0", " ")
    assert "gallery/my_add/my_add.cpp" in drawn
    assert "fake kernel: from the shapes of the results" in drawn
    assert 'url("http' not in picture.read_text()  # a font from the net


def test_a_file_that_is_not_there_is_named(cli):
    outcome = cli("show", "nothing.py")
    assert outcome.code == 2
    assert "nothing.py" in outcome.stderr
