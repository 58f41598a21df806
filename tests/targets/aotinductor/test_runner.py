"""The C++ program: the same results without Python, and one line for each failure."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from aoti_models import Everything, Net, everything_args, net_args

from opsmith import targets
from opsmith.errors import BuildError
from opsmith.targets.aotinductor import runtime
from opsmith.targets.exporting import artifact as artifacts

pytestmark = pytest.mark.slow(cases=2)

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(runner: Path) -> Run:
    """Runs the program with nothing in its environment."""

    def run(*words: object) -> subprocess.CompletedProcess[str]:
        command = [str(runner), *map(str, words)]
        return subprocess.run(command, env={}, capture_output=True, text=True)

    return run


@pytest.fixture
def moved(net: targets.Artifact, tmp_path: Path) -> Path:
    """A copy of the artifact `net` in another place, to spoil."""
    return Path(shutil.copytree(net.folder, tmp_path / "moved"))


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """The inputs of `net`."""
    torch.save(net_args(), tmp_path / "in.pt")
    return tmp_path / "in.pt"


def failure(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line that a failed run says."""
    assert done.returncode == code, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("opsmith-run: ")
    return done.stderr.removeprefix("opsmith-run: ").strip()


def test_same_results_as_python(everything: targets.Artifact, run: Run, tmp_path: Path) -> None:
    torch.save(everything_args(), tmp_path / "in.pt")
    done = run(everything.folder, tmp_path / "in.pt", "--output", tmp_path / "out.pt")
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    outputs = torch.load(tmp_path / "out.pt", weights_only=True)
    wanted = Everything()(*everything_args())
    assert done.stdout.splitlines() == [
        f"{name}: {str(value.dtype).removeprefix('torch.')} "
        f"({', '.join(map(str, value.shape))}{',' if value.dim() == 1 else ''})"
        for name, value in wanted.items()
    ]
    for got, value in zip(outputs, wanted.values(), strict=True):
        torch.testing.assert_close(got, value)


def test_inputs_that_are_negated_when_read_are_read_and_written_so(
    everything: targets.Artifact, run: Run, tmp_path: Path
) -> None:
    inputs = [
        torch._neg_view(-x) if x.is_floating_point() else x.clone() for x in everything_args()
    ]
    torch.save(inputs, tmp_path / "in.pt")
    words = ["--output", tmp_path / "out.pt", "--written", tmp_path / "after.pt"]
    done = run(everything.folder, tmp_path / "in.pt", *words)
    assert done.returncode == 0, done.stderr
    expected = everything_args()
    wanted = Everything()(*expected)
    assert torch.load(tmp_path / "in.pt")[0].is_neg()
    for got, value in zip(torch.load(tmp_path / "out.pt"), wanted.values(), strict=True):
        torch.testing.assert_close(got, value)
    torch.testing.assert_close(torch.load(tmp_path / "after.pt")[2], expected[2])


def test_what_a_call_writes_into_its_inputs(
    everything: targets.Artifact, run: Run, tmp_path: Path
) -> None:
    torch.save(everything_args(), tmp_path / "in.pt")
    files = [tmp_path / "in.pt", "--written", tmp_path / "after.pt", "--repeat", 3]
    assert run(everything.folder, *files).returncode == 0
    expected = everything_args()
    Everything()(*expected)
    assert not torch.equal(expected[2], everything_args()[2])
    for got, wanted in zip(torch.load(tmp_path / "after.pt"), expected, strict=True):
        torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_moved_elsewhere_and_run_with_other_batches(
    moved: Path, run: Run, tmp_path: Path, batch: int
) -> None:
    image, scale, pairs = net_args(batch)
    # One file each, by position and by name.
    torch.save(image.contiguous(), tmp_path / "image.pt")
    torch.save({"pairs": pairs, "scale": scale}, tmp_path / "rest.pt")
    files = [tmp_path / "image.pt", tmp_path / "rest.pt"]
    done = run(moved, *files, "--output", tmp_path / "out.pt")
    assert done.returncode == 0, done.stderr
    outputs = torch.load(tmp_path / "out.pt", weights_only=True)
    for got, wanted in zip(outputs, Net()(image, scale, pairs), strict=True):
        torch.testing.assert_close(got, wanted)


def test_links_no_python(runner: Path) -> None:
    listed = subprocess.run(["ldd", runner], capture_output=True, text=True, check=True).stdout
    assert "libtorch_cpu" in listed
    assert "python" not in Path(listed).name and "libpython" not in listed


def test_times_runs(net: targets.Artifact, inputs: Path, run: Run) -> None:
    done = run(net.folder, inputs, "--repeat", 5, "--threads", 1)
    assert "5 runs on 1 threads: median " in done.stdout


def test_describes_the_model(net: targets.Artifact, run: Run) -> None:
    assert run(net.folder, "--describe").stdout.splitlines() == [
        "inputs",
        "  image: float32 (batch, 3, 8, 8)",
        "  scale: float32 (batch,)",
        "  pairs: float32 (2*batch,)",
        "outputs",
        "  output_0: float32 (batch, 2)",
        "  output_1: float32 ()",
    ]


def test_a_wrong_command_line(run: Run) -> None:
    assert "usage:" in run("--help").stdout
    assert "there is no option --fast" in failure(run("--fast"), 2)
    assert "which artifact?" in failure(run(), 2)
    assert "--repeat takes a number, got 'x'" in failure(run("a", "--repeat", "x"), 2)


