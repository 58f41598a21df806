"""Without the parser, nothing is emulated, and the message says how to get it."""

import sys

import pytest
from jaxtyping import Float32
from torch import Tensor

from opsmith.errors import MissingDependencyError
from opsmith.kernels import kernel_source
from opsmith.kernels.languages.emulated_cuda import emulated, find_obstacle
from opsmith.signature import signature_of


def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    """Return twice a tensor."""
    return 2 * x


@pytest.mark.parametrize("package", ["tree_sitter", "tree_sitter_cuda"])
def test_a_parser_that_is_missing_is_named_with_the_way_to_get_it(package, tmp_path, monkeypatch):
    path = tmp_path / "doubled.cu"
    path.write_text("int a;\n")
    source = emulated(kernel_source(signature_of(doubled, "no_parser::doubled"), "cuda", path))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError) as caught:
        find_obstacle(source)
    assert str(caught.value) == (
        f"{source.what}: the emulation of CUDA reads sources with tree-sitter and its grammar of "
        "CUDA, which are not installed. Get them: pip install 'opsmith[check]'"
    )
