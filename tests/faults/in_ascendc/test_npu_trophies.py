"""Find the faults of published kernels in the trophies, and none where they are mended."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ascendc_faults import phase_of

from opsmith.checks import harness
from opsmith.checks.harness import Fault
from opsmith.kernels.languages.emulated_npu import emulated

FOLDER = Path(__file__).parents[3] / "trophies"
#: By name: the code and the words. Which of two blocks comes first decides in the second.
FAULTS = {
    "depth_gradient": ("NPU-QUEUE", "FreeTensor .* this queue did not allocate"),
    "covered_intervals": ("NPU-RACE|MEMORY-BOUNDS", "DataCopy .* writes .* the result"),
    "added_tiles": ("NPU-RACE", r"DataCopyPad \(MTE2 .* writes .* AddRelu .* reads.*V_MTE2"),
}


@pytest.fixture(scope="module")
def trophies():
    spec = importlib.util.spec_from_file_location("opsmith_npu_trophies", FOLDER / "queues.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def called(operator, flags):
    source = replace(operator.kernels["npu"].source, flags=flags)
    cases = list(operator.cases[0](torch.float32, 3))
    build = harness.build(emulated(source), emulated=True)
    (results,) = harness.run(build, operator.signature, cases, [phase_of(1)])
    pairs = zip(results, cases, strict=True)
    return [(call.results[0], operator.reference(**case)) for call, case in pairs]


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_a_published_fault_is_found_with_its_line(trophies, name):
    lines = (FOLDER / f"{name}.cpp").read_text().splitlines()
    (line,) = (n for n, text in enumerate(lines, 1) if "// FAULT" in text)
    code, words = FAULTS[name]
    with pytest.raises(Fault, match=rf"(?s){words}") as found:
        called(getattr(trophies, name), ())
    assert found.value.code.removeprefix("OPS-") in code.split("|")
    assert f"{name}.cpp:{line}" in str(found.value)


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_the_mended_kernel_is_right(trophies, name):
    for result, right in called(getattr(trophies, name), ("-DMENDED",)):
        torch.testing.assert_close(result, right)
