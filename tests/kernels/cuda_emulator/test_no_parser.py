"""Without the parser, nothing is emulated, and the message says how to get it."""

import sys

import pytest
from emulated_sources import own_code

from opsmith.errors import MissingDependencyError


@pytest.mark.parametrize("package", ["tree_sitter", "tree_sitter_cuda"])
def test_a_parser_that_is_missing_is_named_with_the_way_to_get_it(package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError) as caught:
        own_code(tmp_path, "int a;\n")
    assert str(caught.value) == (
        "a test: the emulation of CUDA reads sources with tree-sitter and its grammar of CUDA, "
        "which are not installed. Get them: pip install 'opsmith[check]'"
    )
