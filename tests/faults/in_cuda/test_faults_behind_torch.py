"""The emulation finds faults of CUDA sources with PyTorch's host code, and none in right twins."""

import re
from pathlib import Path

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

from opsmith.checks import harness
from opsmith.checks.harness import Fault, Phase
from opsmith.kernels import kernel_source
from opsmith.kernels.cuda_emulator import emulated_behind_torch
from opsmith.signature import signature_of

SOURCE = Path(__file__).parent / "behind_torch.cu"
PHASES = [Phase(seed=1, emulated=True), Phase(seed=2, fill=0x7F, emulated=True)]

pytestmark = pytest.mark.long


def behind_torch(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


SIGNATURE = signature_of(behind_torch, "cuda_faults::behind_torch")


def turned(x):
    return torch.cat([part.flip(0) for part in x.split(64)])


def copied(x):
    return x


#: By name: how many elements show the fault, what is right, the code, and the words.
FAULTS = {
    "no_barrier": (100, turned, "OPS-CUDA-RACE", "shared memory 'tile'"),
    "default_stream": (100, copied, "OPS-CUDA-LAUNCH", "getCurrentCUDAStream"),
    "nothing_to_do": (0, copied, "OPS-CUDA-LAUNCH", "at least one block"),
    "workspace_too_small": (
        100,
        copied,
        "OPS-MEMORY-BOUNDS",
        r"past the end of a tensor of sizes \[100\], made by the host code \(100 elements\)",
    ),
    "sum_not_cleared": (
        100,
        lambda x: x.sum().expand(len(x)),
        "",
        r"element 0 of a tensor of sizes \[1\], made by the host code, which nothing had written",
    ),
    "freed_workspace": (100, lambda x: x + 1, "OPS-MEMORY-BOUNDS", "memory that was freed"),
    "host_tensor": (100, torch.ones_like, "OPS-CUDA-HOST", "memory of the host"),
    "read_by_host": (100, copied, "OPS-CUDA-HOST", "the host read element 0 of argument 'x'"),
    "strides_ignored": (100, lambda x: x.view(2, -1).t().flatten(), "", "^$"),
    "rows_for_columns": (100, copied, "OPS-MEMORY-BOUNDS", "past the end of argument 'x'"),
    "argument_written": (100, copied, "OPS-MUTATION-UNDECLARED", "argument 'x'"),
    "devices_mixed": (100, lambda x: x + 1, "", "on the same device, .* cuda:0 and cpu"),
}


@pytest.fixture(scope="module")
def build():
    source = kernel_source(SIGNATURE, "cuda", SOURCE, api="torch")
    return harness.build(emulated_behind_torch(source), emulated=True)


def outcome(build, fault, wrong, phase):
    """Return the code of what was found, and the words; no code for wrong results alone."""
    count, right, *_ = FAULTS[fault]
    x = torch.rand(count, generator=torch.Generator().manual_seed(count)) + 0.25
    case = {"x": x, "fault": fault, "wrong": wrong}
    try:
        ((one,),) = harness.run(build, SIGNATURE, [case], [phase]).calls
    except Fault as found:
        return found.code, str(found)
    if one.refused:
        return "", one.refused
    same = torch.allclose(one.results[0], right(x))
    return ("right" if same else ""), "\n".join(one.remarks)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_behind_host_code_is_found_and_named_with_its_line(build, fault):
    *_, code, words = FAULTS[fault]
    # A compiler gives code in the arguments of a macro the line where the macro begins.
    lines = list(enumerate(SOURCE.read_text().splitlines(), 1))
    macro = next(number for number, line in lines if "AT_DISPATCH" in line)
    marked = [n for n, line in lines if re.search(rf"// FAULT .*\b{fault}\b", line)]
    named = [f"behind_torch.cu:{n if n < macro else macro}" for n in marked]
    for phase in PHASES:
        found, message = outcome(build, fault, True, phase)
        assert found == code, message
        assert re.search(words, message), message
        assert not named or re.search(rf"{named[0]}\b", message), message


@pytest.mark.parametrize("fault", FAULTS)
def test_the_right_twin_is_not_flagged(build, fault):
    assert [outcome(build, fault, False, phase) for phase in PHASES] == [("right", "")] * 2
