"""A file that is saved while it is compiled: what is there afterwards is compiled."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from opsmith.errors import BuildError
from opsmith.kernels.toolchain import recipe


@pytest.mark.parametrize("saves", [1, 9])
def test_what_is_saved_while_it_is_compiled_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: int
) -> None:
    source, header, left = tmp_path / "saved.cpp", tmp_path / "amount.h", saves
    source.write_text('#include "amount.h"\n')
    header.write_text("")
    compile_ = recipe._compile

    def saving(*given: object) -> Path:
        nonlocal left
        library: Path = compile_(*given)  # type: ignore[arg-type]
        if left:
            exported = 'extern "C" __attribute__((visibility("default")))'
            header.write_text(f"{exported} int amount() {{ return {left}; }}\n")
            left -= 1
        return library

    monkeypatch.setattr(recipe, "_compile", saving)
    asked = recipe.Recipe("saved", [source], flags=("-O0",), torch="none")
    if saves == 1:
        assert ctypes.CDLL(str(asked.build())).amount() == 1
        return
    with pytest.raises(BuildError, match=r"amount\.h was changed while it was compiled\. Try"):
        asked.build()
    assert left == saves - 3
