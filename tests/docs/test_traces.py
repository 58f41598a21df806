"""The traces of docs/internals are those of today's code."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow(cases=3)  # one process traces all three

REPOSITORY = Path(__file__).parents[2]
INTERNALS = REPOSITORY / "docs" / "internals"
TRACES = dict(
    re.findall(r"^```text (\w+)\n(.*?)^```$", (INTERNALS / "traces.md").read_text(), re.M | re.S)
)
PROGRAM = """
import inspect, json, sys
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

import opsmith
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.protocol import selected
from opsmith.checks.trial.trial import Trial

ROOT = Path(opsmith.__file__).parent


@opsmith.op("traced::double")
def double(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


class Model(nn.Module):
    def forward(self, x):
        return double(x) + 1


def entered(function):
    files = {}

    def note(frame, event, argument):
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # and no module or class being made
        if event == "call" and is_function and code.co_filename.startswith(str(ROOT)):
            files.setdefault(str(Path(code.co_filename).relative_to(ROOT)), None)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return list(files)


x = torch.ones(3)
(check,) = selected(["mutation"])
trial = Trial(subjects_of(double)[0], check.name)
export = dict(target="onnxruntime", say=None, verify=False)
double(x)
print(json.dumps({
    "call": entered(lambda: double(x)),
    "check": entered(lambda: check.run(trial)),
    "export": entered(lambda: opsmith.export(Model(), (x,), out=sys.argv[1], **export)),
}))
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    out = tmp_path_factory.mktemp("traces") / "model"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(out)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["call", "check", "export"])
def test_a_trace_enters_the_files_that_its_page_lists_in_that_order(
    name: str, traced: dict[str, list[str]]
) -> None:
    listed = [line.split()[0] for line in TRACES[name].splitlines()]
    assert len(listed) > 3
    assert [file for file in traced[name] if file in listed] == listed


def test_every_package_and_folder_has_its_place_on_a_page() -> None:
    text = "".join(page.read_text() for page in INTERNALS.glob("*.md"))
    folders = {
        path.parent.relative_to(REPOSITORY / "opsmith")
        for path in (REPOSITORY / "opsmith").glob("*/*/*.py")
    }
    missing = [
        str(folder)
        for folder in sorted(folders)
        if folder.parts[0] in ("kernels", "operators", "targets", "checks")
        if f"`{folder.name}/`" not in text
    ]
    assert not missing


def test_every_file_that_a_page_names_is_there() -> None:
    for page in INTERNALS.glob("*.md"):
        for name in re.findall(r"`(opsmith/[\w./-]+|tests/[\w./-]+)`", page.read_text()):
            assert (REPOSITORY / name).exists(), f"{page.name}: {name}"
