"""Exports find the operators that are made of others once, and all of them."""

from __future__ import annotations

import pytest
import torch
from torch._export import utils

import opsmith
from opsmith.targets.composite import found_once


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that PyTorch looks for them."""
    found: list[None] = []
    original = utils._materialize_cpp_cia_ops

    def look() -> None:
        found.append(None)
        original()

    monkeypatch.setattr(utils, "_materialize_cpp_cia_ops", look)
    return found


def test_they_are_looked_for_once_in_a_block_and_are_the_same(looks: list[None]) -> None:
    with torch.library._scoped_library("composite_test", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
        plain = utils._collect_all_valid_cia_ops()
        assert len(looks) > 1, "once for each namespace"
        for _ in range(2):
            looks.clear()
            with found_once():
                assert utils._collect_all_valid_cia_ops() == plain
                assert utils._collect_all_valid_cia_ops() == plain
            assert len(looks) == 1
        assert torch.ops.composite_test.twice.default in plain
    looks.clear()
    utils._collect_all_valid_cia_ops()
    assert len(looks) > 1, "PyTorch is as it was before"


class Softplus(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(x)


@pytest.mark.parametrize("target", ["onnx", "onnxruntime"])
def test_an_export_looks_once_for_each_time_that_it_takes_the_program_apart(
    target: str, looks: list[None], tmp_path
) -> None:
    opsmith.export(
        Softplus(), (torch.ones(3),), target=target, out=tmp_path / "out", say=None, verify=False
    )
    assert 1 <= len(looks) <= 2
