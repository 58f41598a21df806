"""A TorchBind class of somebody else: its object travels in the package, with its state."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from aoti_models import export

import opsmith
from opsmith import targets
from opsmith.kernels import Recipe
from opsmith.targets.aotinductor.runtime import build_runner

pytestmark = pytest.mark.slow  # a library that includes PyTorch's headers, and a package

SOURCE = Path(__file__).parent / "sources" / "tally.cpp"


class FakeTally:
    """Stands for an object in a trace."""

    def __init__(self, count: int) -> None:
        self.count = count

    @classmethod
    def __obj_unflatten__(cls, fields: Sequence[tuple[str, Any]]) -> FakeTally:
        return cls(**dict(fields))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)


class Keeping(torch.nn.Module):
    """Holds an object that every call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.tally = torch.classes.aoti_foreign_class.Tally(40)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tally.forward(x)


@pytest.fixture(scope="module")
def library() -> Path:
    """The library that defines the class; this process has it, with a fake class."""
    path = Recipe("foreign_class", [SOURCE], torch="full", flags=("-O0",)).build()
    torch.ops.load_library(path)
    torch._library.register_fake_class("aoti_foreign_class::Tally", FakeTally)
    return path


@pytest.fixture(scope="module")
def artifact(library: Path, tmp_path_factory: pytest.TempPathFactory) -> targets.Artifact:
    """`Keeping`, exported and verified, which does not change its object."""
    model = Keeping()
    out = tmp_path_factory.mktemp("foreign_class") / "out"
    artifact = export(model, (torch.ones(3),), out, libraries=[library])
    assert model.tally.count == 40
    return artifact


def test_each_loaded_package_has_an_object_of_its_own(artifact: targets.Artifact) -> None:
    assert artifact.manifest.agreement is not None
    first, second = opsmith.load(artifact.folder), opsmith.load(artifact.folder)
    assert [first(torch.ones(3))[0].item() for _ in range(3)] == [41, 42, 43]
    assert second(torch.ones(3))[0].item() == 41


LOADING = """
import sys, torch, opsmith
loaded = opsmith.load(sys.argv[1])
print([loaded(torch.ones(3))[0].item() for _ in range(2)])
"""


@pytest.mark.long  # builds the program
def test_the_package_brings_the_class_to_other_processes(
    artifact: targets.Artifact, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", LOADING, artifact.folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "[41.0, 42.0]\n", done.stderr
    torch.save(torch.ones(3), tmp_path / "in.pt")
    words = [build_runner(), artifact.folder, tmp_path / "in.pt", "--output", tmp_path / "out.pt"]
    done = subprocess.run(words, capture_output=True, text=True, env={})
    assert done.returncode == 0, done.stderr
    (got,) = torch.load(tmp_path / "out.pt", weights_only=True)
    assert got.tolist() == [41, 41, 41]
