"""A C++ program that calls a package with what it does not take: an exception that says so."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from opsmith import targets
from opsmith.targets.aotinductor.runtime import SOURCES, build_runner

# It builds a program of its own; test_runner.py::test_inputs_that_do_not_fit and others state most.
pytestmark = pytest.mark.long

# Its command line: whether opsmith's class or PyTorch's loader is called, and the artifact.
PROGRAM = """
#include "opsmith_artifact.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <iostream>

using Inputs = std::vector<at::Tensor>;

Inputs good() {
  return {at::ones({3, 4}), at::ones({4}), at::zeros({3}), at::zeros({2}, at::kLong),
          at::ones({9})};
}

int main(int, char** words) {
  const std::filesystem::path folder = words[2];
  opsmith::Artifact artifact(folder);
  torch::inductor::AOTIModelPackageLoader loader((folder / "model.pt2").string());
  const auto run = [&](Inputs inputs) {
    return words[1] == std::string("artifact") ? artifact.run(inputs) : loader.run(inputs);
  };
  const std::vector<std::function<void(Inputs&)>> spoilt{
      [](Inputs& inputs) { inputs[3] = at::Tensor(); },
      [](Inputs& inputs) { inputs[3] = inputs[3].to(at::kInt); },
      [](Inputs& inputs) { inputs[3] = inputs[3][0]; },
      [](Inputs& inputs) { inputs[3].fill_(-1); },
      [](Inputs& inputs) { inputs[1] = at::ones({5}); },
      [](Inputs& inputs) { inputs[4] = at::ones({6}); },
      [](Inputs& inputs) { inputs[4] = at::ones({1}); },
      [](Inputs& inputs) { inputs.pop_back(); },
  };
  for (const auto& spoil : spoilt) {
    Inputs inputs = good();
    spoil(inputs);
    try {
      run(inputs);
      std::cout << "taken" << std::endl;
    } catch (const std::exception& error) {
      std::string text = error.what();
      std::replace(text.begin(), text.end(), '\\n', '|');
      std::cout << text << std::endl;
    }
  }
  std::cout << run(good()).size() << std::endl;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`PROGRAM`, built as a user's would be."""
    sources = tmp_path_factory.mktemp("wrong_inputs") / "program"
    shutil.copytree(SOURCES, sources)
    (sources / "main.cpp").write_text(PROGRAM)
    return build_runner(sources)


def said(program: Path, *words: object) -> list[str]:
    """What was said against each wrong call, and how many results the right one had."""
    done = subprocess.run([program, *words], capture_output=True, text=True, env={})
    assert done.returncode == 0, done
    *lines, right = done.stdout.splitlines()
    assert int(right) == 8
    return lines


def test_an_artifact_names_the_input(everything: targets.Artifact, program: Path) -> None:
    where = everything.folder
    assert said(program, "artifact", where) == [
        f"{where}: input 'rows' is not a tensor.",
        f"{where}: input 'rows' has dtype int32, expected int64.|  got: shape (2,), dtype int32",
        f"{where}: input 'rows' has 0 dimensions, expected 1 for rows: int64 (rows,).|"
        "  got: shape (), dtype int64",
        "aoti_test::pick: argument 'rows' has value -1 at index 0, expected 0 <= value < 3 (N).|"
        "  bound so far: N=3, C=4, R=2",
        f"{where}: input 'bias' does not fit bias: float32 (4,): dimension 0 is 5, expected 4: the "
        "model was exported for this size alone. Name it in dynamic_shapes to allow others.|"
        "  got: shape (5,), dtype float32",
        f"{where}: input 'y' does not fit y: float32 (2*points + 1,): dimension 0 (2*points + 1) "
        "is 6, the export allows 2*points + 1 with 1 <= points.|  got: shape (6,), dtype float32",
        f"{where}: input 'y' does not fit y: float32 (2*points + 1,): dimension 0 (2*points + 1) "
        "is 1, the export allows 2*points + 1 with 1 <= points.|  got: shape (1,), dtype float32",
        f"{where}: takes 5 inputs (x, bias, total, rows, y), got 4.",
    ]


def test_where_pytorchs_loader_compares_nothing_the_operator_names_its_argument(
    everything: targets.Artifact, program: Path
) -> None:
    *lines, missing = said(program, "loader", everything.folder)
    assert lines == [
        "aoti_test::pick: argument 'rows' is None, expected Int64[Tensor, \"R\"].|"
        "  bound so far: N=3, C=4",
        "aoti_test::pick: argument 'rows' has dtype int32, expected int64.|"
        "  got: shape (2,), dtype int32|  bound so far: N=3, C=4",
        "aoti_test::pick: argument 'rows' has 0 dimensions, expected 1 for Int64[Tensor, \"R\"].|"
        "  got: shape (), dtype int64|  bound so far: N=3, C=4",
        "aoti_test::pick: argument 'rows' has value -1 at index 0, expected 0 <= value < 3 (N).|"
        "  bound so far: N=3, C=4, R=2",
        "aoti_test::everything: argument 'bias' does not fit Float[Tensor, \"C\"]: dimension 0 (C) "
        "is 5, expected 4.|  got: shape (5,), dtype float32|  bound so far: N=3, C=4 (C by 'x')",
        "taken",
        "taken",
    ]
    assert "expected inputs vector size to be 5, but got 4" in missing
