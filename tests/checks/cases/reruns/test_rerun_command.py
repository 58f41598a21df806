"""Name the file that the user wrote in what repeats a failure, for adopted operators as well."""

from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.checks.cases.reruns.rerun_command import command_of
from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.reproduction.snippet import repeated
from opsmith.operators.core.source_location import shown_path

torch.library.define("rerun_adopted::double", "(Tensor x) -> Tensor")
torch.library.impl("rerun_adopted::double", "CompositeExplicitAutograd")(lambda x: x * 2)


@opsmith.adopt("rerun_adopted::double")
def empty(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]: ...


class Triple(torch.autograd.Function):
    """`x`, three times."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 3


function = opsmith.adopt(Triple, "rerun_adopted::triple")


@pytest.mark.parametrize("name", ["empty", "function"])
def test_a_failure_of_an_adopted_operator_is_repeated_by_its_own_file(name: str) -> None:
    (subject, *_) = subjects_of(globals()[name])
    command = command_of(subject, "fake", Settings())
    assert command.startswith(f"opsmith check {shown_path(__file__)} --check fake")
    python = repeated(subject, "fake", Settings())
    assert f"from {Path(__file__).stem} import {name} as op" in python
