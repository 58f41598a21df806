"""What PyTorch unpacks of a model lies where it is found, whatever ends the process."""

from __future__ import annotations

import gc
import os
import tempfile
from pathlib import Path

import pytest

from opsmith import targets


@pytest.mark.slow
def test_what_a_loaded_model_unpacks_goes_with_it_and_is_held_until_then(
    net: targets.Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.environ.get("TMPDIR")
    model = targets.load(net.folder)
    assert os.environ.get("TMPDIR") == before
    # The next run removes what is called so and nobody holds.
    (unpacked,) = tmp_path.iterdir()
    assert unpacked.name.startswith("opsmith-model-")
    assert unpacked.name.endswith(".scratch")
    assert any(unpacked.iterdir())
    del model
    gc.collect()
    assert list(tmp_path.iterdir()) == []
