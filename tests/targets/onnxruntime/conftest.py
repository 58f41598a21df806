"""Exports that several tests look at, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import opsmith


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., opsmith.LoadedModel]:
    """Exports to ONNX Runtime, which compares with PyTorch, and loads the artifact."""

    def run(model: Any, args: Any, **options: Any) -> opsmith.LoadedModel:
        options = {"target": "onnxruntime", "out": tmp_path / "dist", "say": None, **options}
        artifact = opsmith.export(model, args, overwrite=True, **options)
        assert artifact.manifest.agreement is None or artifact.manifest.agreement.samples > 1
        return opsmith.load(artifact.folder)

    return run
