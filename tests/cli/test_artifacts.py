"""`opsmith export`, `opsmith run`, `opsmith view`."""

from __future__ import annotations

import json
import urllib.request

import numpy as np
import pytest
import torch

from opsmith.cli.source import load_source

MODEL = """
import torch
from torch import nn, Tensor
from jaxtyping import Float
import opsmith

@opsmith.op("cli_test::double")
def double(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    return x * 2

class Model(nn.Module):
    def forward(self, x, y):
        return double(x) + y

def example():
    rows = {0: torch.export.Dim("rows")}
    return Model(), (torch.randn(4, 3), torch.randn(4, 3)), {}, (rows, rows)

def wrong():
    return 3

def raising():
    return 1 / 0

model = Model()
"""


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    # One for all tests of a process: what is loaded twice from the same file is declared once.
    folder = tmp_path_factory.mktemp("artifacts")
    (folder / "cli_model.py").write_text(MODEL)
    for name, rows in (("x", 5), ("y", 5), ("short", 4)):
        np.save(folder / f"{name}.npy", np.full((rows, 3), 1.5, np.float32))
    return folder


@pytest.fixture
def folder(written, monkeypatch):
    monkeypatch.chdir(written)
    return written


@pytest.fixture
def exported(folder, cli):
    if not (folder / "dist").exists():
        done = cli("export", "cli_model.py:example", "--out", "dist")
        assert done.code == 0, done.stderr


@pytest.mark.slow
def test_an_export_says_what_became_of_each_operator(folder, cli):
    done = cli("export", "cli_model.py:example", "--out", "dist")
    assert done.code == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first == "cli_test::double: inline, 1 call (its reference)"
    assert second.startswith("largest difference between ONNX Runtime and PyTorch over 6 samples: ")
    assert third == "ONNX Runtime artifact: dist"


def test_run_reads_and_writes_arrays(exported, folder, cli):
    done = cli("run", "dist", "x.npy", "y=y.npy", "--out", "out.npz", "--repeat", "3")
    assert done.code == 0, done.stderr
    assert done.stdout.splitlines()[0] == "output: float32 (5, 3)"
    assert "median of 3: " in done.stdout
    with np.load(folder / "out.npz") as outputs:
        assert (outputs["output"] == 4.5).all()

    np.savez(folder / "in.npz", x=np.ones((2, 3), np.float32), y=np.ones((2, 3), np.float32))
    assert cli("run", "dist", "in.npz", "--out", "out.npy").code == 0
    assert (np.load(folder / "out.npy") == 3).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x.npy"], "the input y: float32 (rows, 3) is missing; the model takes x: float32"),
        (["x.npy", "short.npy"], "dimension 0 (rows) is 4, expected 5"),
        (["x.npy", "z=y.npy"], "no input is called 'z'; the model takes"),
        (["x.npy", "nothing.npy"], ": nothing.npy cannot be read: No such file or directory\n"),
        (["x.npy", "y.npy", "x.npy"], "the model has 2 inputs"),
        (["x.npy", "y.txt"], "y.txt: inputs come from .npz, .npy and .pt files"),
    ],
)
def test_inputs_that_do_not_fit(exported, cli, arguments, words):
    done = cli("run", "dist", *arguments)
    assert done.code == 1
    assert words in done.stderr


def test_a_model_and_its_arguments_may_be_named_without_a_function(tmp_path):
    file = tmp_path / "cli_pair.py"
    file.write_text("import torch\n\npair = torch.nn.ReLU(), (torch.ones(2),)\n")
    loaded = load_source(f"{file}:pair")
    assert isinstance(loaded["model"], torch.nn.ReLU)
    assert [tuple(one.shape) for one in loaded["args"]] == [(2,)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["cli_model.py:example"], "holds an artifact already"),
        (["cli_model.py:example", "--overwrite", "--form", "a", "--form", "b"], "one form for all"),
        (["--form=a", "cli_model.py:example", "--form", "c::d=b"], "or OPERATOR=FORM for each"),
        (["cli_model.py:example", "--opset", "three"], "--opset three: expected int"),
        (["cli_model.py:example", "--opset", "1", "--opset", "2"], "--opset: one opset for all"),
        (["cli_model.py:example", "--exporter"], "--exporter needs a value"),
        (["cli_model.py:example", "--runner=yes"], "--runner takes no value"),
        (["cli_model.py:example", "--runner"], "target 'onnxruntime' has no option 'runner'"),
        (["cli_model.py:example", "--abacus"], "No such option: --abacus"),
        (["cli_model.py:example", "--target", "abacus"], "no target 'abacus'; there are"),
        (["cli_model.py:model"], "needs an example of its arguments"),
        (["cli_model.py:nothing"], "cli_model.py has no 'nothing'; it has example, wrong, raising"),
        (["cli_model.py:wrong"], "returned int; expected (model, args)"),
        (["cli_model.py:raising"], "cli_model.py:23: ZeroDivisionError"),
        (["cli_model.py"], "say which model, as in model.py:example"),
        (["cli_model.py::shift"], "say which model, as in model.py:example"),
        (["nothing.pt2"], "no such file: nothing.pt2"),
    ],
)
def test_an_export_that_cannot_be(exported, cli, arguments, words):
    done = cli("export", *arguments, "--out", "dist")
    assert done.code == (1 if words == "holds an artifact already" else 2)
    assert words in done.stderr


def test_the_targets_and_their_options_are_listed(cli):
    done = cli("export", "--list")
    assert done.code == 0
    assert "onnxruntime  ONNX Runtime" in done.stdout
    assert "    --exporter …  which of torch.onnx's (dynamo, torchscript)" in done.stdout
    assert "    --runner  build the program" in done.stdout
    assert "    see docs/reference/aotinductor.md" in done.stdout


@pytest.mark.slow
def test_a_form_for_one_operator(folder, cli):
    done = cli(
        "export", "cli_model.py:example", "--form", "cli_test::double=inline", "--out", "one"
    )
    assert done.code == 0, done.stderr
    manifest = json.loads((folder / "one" / "manifest.json").read_text())
    assert manifest["operators"][0]["form"] == "inline"


def test_view_serves_the_graph_until_it_is_interrupted(exported, cli, monkeypatch):
    netron = pytest.importorskip("netron")
    addresses, pages = [], []

    def start(*args, **kwargs):
        addresses.append(real_start(*args, **kwargs))
        return addresses[0]

    def interrupted():
        host, port = addresses[0]
        with urllib.request.urlopen(f"http://{host}:{port}/") as page:
            pages.append(page.read())
        raise KeyboardInterrupt

    real_start = netron.start
    monkeypatch.setattr(netron, "start", start)
    monkeypatch.setattr(netron, "wait", interrupted)
    done = cli("view", "dist", "--no-browse")
    assert done.code == 0, done.stderr
    assert "model.onnx is shown at http://" in done.stderr
    assert b"netron" in pages[0].lower()
    with pytest.raises(OSError, match=r"refused|reset"):
        urllib.request.urlopen("http://{}:{}/".format(*addresses[0]))


def test_view_of_what_is_no_artifact(folder, cli):
    done = cli("view", str(folder))
    assert done.code == 1
    assert "is not an opsmith artifact" in done.stderr
