"""Artifacts: whole or not there at all, and opened only if they are what was written."""

import json
import os

import pytest

from opsmith import ArtifactError
from opsmith.targets.exporting.artifact import (
    MANIFEST,
    Agreement,
    Artifact,
    CallSpec,
    Manifest,
    OperatorUse,
    TensorSpec,
    list_files,
    replacing,
)


def write(out, *, overwrite=False, text="graph"):
    with replacing(out, overwrite=overwrite) as folder:
        (folder / "lib").mkdir()
        (folder / "lib" / "kernel.so").write_bytes(bytes(1000))
        (folder / "model.txt").write_text(text)
        manifest = Manifest(
            target="onnxruntime",
            versions={"torch": "2.13.0"},
            inputs=(TensorSpec("x", "float32", ("N", 3)),),
            outputs=(TensorSpec("output", "float32", ("2*N",)),),
            dims={"N": (1, None)},
            call=CallSpec("", "", (0, {"is": 5}), (0,)),
            operators=(OperatorUse("ns::op", "library"),),
            agreement=Agreement(3, 1e-7, "output"),
            files=list_files(folder),
        )
        (folder / MANIFEST).write_text(manifest.to_json())
    return manifest


def test_a_manifest_comes_back_as_it_was_written(tmp_path):
    manifest = write(tmp_path / "dist")
    assert Artifact.open(tmp_path / "dist").manifest == manifest
    assert sorted(manifest.files) == ["lib/kernel.so", "model.txt"]


def test_a_changed_file_is_named_and_refused(tmp_path):
    write(tmp_path / "dist")
    library = tmp_path / "dist" / "lib" / "kernel.so"
    data = bytearray(library.read_bytes())
    data[500] ^= 1
    library.write_bytes(data)
    with pytest.raises(ArtifactError, match=r"lib/kernel\.so is not the file that was exported"):
        Artifact.open(tmp_path / "dist")


def test_a_missing_file_is_named(tmp_path):
    write(tmp_path / "dist")
    (tmp_path / "dist" / "model.txt").unlink()
    with pytest.raises(ArtifactError, match=r"model\.txt is missing"):
        Artifact.open(tmp_path / "dist")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"manifest": 99}, "has version 99, and this opsmith reads versions 1 and 2"),
        ({"inputs": None}, "is damaged"),
        ({"files": {"../../etc/passwd": {"sha256": "", "size": 0}}}, "outside the artifact"),
    ],
)
def test_a_manifest_that_cannot_be_trusted_is_refused(tmp_path, change, words):
    write(tmp_path / "dist")
    path = tmp_path / "dist" / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ArtifactError, match=words):
        Artifact.open(tmp_path / "dist")


def test_what_is_no_artifact_is_said_to_be_none(tmp_path):
    with pytest.raises(ArtifactError, match="no such folder"):
        Artifact.open(tmp_path / "nothing")
    with pytest.raises(ArtifactError, match=r"it has no manifest\.json"):
        Artifact.open(tmp_path)
    (tmp_path / MANIFEST).write_text("[]")
    with pytest.raises(ArtifactError, match="is not the manifest of an opsmith artifact"):
        Artifact.open(tmp_path)


def test_a_file_that_the_manifest_does_not_list_is_not_given(tmp_path):
    write(tmp_path / "dist")
    (tmp_path / "dist" / "added.so").write_bytes(b"")
    with pytest.raises(ArtifactError, match=r"lists no file 'added\.so'"):
        Artifact.open(tmp_path / "dist").path("added.so")


def test_an_artifact_is_replaced_only_when_asked(tmp_path):
    write(tmp_path / "dist", text="one")
    with pytest.raises(ArtifactError, match="holds an artifact already"):
        write(tmp_path / "dist", text="two")
    assert (tmp_path / "dist" / "model.txt").read_text() == "one"
    write(tmp_path / "dist", text="two", overwrite=True)
    assert (tmp_path / "dist" / "model.txt").read_text() == "two"
    assert os.listdir(tmp_path) == ["dist"]


def test_a_folder_that_is_no_artifact_is_never_replaced(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    with pytest.raises(ArtifactError, match="is not an opsmith artifact, so it is not replaced"):
        write(tmp_path / "thesis", overwrite=True)
    (tmp_path / "empty").mkdir()
    write(tmp_path / "empty")
    (tmp_path / "thesis" / MANIFEST).write_text('{"name": "a web application"}')
    with pytest.raises(ArtifactError, match=r"is not replaced: .* is not the manifest of an ops"):
        write(tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "years of work"


@pytest.mark.parametrize("links", [True, False])
def test_files_of_others_stay_where_an_artifact_is_replaced(tmp_path, monkeypatch, links):
    if not links:

        def refuse(*names, **options):
            raise OSError("a file system without links")

        monkeypatch.setattr(os, "link", refuse)
    dist = tmp_path / "dist"
    write(dist)
    (dist / "lib" / "mine.so").write_bytes(b"mine")
    (dist / "sub").mkdir()
    (dist / "sub" / "ops.whl").write_bytes(b"a wheel")
    with replacing(dist, overwrite=True) as folder:
        (folder / "new.txt").write_text("new")
        (folder / MANIFEST).write_text(Manifest("onnx", {}, files=list_files(folder)).to_json())
    left = {path.relative_to(dist).as_posix() for path in dist.rglob("*") if path.is_file()}
    assert left == {"lib/mine.so", "sub/ops.whl", "new.txt", MANIFEST}
    assert (dist / "lib" / "mine.so").read_bytes() == b"mine"
    assert os.listdir(tmp_path) == ["dist"]


def test_a_file_of_others_is_not_overwritten_by_the_new_artifact(tmp_path):
    dist = tmp_path / "dist"
    write(dist)
    (dist / "README.md").write_text("mine")
    with (
        pytest.raises(ArtifactError, match=r"README\.md is not of the artifact .* choose another"),
        replacing(dist, overwrite=True) as folder,
    ):
        (folder / "README.md").write_text("the export's")
    assert (dist / "README.md").read_text() == "mine"
    Artifact.open(dist)
    assert os.listdir(tmp_path) == ["dist"]


def test_an_export_that_fails_leaves_nothing(tmp_path):
    write(tmp_path / "dist", text="one")
    with (
        pytest.raises(KeyboardInterrupt),
        replacing(tmp_path / "dist", overwrite=True) as folder,
    ):
        (folder / "model.txt").write_text("half")
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == ["dist"]
    assert (tmp_path / "dist" / "model.txt").read_text() == "one"
    Artifact.open(tmp_path / "dist")
