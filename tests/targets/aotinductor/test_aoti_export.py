"""What compiled models compute from Python, and what an export refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import aoti_operators as ops
import pytest
import torch
from aoti_models import Everything, Net, everything_args, export, net_args
from torch import Tensor, nn

from opsmith import targets
from opsmith.errors import ArgumentError, ArtifactError, ExportError, MissingDependencyError
from opsmith.targets.aotinductor import libraries

pytestmark = pytest.mark.slow

SHIMMED = {"everything", "accumulate", "positives", "pick"}


class Calls(nn.Module):
    """One call of a function."""

    def __init__(self, function: object) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


@pytest.mark.long
def test_every_kind_of_argument_arrives(everything: targets.Artifact) -> None:
    loaded = targets.load(everything.folder)
    here, there = everything_args(), everything_args()
    wanted, got = Everything()(*here), loaded(*there)
    assert wanted.keys() == got.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(got[name], value, msg=lambda text, n=name: f"{n}: {text}")


def test_what_a_call_writes_into_is_written(everything: targets.Artifact) -> None:
    here, there = everything_args(), everything_args()
    Everything()(*here)
    targets.load(everything.folder)(*there)
    assert not torch.equal(here[2], everything_args()[2])
    assert torch.equal(here[2], there[2])


def test_an_input_in_any_memory_is_read_and_written_as_in_eager(
    everything: targets.Artifact,
) -> None:
    loaded = targets.load(everything.folder)
    x, bias, total, rows, y = everything_args()
    memory = torch.zeros(6)
    for start in (torch._neg_view(-total), memory[::2], torch._neg_view(memory)[1::2]):
        start.copy_(total)
        expected = total.clone()
        wanted = Everything()(x, bias, expected, rows, y)
        got = loaded(torch._neg_view(-x), bias, start, rows, torch.complex(0 * y, -y).conj().imag)
        for name, value in wanted.items():
            torch.testing.assert_close(got[name], value)
        torch.testing.assert_close(start, expected)


def test_operators_are_called_directly_where_compiled_code_can(
    everything: targets.Artifact,
) -> None:
    uses = {use.name.partition("::")[2]: use for use in everything.manifest.operators}
    assert {name for name, use in uses.items() if use.note == "called directly"} == SHIMMED
    assert "which compiled code cannot express" in uses["cumsum"].note
    assert uses["python_only"].form == "inline"


def test_clashes_of_shim_names_are_found() -> None:
    class Clashing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return ops.cumsum(ops.other_twin(ops.twin(x)))

    prepared = targets.prepare(Clashing(), (torch.ones(3),))
    first, second, third = libraries.plan(prepared.operators())
    assert first.proxy == ""
    assert second.proxy == (
        "compiled code would call both it and aoti_test::twin as aoti_torch_cpu_twin"
    )
    assert third.proxy == "PyTorch has a function aoti_torch_cpu_cumsum itself"


@pytest.mark.long
def test_other_sizes_than_the_example(everything: targets.Artifact, net: targets.Artifact) -> None:
    loaded = targets.load(net.folder)
    for batch in (1, 7, 64):
        for got, wanted in zip(loaded(*net_args(batch)), Net()(*net_args(batch)), strict=True):
            torch.testing.assert_close(got, wanted)


def test_inputs_may_lie_in_memory_in_any_order(net: targets.Artifact) -> None:
    image, scale, pairs = net_args(3)
    loaded = targets.load(net.folder)
    for given in (image, image.contiguous(), image.transpose(2, 3).contiguous().transpose(2, 3)):
        torch.testing.assert_close(loaded(given, scale, pairs)[0], Net()(image, scale, pairs)[0])


def test_inputs_that_do_not_fit_are_refused(net: targets.Artifact) -> None:
    image, scale, pairs = net_args(3)
    loaded = targets.load(net.folder)
    with pytest.raises(ArgumentError, match="input 'scale' has dtype float64, expected float32"):
        loaded(image, scale.double(), pairs)
    with pytest.raises(ArgumentError, match=r"\(batch\) is 2, expected 3"):
        loaded(image, scale[:2], pairs)
    with pytest.raises(ArgumentError, match=r"\(2\*batch\) is 5, expected 6"):
        loaded(image, scale, pairs[:5])


def test_a_kernels_message_comes_through(everything: targets.Artifact) -> None:
    x, bias, total, _, y = everything_args()
    loaded = targets.load(everything.folder)
    with pytest.raises(ArgumentError) as caught:
        loaded(x, bias, total, torch.tensor([0, 3]), y)
    assert str(caught.value).startswith(
        "aoti_test::pick: argument 'rows' has value 3 at index 1, expected 0 <= value < 3 (N)."
    )
    assert "frame #" not in str(caught.value)


def test_an_index_out_of_bounds_is_an_index_error_as_in_eager(everything: targets.Artifact) -> None:
    x, bias, total, _, y = everything_args()
    for model in (Everything(), targets.load(everything.folder)):
        with pytest.raises(IndexError, match="out of bounds"):
            model(x, bias, total, torch.tensor([0, 2]), y[:3])


PLAIN = """
import sys, torch
from opsmith import targets
from opsmith.operators.core import registry
loaded = targets.load(sys.argv[1])
again = targets.load(sys.argv[1])
inputs = torch.load(sys.argv[2])
results = loaded(*inputs), again(*torch.load(sys.argv[2]))
assert not registry.all_operators()
torch.save(results, sys.argv[3])
"""


def test_runs_where_the_operators_are_not_declared(
    everything: targets.Artifact, tmp_path: Path
) -> None:
    torch.save(everything_args(), tmp_path / "in.pt")
    command = [sys.executable, "-c", PLAIN, everything.folder, tmp_path / "in.pt"]
    subprocess.run([*command, tmp_path / "out.pt"], check=True)
    wanted = Everything()(*everything_args())
    for got in torch.load(tmp_path / "out.pt"):
        for name, value in wanted.items():
            torch.testing.assert_close(got[name], value)


DIRECT = """
import ctypes, sys, torch
ctypes.CDLL(sys.argv[1])
model = torch._inductor.aoti_load_package(sys.argv[2])
torch.save(model(*torch.load(sys.argv[3])), sys.argv[4])
"""


def test_a_package_runs_with_pytorch_alone(net: targets.Artifact, tmp_path: Path) -> None:
    (entry,) = net.manifest.details["libraries"]
    torch.save(net_args(), tmp_path / "in.pt")
    files = [net.folder / entry["file"], net.folder / "model.pt2"]
    command = [sys.executable, "-I", "-c", DIRECT, *files, tmp_path / "in.pt"]
    subprocess.run([*command, tmp_path / "out.pt"], check=True)
    for got, wanted in zip(torch.load(tmp_path / "out.pt"), Net()(*net_args()), strict=True):
        torch.testing.assert_close(got, wanted)


def test_exporting_again_compiles_nothing(
    net: targets.Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", fail)
    monkeypatch.chdir(tmp_path)
    batch = torch.export.Dim("batch", min=1, max=64)
    shapes = ({0: batch}, {0: batch}, {0: 2 * batch})
    other = tuple(torch.ones_like(value) for value in net_args())
    again = export(Net(), other, tmp_path / "again", dynamic_shapes=shapes)
    assert again.manifest.files["model.pt2"] == net.manifest.files["model.pt2"]


@pytest.mark.long
def test_what_is_no_tensor_is_returned_too(tmp_path: Path) -> None:
    class Mixed(nn.Module):
        def forward(self, x: Tensor, k: int) -> object:
            return x + k, None, {"k": k, "text": "s", "x": x}, 2.5

    export(Mixed(), (torch.ones(3), 7), tmp_path / "out")
    first, *rest = targets.load(tmp_path / "out")(torch.zeros(3), 7)
    assert first.tolist() == [7, 7, 7]
    assert rest[1].pop("x").tolist() == [0, 0, 0]
    assert rest == [None, {"k": 7, "text": "s"}, 2.5]


def test_an_operator_with_only_a_python_kernel_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError) as caught:
        export(Calls(ops.python_only), (torch.ones(3),), tmp_path / "out")
    assert str(caught.value) == (
        "aoti_test::python_only: has only a Python kernel for 'cpu', and an AOTInductor artifact "
        "runs without Python; the model calls it once. Add a C++ kernel, "
        'python_only.register_kernel("cpu", source="….cpp"), or pass '
        'form={"aoti_test::python_only": "inline"} to have its reference compiled in its place.'
    )
    assert not (tmp_path / "out").exists()


def test_an_operator_that_opsmith_does_not_know_is_refused(tmp_path: Path) -> None:
    @torch.library.custom_op("aoti_test::foreign", mutates_args=())
    def foreign(x: Tensor) -> Tensor:
        return x.clone()

    foreign.register_fake(lambda x: torch.empty_like(x))
    with pytest.raises(ExportError, match=r"aoti_test::foreign: is written in Python"):
        export(Calls(foreign), (torch.ones(3),), tmp_path / "out")


def test_forms_that_are_none_are_refused(tmp_path: Path) -> None:
    args = (torch.ones(3),)
    with pytest.raises(ExportError, match="form='both'; there are auto, library, inline"):
        export(Calls(ops.python_only), args, tmp_path / "out", form="both")
    with pytest.raises(ExportError, match=r"form names 'a::b', which the model does not call"):
        export(Calls(ops.python_only), args, tmp_path / "out", form={"a::b": "inline"})
    with pytest.raises(ExportError, match="inductor has no setting 'wrong'"):
        export(Calls(ops.python_only), args, tmp_path / "out", inductor={"wrong": 1})


def test_state_is_refused(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return x + self.count

    with pytest.raises(ExportError, match="the model writes into its buffer 'count'"):
        export(Counting(), (torch.ones(3),), tmp_path / "out")


def test_an_example_with_gaps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"strides \(8, 1\).*Pass example.contiguous\(\)"):
        export(nn.ReLU(), (torch.ones(4, 8)[:, :3],), tmp_path / "out")


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MissingDependencyError, match="no-such-compiler"):
        export(nn.ReLU(), (torch.ones(3),), tmp_path / "out")


@pytest.mark.long  # test_runner.py::test_a_changed_library_is_not_loaded
def test_a_library_of_another_build_is_no_substitute(net: targets.Artifact, tmp_path: Path) -> None:
    """Beside the digest: the package links the library's own name."""
    code = "import sys, torch; torch._inductor.aoti_load_package(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code, net.folder / "model.pt2"], capture_output=True, text=True
    )
    (entry,) = net.manifest.details["libraries"]
    assert done.returncode != 0
    assert f"{Path(entry['file']).name}: cannot open shared object file" in done.stderr


def test_another_processor_is_refused(net: targets.Artifact, tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    subprocess.run(["cp", "-r", net.folder, folder], check=True)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["details"]["machine"]["features"] += ["avx9000"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match="compiled for a processor with avx9000"):
        targets.load(folder)
    manifest["details"]["machine"]["architecture"] = "pdp11"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match="compiled for pdp11, this machine is"):
        targets.load(folder)
