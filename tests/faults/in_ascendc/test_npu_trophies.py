"""Find the faults of a published kernel in the trophy, and none where it is mended."""

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


@pytest.fixture(scope="module")
def operator():
    spec = importlib.util.spec_from_file_location("opsmith_npu_trophies", FOLDER / "queues.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.depth_gradient


def called(operator, flags):
    source = replace(operator.kernels["npu"].source, flags=flags)
    cases = list(operator.cases[0](torch.float32, 3))
    build = harness.build(emulated(source), emulated=True)
    (results,) = harness.run(build, operator.signature, cases, [phase_of(1)])
    pairs = zip(results, cases, strict=True)
    return [(call.results[0], operator.reference(**case)) for call, case in pairs]


@pytest.mark.long
def test_a_tensor_that_is_freed_through_another_queue_is_found_with_its_line(operator):
    lines = (FOLDER / "depth_gradient.cpp").read_text().splitlines()
    (line,) = (n for n, text in enumerate(lines, 1) if text.endswith("// FAULT"))
    with pytest.raises(Fault, match=r"FreeTensor .* this queue did not allocate") as found:
        called(operator, ())
    assert found.value.code == "OPS-NPU-QUEUE"
    assert f"depth_gradient.cpp:{line}" in str(found.value)


@pytest.mark.long
def test_the_mended_kernel_is_right_for_any_number_of_channels(operator):
    for result, right in called(operator, ("-DMENDED",)):
        torch.testing.assert_close(result, right)
