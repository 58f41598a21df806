"""A damaged or a forged manifest is refused, by opsmith and by ``run.py`` alike."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from handmade import digest, write

import opsmith
from opsmith.targets.exporting.artifact import MANIFEST
from opsmith.targets.onnxruntime import standalone

pytest.importorskip("onnxruntime")


def outside(folder: Path, manifest: Any) -> None:
    manifest["details"]["libraries"] = ["../outside.so"]
    manifest["files"]["../outside.so"] = digest(folder.parent / "outside.so")


def absolute(folder: Path, manifest: Any) -> None:
    path = str(folder.parent / "outside.so")
    manifest["details"]["libraries"] = [path]
    manifest["files"][path] = digest(Path(path))


def unlisted(folder: Path, manifest: Any) -> None:
    manifest["details"]["libraries"] = ["../outside.so"]


def another_model(folder: Path, manifest: Any) -> None:
    (folder / "other.onnx").write_bytes(b"another")
    manifest["details"].update(model="other.onnx", libraries=[])


def no_files(folder: Path, manifest: Any) -> None:
    manifest["files"] = {}


def put(*place: Any, value: Any) -> Callable[[Path, Any], None]:
    def spoil(folder: Path, manifest: Any) -> None:
        *way, last = place
        for step in way:
            manifest = manifest[step]
        manifest[last] = value

    return spoil


UNSAFE = {
    "outside": (outside, "names '../outside.so', outside the artifact"),
    "absolute": (absolute, "outside.so', outside the artifact"),
    "unlisted": (unlisted, "lists no file '../outside.so'"),
    "another model": (another_model, "lists no file 'other.onnx'"),
    "no files": (no_files, "lists no file '"),
    "version": (put("manifest", value=99), "has version 99"),
    "changed": (
        put("files", "model.onnx", "sha256", value="0" * 64),
        "model.onnx is not the file that was exported",
    ),
    "another machine": (
        put("details", "platform", value="Linux-m68k"),
        "compiled for Linux-m68k",
    ),
}


@pytest.mark.parametrize(("spoil", "words"), UNSAFE.values(), ids=UNSAFE)
def test_run_py_refuses_every_file_that_opsmith_load_refuses(tmp_path, spoil, words) -> None:
    manifest = write(tmp_path / "dist")
    spoil(tmp_path / "dist", manifest)
    (tmp_path / "dist" / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(opsmith.ArtifactError) as caught:
        opsmith.load(tmp_path / "dist")
    assert words in str(caught.value)
    with pytest.raises(RuntimeError) as refused:
        standalone.check(tmp_path / "dist")
    assert words in str(refused.value)


def test_a_whole_artifact_passes_both(tmp_path) -> None:
    manifest = write(tmp_path / "dist")
    (tmp_path / "dist" / MANIFEST).write_text(json.dumps(manifest))
    assert standalone.check(tmp_path / "dist") == manifest
    with pytest.raises(opsmith.ArtifactError, match=r"ONNX Runtime .* does not load"):
        opsmith.load(tmp_path / "dist")


DAMAGED = {
    "inputs is null, expected a list": put("inputs", value=None),
    "inputs[0].shape[1] is a number, expected an integer or a string": put(
        "inputs", 0, "shape", 1, value=1.5
    ),
    "inputs[0].dtype is 'float99', which is no dtype": put("inputs", 0, "dtype", value="float99"),
    "outputs[0].name is an integer, expected a string": put("outputs", 0, "name", value=3),
    "target is a list, expected a string": put("target", value=[]),
    "no target 'abacus'; there are": put("target", value="abacus"),
    "kind is an object, expected a string": put("kind", value={}),
    "dims.N has 3 elements, expected 2": put("dims", "N", value=[1, 2, 3]),
    "dims.N[0] is a string, expected an integer": put("dims", "N", value=["one", None]),
    "dims.N[1] is a boolean, expected an integer or null": put("dims", "N", value=[1, True]),
    "call.in_leaves[0] is 7, expected a position below 1": put("call", "in_leaves", value=[7]),
    "call.out_leaves[0] is 'x', expected a position": put("call", "out_leaves", value=["x"]),
    "operators[0] is a string, expected an object": put("operators", value=["a::b"]),
    "files.model.onnx.size is missing": put("files", "model.onnx", value={"sha256": ""}),
    "files.model.onnx.sha256 is null, expected a string": put(
        "files", "model.onnx", "sha256", value=None
    ),
    "agreement.samples is a string, expected an integer": put(
        "agreement", value={"samples": "6", "largest": 0.0, "output": ""}
    ),
    "the target 'onnxruntime' cannot read its details": put("details", value={}),
    "TypeError": put("details", "libraries", value=5),
    "the target 'onnxruntime' cannot read its details or": put("details", "processor", value=None),
    "details is a list, expected an object": put("details", value=[]),
}


@pytest.mark.parametrize(("words", "spoil"), DAMAGED.items(), ids=DAMAGED)
def test_a_damaged_manifest_is_one_line_that_names_the_file_and_the_place(
    tmp_path, words, spoil
) -> None:
    manifest = write(tmp_path / "dist")
    spoil(tmp_path / "dist", manifest)
    path = tmp_path / "dist" / MANIFEST
    path.write_text(json.dumps(manifest))
    with pytest.raises(opsmith.ArtifactError) as caught:
        opsmith.load(tmp_path / "dist")
    message = str(caught.value)
    assert words in message
    assert str(path) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[]", "5", "{", "", '{"manifest": [1]}', '{"manifest": {}}']
)
def test_a_file_that_is_no_manifest_is_named_by_both(tmp_path, text) -> None:
    write(tmp_path / "dist")
    path = tmp_path / "dist" / MANIFEST
    path.write_text(text)
    for load in (opsmith.load, standalone.check):
        with pytest.raises(RuntimeError) as caught:
            load(tmp_path / "dist")
        assert type(caught.value) in (opsmith.ArtifactError, RuntimeError)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
