"""The races of published kernels are found in the trophies, and none where these are mended."""

import importlib.util
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from cuda_faults import phase_of

from opsmith.checks import harness
from opsmith.checks.harness import Fault
from opsmith.kernels.languages.emulated_cuda import emulated

FOLDER = Path(__file__).parents[3] / "trophies"
PHASES = [phase_of(1), phase_of(2, 0x7F)]
NAMES = ("chosen_points", "row_softmax", "kept_intervals", "reversed_rows")


@pytest.fixture(scope="module")
def races():
    spec = importlib.util.spec_from_file_location("opsmith_trophies", FOLDER / "races.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def said(operator, flags=()):
    """Yield what is said of each call; of a right one nothing."""
    source = replace(operator.kernels["cuda"].source, flags=flags)
    build = harness.build(emulated(source, watched=True), emulated=True)
    (case,) = operator.cases[0](torch.float32, 3)
    right = operator.reference(**case)
    for phase in PHASES:
        try:
            ((call,),) = harness.run(build, operator.signature, [case], [phase])
        except Fault as found:
            yield str(found)
        else:
            yield "" if torch.allclose(call.results[0], right) else "wrong results"


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_race_is_found_and_both_lines_are_named(races, name):
    lines = (FOLDER / f"{name}.cu").read_text().splitlines()
    places = {f"{name}.cu:{n}" for n, line in enumerate(lines, 1) if line.endswith("// FAULT")}
    for message in said(getattr(races, name)):
        assert "a race: thread" in message
        assert set(re.findall(rf"{name}\.cu:\d+", message)) == places, message


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_mended_kernel_is_right(races, name):
    assert list(said(getattr(races, name), flags=("-DMENDED",))) == ["", ""]
