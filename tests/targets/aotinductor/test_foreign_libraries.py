"""Libraries of operators that opsmith did not declare: carried, and loaded once in a process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from aoti_models import export

import opsmith
from opsmith import targets
from opsmith.errors import ExportError
from opsmith.kernels import Recipe
from opsmith.targets.aotinductor.runtime import SOURCES as RUNNER, build_runner

pytestmark = pytest.mark.slow

SOURCE = Path(__file__).parent / "sources" / "foreign.cpp"


class Twice(torch.nn.Module):
    """Calls the foreign operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ops.aoti_foreign.twice(x) + 1


def build(*defines: str) -> Path:
    """The foreign library, as somebody else would build it."""
    name = f"foreign{len(defines)}"
    return Recipe(name, [SOURCE], torch="full", defines=defines, flags=("-O0",)).build()


# What a TORCH_LIBRARY block does with a schema, by the C shims: their header is read in no time.
BLOCK = """
#include <torch/csrc/inductor/aoti_torch/c/shim.h>

namespace {
const int defined = [] {
  TorchLibraryHandle library = nullptr;
  aoti_torch_library_init_def("aoti_foreign", __FILE__, __LINE__, &library);
  return aoti_torch_library_def(library, "SCHEMA");
}();
}  // namespace
"""


def build_block(name: str, schema: str) -> Path:
    """A library whose block for the foreign namespace says `schema`."""
    return Recipe(name, generated={f"{name}.cpp": BLOCK.replace("SCHEMA", schema)}).build()


@pytest.fixture(scope="module")
def clashing() -> Path:
    """A library that defines another operator in the foreign namespace."""
    return build_block("other", "once(Tensor x) -> Tensor")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> targets.Artifact:
    """`Twice`, exported and verified in a process that has the library already."""
    folder = tmp_path_factory.mktemp("foreign")
    # Loaded through a link, as an installed package might.
    (folder / "link.so").symlink_to(build())
    torch.ops.load_library(folder / "link.so")
    torch.library.register_fake("aoti_foreign::twice", torch.empty_like, allow_override=True)
    return export(Twice(), (torch.ones(3),), folder / "out", libraries=[build()])


@pytest.mark.long
def test_a_library_that_the_process_has_is_not_loaded_again(
    artifact: targets.Artifact, tmp_path: Path
) -> None:
    assert artifact.manifest.agreement is not None
    assert not list(artifact.folder.parent.glob(".*partial*"))
    copy = shutil.copytree(artifact.folder, tmp_path / "elsewhere")
    for folder in (artifact.folder, copy):
        assert opsmith.load(folder)(torch.ones(3)).tolist() == [3, 3, 3]


@pytest.mark.long  # 40 s of builds; test_another_schema_is_refused reads a library
def test_the_manifest_says_what_the_library_defines(artifact: targets.Artifact) -> None:
    (entry,) = artifact.manifest.details["libraries"]
    assert entry["defines"] == {"aoti_foreign::twice": "twice(Tensor x) -> Tensor"}
    assert entry["namespaces"] == ["aoti_foreign"]


LOADING = """
import sys, torch, opsmith
for path in sys.argv[2:]:
    torch.ops.load_library(path)
print(opsmith.load(sys.argv[1])(torch.ones(3)).tolist())
print(opsmith.load(sys.argv[1])(torch.ones(3)).tolist())
"""


def load_beside(artifact: targets.Artifact, *paths: Path) -> subprocess.CompletedProcess[str]:
    """Load the artifact twice in a process that has loaded `paths`."""
    command = [sys.executable, "-c", LOADING, artifact.folder, *paths]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.long
def test_another_build_of_the_same_operators_takes_its_place(artifact: targets.Artifact) -> None:
    done = load_beside(artifact, build("MORE"))
    assert done.stdout.split("\n")[:2] == ["[3.0, 3.0, 3.0]"] * 2, done.stderr
    assert load_beside(artifact).stdout == done.stdout


@pytest.mark.long  # each builds a library; test_another_schema_is_refused stays
def test_a_library_that_takes_the_namespace_is_named(
    artifact: targets.Artifact, clashing: Path
) -> None:
    done = load_beside(artifact, clashing)
    assert done.returncode == 1  # an exception, not an abort
    assert (
        "libforeign0.so defines aoti_foreign::twice. This process has a TORCH_LIBRARY block for "
        "'aoti_foreign' from another library, but not aoti_foreign::twice, and PyTorch admits one "
        "definition." in done.stderr
    )


def test_another_schema_is_refused(artifact: targets.Artifact) -> None:
    done = load_beside(artifact, build_block("schema", "twice(Tensor x, int k) -> Tensor"))
    assert "was exported with another aoti_foreign::twice than this process has" in done.stderr


@pytest.mark.long  # each builds a library; test_another_schema_is_refused stays
def test_a_library_that_lacks_the_operator_is_refused(
    artifact: targets.Artifact, tmp_path: Path
) -> None:
    del artifact  # the operator is here
    empty = Recipe("empty", generated={"empty.cpp": "int nothing;"}, torch="none").build()
    with pytest.raises(ExportError) as caught:
        export(Twice(), (torch.ones(3),), tmp_path / "out", libraries=[empty])
    assert str(caught.value) == (
        "aoti_foreign::twice: the libraries that were passed do not define it; they define no "
        "operator. Pass the library that does: libraries=[…/lib….so]."
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.long  # each builds a library; test_another_schema_is_refused stays
def test_a_library_that_does_not_load_is_refused(
    artifact: targets.Artifact, tmp_path: Path
) -> None:
    del artifact
    wrong = tmp_path / "libwrong.so"
    wrong.write_text("no library")
    with pytest.raises(ExportError) as caught:
        export(Twice(), (torch.ones(3),), tmp_path / "out", libraries=[wrong])
    assert str(caught.value) == (
        "libraries: libwrong.so cannot be loaded by a process that has PyTorch alone, as a process "
        "that runs the artifact would:\nlibwrong.so: file too short"
    )


IN_CPP = """
#include "opsmith_artifact.h"

#include <ATen/ops/ones.h>

#include <iostream>

int main(int count, char** words) {
  for (int i = 1; i < count; ++i) {
    const std::filesystem::path path = words[i];
    if (!std::filesystem::is_directory(path)) {
      if (dlopen(words[i], RTLD_NOW | RTLD_LOCAL) == nullptr) std::cout << dlerror() << std::endl;
      continue;
    }
    try {
      opsmith::Artifact artifact(path);
      std::cout << artifact.run({at::ones({3})})[0].sum().item<double>() << std::endl;
    } catch (const std::exception& error) {
      std::cout << error.what() << std::endl;
    }
  }
}
"""


@pytest.mark.long
def test_a_cpp_program_loads_it_once_too(
    artifact: targets.Artifact, clashing: Path, tmp_path: Path
) -> None:
    sources = Path(shutil.copytree(RUNNER, tmp_path / "program"))
    (sources / "main.cpp").write_text(IN_CPP)
    program = build_runner(sources)
    copy = shutil.copytree(artifact.folder, tmp_path / "elsewhere")

    def run(*words: object) -> list[str]:
        done = subprocess.run([program, *words], capture_output=True, text=True, env={})
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert run(artifact.folder, copy) == ["9", "9"]
    assert run(build(), artifact.folder, copy) == ["9", "9"]
    (message,) = run(clashing, artifact.folder)
    assert "This process has a TORCH_LIBRARY block for 'aoti_foreign'" in message