def test_missing_files(moved: Path, inputs: Path, run: Run, tmp_path: Path) -> None:
    assert "no such folder" in failure(run(tmp_path / "nothing"), 3)
    assert "it has no manifest.json" in failure(run(tmp_path), 3)
    assert "absent.pt: no such file" in failure(run(moved, tmp_path / "absent.pt"), 5)
    assert f"{tmp_path}: no such file" in failure(run(moved, tmp_path), 5)
    (tmp_path / "text.pt").write_text("not a tensor")
    assert "was not written by torch.save" in failure(run(moved, tmp_path / "text.pt"), 5)
    missing = tmp_path / "no" / "folder" / "out.pt"
    assert "cannot be written" in failure(run(moved, inputs, "--output", missing), 5)
    (library,) = (moved / "libraries").iterdir()
    library.unlink()
    message = f"{library} is missing; the manifest lists it. Export the model again."
    assert message in failure(run(moved, inputs), 3)


def test_a_changed_library_is_not_loaded(moved: Path, inputs: Path, run: Run) -> None:
    (library,) = (moved / "libraries").iterdir()
    data = bytearray(library.read_bytes())
    data[len(data) // 2] ^= 1
    library.write_bytes(data)
    message = failure(run(moved, inputs), 3)
    assert f"{library} is not the file that was exported, and is not loaded" in message


def test_a_changed_model_is_not_loaded(moved: Path, inputs: Path, run: Run) -> None:
    with (moved / "model.pt2").open("ab") as file:
        file.write(b"more")
    assert "model.pt2 is not the file that was exported" in failure(run(moved, inputs), 3)


def relist(folder: Path, name: str, data: bytes) -> None:
    """Put `data` into the artifact as if it had been exported."""
    (folder / name).write_bytes(data)
    manifest = json.loads((folder / "manifest.json").read_text())
    file = artifacts.file_digest(folder / name)
    manifest["files"][name] = {"sha256": file.sha256, "size": file.size}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_library_that_does_not_load(moved: Path, inputs: Path, run: Run) -> None:
    (library,) = (moved / "libraries").iterdir()
    relist(moved, f"libraries/{library.name}", b"\x7fELF not a library")
    assert f"{library} does not load: " in failure(run(moved, inputs), 4)


def test_a_manifest_that_is_none(moved: Path, inputs: Path, run: Run) -> None:
    text = (moved / "manifest.json").read_text()
    for spoilt, message in [
        ("{", "is damaged: a key should stand here at byte 1"),
        (text.replace('"manifest": 2', '"manifest": 3'), "has version 3, and this program reads"),
        (text.replace('"aotinductor"', '"onnx"', 1), "was exported for the target 'onnx'"),
        (text.replace('"details"', '"retails"'), 'it has no "details"'),
        (text.replace('"popcnt"', '"avx9000"'), "compiled for a processor with avx9000"),
    ]:
        (moved / "manifest.json").write_text(spoilt)
        assert message in failure(run(moved, inputs), 3)


def test_inputs_that_do_not_fit(net: targets.Artifact, run: Run, tmp_path: Path) -> None:
    image, scale, pairs = net_args(3)

    def says(*inputs: object) -> str:
        torch.save(inputs[0] if isinstance(inputs[0], dict) else inputs, tmp_path / "bad.pt")
        return failure(run(net.folder, tmp_path / "bad.pt"), 6)

    assert "takes 3 inputs (image, scale, pairs), got 2." in says(image, scale)
    assert "the model has no input 'mask'" in says({"mask": image})
    assert "input 'image' has dtype float64, expected float32." in says(
        image.double(), scale, pairs
    )
    assert "input 'image' has 3 dimensions, expected 4 for image: float32 (batch, 3, 8, 8)." in (
        says(image[0], scale, pairs)
    )
    assert (
        "dimension 1 is 2, expected 3: the model was exported for this size alone. Name it in "
        "dynamic_shapes to allow others. | got: shape (3, 2, 8, 8), dtype float32"
    ) in says(image[:, :2], scale, pairs)
    assert "dimension 0 (batch) is 2, expected 3." in says(image, scale[:2], pairs)
    assert "dimension 0 (2*batch) is 5, expected 6." in says(image, scale, pairs[:5])
    assert "dimension 0 (batch) is 65, the export allows 1 <= batch <= 64." in says(*net_args(65))


def test_an_error_of_a_kernel(everything: targets.Artifact, run: Run, tmp_path: Path) -> None:
    x, bias, total, _, y = everything_args()
    torch.save((x, bias, total, torch.tensor([0, 3]), y), tmp_path / "in.pt")
    assert failure(run(everything.folder, tmp_path / "in.pt"), 7) == (
        "aoti_test::pick: argument 'rows' has value 3 at index 1, expected 0 <= value < 3 (N). | "
        "bound so far: N=3, C=4, R=2"
    )


def test_a_program_that_does_not_compile(tmp_path: Path) -> None:
    shutil.copy(runtime.SOURCES / "CMakeLists.txt", tmp_path)
    (tmp_path / "main.cpp").write_text("int main() { return nonsense; }")
    with pytest.raises(BuildError, match=r"main\.cpp:1:.*nonsense"):
        runtime.build_runner(tmp_path)


def test_an_artifact_carries_the_program(net: targets.Artifact) -> None:
    names = {path.name for path in (net.folder / "runner").iterdir()}
    assert names == {path.name for path in runtime.SOURCES.iterdir()}
