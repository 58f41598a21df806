"""`opsmith check NAME --spec SPEC.py` checks operators that know nothing of opsmith."""

import pytest
from jaxtyping import Float
from torch import Tensor

import opsmith

FOREIGN = """
import os
import torch
from torch import Tensor

def define(name):
    return torch.library.custom_op(f"cli_foreign::{name}", mutates_args=())

@define("clip")
def clip(x: Tensor, low: float) -> Tensor:
    return x.clamp(min=low)

@define("clip_all")
def clip_all(x: Tensor, low: float) -> Tensor:
    return x.clamp(min=low) + (x.numel() > 1)

@define("clip_last")
def clip_last(x: Tensor, low: float) -> Tensor:
    os._exit(3)
"""
SPEC = """
import opsmith
import torch
from jaxtyping import Float
from torch import Tensor

def clip(x: Float[Tensor, "*n"], low: float) -> Float[Tensor, "*n"]:
    return torch.where(x < low, low, x).to(x.dtype)

opsmith.op("cli_spec::clip", clip)
opsmith.op("cli_spec::clip_all", clip)

@opsmith.op("cli_spec::clip_last")
def clip_last(x: Float[Tensor, "*n"], low: int) -> Float[Tensor, "*n"]:
    return x
"""
ADOPTS = """
import opsmith
import torch
from jaxtyping import Float
from torch import Tensor

@opsmith.adopt("cli_foreign::clip_last")
def clip_last(x: Float[Tensor, "*n"], low: float) -> Float[Tensor, "*n"]:
    return torch.where(x < low, low, x).to(x.dtype)
"""
QUICK = ("--check", "layouts", "--examples", 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with all files, which are imported once."""
    folder = tmp_path_factory.mktemp("specified")
    texts = {"cli_foreign": FOREIGN, "cli_spec": SPEC, "cli_adopts": ADOPTS}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    """Be in that folder, as somebody who types the command."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))


@pytest.mark.slow
def test_a_right_operator_of_another_library_passes(cli):
    asked = ("cli_foreign::clip", "--spec", "cli_spec.py", "--import", "cli_foreign.py")
    outcome = cli("check", *asked, *QUICK)
    assert outcome.code == 0, outcome.stdout + outcome.stderr
    assert "cli_foreign::clip" in outcome.stdout
    assert "✓  layouts" in outcome.stdout


@pytest.mark.long  # test_check.py::test_what_is_wrong_fails_with_the_command_...
def test_a_wrong_one_fails_with_the_command_that_repeats_it(cli):
    # Its namespace is the name of the module that defines it.
    asked = ("cli_foreign::clip_all", "--spec", "cli_spec.py")
    outcome = cli("check", *asked, "--check", "layouts")
    assert outcome.code == 1, outcome.stdout + outcome.stderr
    assert "cli_foreign::clip_all: check 'layouts' failed" in outcome.stdout
    assert (
        "repeat: opsmith check cli_foreign::clip_all --spec cli_spec.py --import cli_foreign "
        "--check layouts --seed 0\n" in outcome.stdout
    )


@pytest.mark.long
def test_a_spec_may_adopt_the_operator_and_one_that_exits_fails_its_row_alone(cli):
    outcome = cli("check", "cli_foreign::clip_last", "--spec", "cli_adopts.py", *QUICK)
    assert outcome.code == 1, outcome.stdout + outcome.stderr
    assert "ended the process with exit code 3" in outcome.stdout


def test_another_schema_is_refused_with_both(cli):
    outcome = cli("check", "cli_foreign::clip_last", "--spec", "cli_spec.py")
    assert outcome.code == 1
    assert (
        "cli_foreign::clip_last: the declaration differs from the operator.\n"
        "  declared: cli_foreign::clip_last(Tensor x, SymInt low) -> Tensor\n"
        "  operator: cli_foreign::clip_last(Tensor x, float low) -> Tensor\n"
        "  argument 'low' is float, declared as int\n" in outcome.stderr
    )


def test_what_is_missing_is_named(cli):
    outcome = cli("check", "cli_nowhere::clip", "--spec", "cli_spec.py")
    assert outcome.code == 2
    assert "cli_nowhere::clip: PyTorch has no such operator. Import the package" in outcome.stderr
    assert "--import MODULE" in outcome.stderr
    outcome = cli("check", "aten::asinh", "--spec", "cli_spec.py")
    assert outcome.code == 2
    assert (
        "cli_spec.py has no declaration for aten::asinh: it declares cli_spec::clip, "
        "cli_spec::clip_all, cli_spec::clip_last. Call one of them 'asinh', or adopt the operator "
        'there: @opsmith.adopt("aten::asinh")' in outcome.stderr
    )
    outcome = cli("check", "aten::asinh")
    assert outcome.code == 2
    assert "pass the file that" in outcome.stderr
    outcome = cli("check", "cli_spec.py", "--spec", "cli_spec.py")
    assert outcome.code == 2
    assert "with --spec, name operators" in outcome.stderr


def test_what_is_written_into_must_be_declared():
    def relu_(self: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        return self.relu()

    with pytest.raises(
        opsmith.DeclarationError,
        match=r"argument 'self' is written into, and mutates_args says otherwise",
    ):
        opsmith.adopt("aten::relu_")(relu_)
