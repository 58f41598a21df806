"""An artifact for ONNX Runtime that is written by hand: no export, no compiler."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import Any

LEAF = '{"type": null, "context": null, "children_spec": []}'
EMPTY = '{"type": "builtins.dict", "context": "[]", "children_spec": []}'
PAIR = '{"type": "builtins.tuple", "context": "null", "children_spec": [%s, %s]}'
ONE = '{"type": "builtins.tuple", "context": "null", "children_spec": [%s]}'


def write(folder: Path) -> dict[str, Any]:
    """An artifact whose model is no model: what is refused is so before ONNX Runtime is asked."""
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"no model")
    (folder / "operators").mkdir()
    (folder / "operators" / "a.b.so").write_bytes(b"no library")
    (folder.parent / "outside.so").write_bytes(b"no library")
    files = ["model.onnx", "operators/a.b.so"]
    tensor = {"name": "x", "dtype": "float32"}
    return {
        "manifest": 2,
        "target": "onnxruntime",
        "kind": "model",
        "versions": {"torch": "2.13.0"},
        "inputs": [{**tensor, "shape": ["N", 3]}],
        "outputs": [{**tensor, "shape": ["N", 3]}],
        "dims": {"N": [1, None]},
        "call": {
            "in_spec": f"[1, {PAIR % (ONE % LEAF, EMPTY)}]",
            "out_spec": f"[1, {LEAF}]",
            "in_leaves": [0],
            "out_leaves": [0],
        },
        "operators": [{"name": "a::b", "form": "library", "count": 1, "note": ""}],
        "details": {
            "model": "model.onnx",
            "providers": ["CPUExecutionProvider"],
            "libraries": ["operators/a.b.so"],
            "platform": f"{platform.system()}-{platform.machine()}",
            "processor": [],
        },
        "agreement": None,
        "files": {name: digest(folder / name) for name in files},
    }


def digest(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
