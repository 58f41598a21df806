"""`opsmith adopt`: a declaration of what exists, which `opsmith check` takes."""

import pytest

OPS = """
import torch


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2
"""


@pytest.mark.slow
def test_what_is_written_passes_its_check(cli, tmp_path):
    file = tmp_path / "drafted_add.py"
    outcome = cli("adopt", "aten::add.Tensor", "--out", file)
    assert outcome.code == 0
    assert outcome.stderr == f"{file}\n\nTry it:  opsmith check {file}\n"
    checked = cli("check", file, "--check", "reference,fake", "--examples", "8")
    assert checked.code == 0
    assert "aten::add.Tensor" in checked.stdout


def test_a_file_is_left_alone(cli, tmp_path):
    file = tmp_path / "mine.txt"
    file.write_text("mine")
    outcome = cli("adopt", "aten::asinh", "--out", file)
    assert (outcome.code, file.read_text()) == (2, "mine")
    assert outcome.stderr == f"error: {file} exists already; nothing was written\n"


def test_a_function_is_adopted_from_its_file(cli, tmp_path):
    file = tmp_path / "drafted_ops.py"
    file.write_text(OPS)
    outcome = cli("adopt", f"{file}:Twice")
    assert outcome.code == 0
    assert "from drafted_ops import Twice" in outcome.stdout
    assert 'opsmith.adopt(Twice, "my_ops::twice", annotations=_twice)' in outcome.stdout


@pytest.mark.parametrize("known_as", ["Twice.apply", "twice"])
def test_a_function_is_adopted_by_its_apply_too(cli, tmp_path, known_as):
    file = tmp_path / "drafted_applied.py"
    file.write_text(OPS + "\ntwice = Twice.apply\n")
    outcome = cli("adopt", f"{file}:{known_as}")
    assert outcome.code == 0
    assert "from drafted_applied import Twice" in outcome.stdout


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "nms",
            "'nms': name an operator, as in torchvision::nms, or a torch.autograd.",
        ),
        (
            "draft_none::nms",
            "draft_none::nms: PyTorch has no such operator. Import the package that defines it "
            "first. No package draft_none is installed here. (--import MODULE)",
        ),
        (
            "aten::nms",
            "aten::nms: PyTorch has no such operator. Import the package that defines it first. (-",
        ),
        ("aten::add.Nobody", "aten::add.Nobody: there is no such overload; there are aten::add."),
    ],
)
def test_what_is_not_there_is_said(cli, name, message):
    outcome = cli("adopt", name)
    assert outcome.code == 2
    assert outcome.stdout == ""
    assert message in outcome.stderr


def test_what_a_file_has_is_listed(cli, tmp_path):
    file = tmp_path / "drafted_more.py"
    file.write_text(OPS)
    outcome = cli("adopt", f"{file}:Thrice")
    assert outcome.code == 2
    assert "has no torch.autograd.Function 'Thrice'; it has Twice" in outcome.stderr
    assert "makes a Function" not in outcome.stderr


MAKER = """
from torch.autograd import Function


def times(factor):
    class Times(Function):
        @staticmethod
        def forward(ctx, x):
            return x * factor

        @staticmethod
        def backward(ctx, grad):
            return grad * factor

    return Times


Tripled = times(3)
doubled = times(2).apply
"""


def test_a_function_that_makes_classes_is_told_how_one_of_them_is_adopted(cli, tmp_path):
    file = tmp_path / "drafted_maker.py"
    file.write_text(MAKER)
    outcome = cli("adopt", f"{file}:times")
    assert outcome.code == 2
    assert (
        "has no torch.autograd.Function 'times'; it has Tripled, doubled. If times makes a "
        "Function, give one that it made a name there, as in MyTimes = times(...), and adopt that"
    ) in outcome.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Tripled", "doubled"])
def test_a_class_that_a_function_made_is_adopted_by_its_name(cli, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    module = f"drafted_made_{name.lower()}"
    (tmp_path / f"{module}.py").write_text(MAKER)
    assert cli("adopt", f"{module}.py:{name}", "--out", "draft.py").code == 0
    assert f"from {module} import {name}\n" in (tmp_path / "draft.py").read_text()
    checked = cli("check", "draft.py", "--check", "dispatch,gradient", "--examples", "4")
    assert checked.code == 0, checked.stdout
