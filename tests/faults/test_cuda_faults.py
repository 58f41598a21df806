"""The emulation of CUDA finds each planted fault, and none in the same kernel without it."""

import re
from pathlib import Path

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

from opsmith.checks import harness
from opsmith.checks.harness import Fault, Phase
from opsmith.kernels import kernel_source
from opsmith.kernels.cuda_emulator import emulated
from opsmith.signature import signature_of

SOURCE = Path(__file__).with_name("faults.cu")


def faulty(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


SIGNATURE = signature_of(faulty, "cuda_faults::faulty")


def copied(x):
    return x


def total(x):
    return x.sum().expand(len(x))


def turned(x):
    return torch.cat([part.flip(0) for part in x.split(96)])


def neighbours(x):
    padded = torch.zeros(32)
    padded[: min(len(x), 32)] = x[:32]
    swapped = padded[torch.arange(32) ^ 1]
    return torch.cat([swapped[: len(x)], torch.zeros(max(0, len(x) - 32))])


#: What is wrong, how many elements show it, what is right, the code, and the words.
FAULTS = {
    "no_barrier": (100, turned, "CUDA-RACE", "with no(ne)? .*__syncthreads|__syncwarp"),
    "no_barrier_between_steps": (
        100,
        total,
        "CUDA-RACE",
        "a race: thread .* of shared memory 'sums'",
    ),
    "shared_memory_used_again": (200, turned, "CUDA-RACE", "a race: .* shared memory 'tile'"),
    "barrier_in_a_branch": (
        100,
        turned,
        "CUDA-BARRIER",
        "reaches __syncthreads: 92 threads returned",
    ),
    "return_before_barrier": (100, turned, "CUDA-BARRIER", "reaches __syncthreads: 92 threads"),
    "two_barriers": (
        40,
        lambda x: x[:1].expand(len(x)),
        "CUDA-BARRIER",
        "wait at different places",
    ),
    "warp_without_barrier": (40, total, "CUDA-RACE", "with neither __syncwarp nor __syncthreads"),
    "shuffle_in_a_branch": (20, total, "CUDA-BARRIER", "wait at different places: 20 threads"),
    "mask_without_own_lane": (40, neighbours, "CUDA-BARRIER", "which leaves out its own lane"),
    "lanes_in_two_shuffles": (
        40,
        lambda x: x[:1].expand(len(x)),
        "CUDA-BARRIER",
        "16 threads .* in __shfl_sync with mask 0xffffffff",
    ),
    "active_mask_taken_for_all": (40, total, "", "took the value of lane|^$"),
    "lane_left_out_of_votes": (40, copied, "", ""),
    "tail_read": (
        100,
        lambda x: torch.cat([x[1:], torch.zeros(1)]),
        "MEMORY-BOUNDS",
        "read 1 element past the end of argument 'x'",
    ),
    "tail_written": (
        100,
        copied,
        "MEMORY-BOUNDS",
        r"wrote \d+ elements? past the end of the result",
    ),
    "before_the_start": (
        10,
        lambda x: x - torch.cat([torch.zeros(1), x[:-1]]),
        "MEMORY-BOUNDS",
        "read 1 element before the start of argument 'x'",
    ),
    "tail_of_vectors": (10, copied, "", ""),
    "misaligned_vector": (10, copied, "CUDA-ALIGNMENT", "float4.* not a multiple of 16"),
    "short_index": (40000, copied, "MEMORY-BOUNDS", "before the start of"),
    "overflowing_index": (200, copied, "CUDA-UNDEFINED", "a signed integer overflows"),
    "shared_past_the_end": (10, copied, "CUDA-UNDEFINED", "the index 96 is outside of its array"),
    "dynamic_shared_too_small": (
        10,
        copied,
        "MEMORY-BOUNDS",
        "wrote 1 element past the end of shared memory 'tile'",
    ),
    "wrong_stride": (100, copied, "", "read element .* of shared memory 'tile', which nothing"),
    "padding_not_cleared": (10, total, "", "read element .* of shared memory 'tile'"),
    "result_not_cleared": (10, copied, "", "read element .* of the result, which nothing had"),
    "argument_written": (
        10,
        copied,
        "MUTATION-UNDECLARED",
        "wrote into element .* of argument 'x'",
    ),
    "sum_without_atomics": (100, total, "CUDA-RACE", "a race: .* shared memory 'total'"),
    "blocks_in_order": (
        200,
        lambda x: x[torch.arange(len(x)) % 96],
        "CUDA-RACE",
        "with no order of these blocks between|no __syncthreads",
    ),
    "same_flag_by_all": (
        100,
        lambda x: (x > 0.5).any().float().expand(len(x)),
        "CUDA-RACE",
        "a race: .* shared memory 'any'",
    ),
    "last_block": (200, total, "CUDA-RACE", "with no order of these blocks between"),
    "host_pointer": (10, copied, "CUDA-HOST", "read memory of the host"),
    "read_by_host": (10, copied, "CUDA-HOST", "the host read element 0 of argument 'x'"),
    "grid_of_nothing": (10, copied, "CUDA-LAUNCH", "a grid has at least one block"),
    "block_too_large": (10, copied, "CUDA-LAUNCH", "at most 1024 threads, and this one has 2048"),
    "copy_past_the_end": (
        10,
        copied,
        "MEMORY-BOUNDS",
        "cudaMemcpyAsync read 1 element past the end of argument 'x'",
    ),
}


def built():
    return harness.build(
        emulated(kernel_source(SIGNATURE, "cuda", SOURCE), watched=True), emulated=True
    )


@pytest.fixture(scope="module")
def build():
    return built()


def case_of(fault, wrong):
    count, right, *_ = FAULTS[fault]
    x = torch.rand(count, generator=torch.Generator().manual_seed(count)) + 0.25
    return {"x": x, "fault": fault, "wrong": wrong}, right(x).to(torch.float32)


def phase_of(seed, fill=0xFF):
    return Phase(seed=seed, fill=fill, emulated=True)


#: Each has an order of its own, and memory that begins otherwise.
PHASES = [phase_of(1), phase_of(2, 0x7F)]


@pytest.mark.slow
def test_right_kernels_are_right_in_every_order(build):
    cases, right = zip(*(case_of(fault, False) for fault in FAULTS), strict=True)
    for calls in harness.run(build, SIGNATURE, cases, PHASES).calls:
        for fault, one, expected in zip(FAULTS, calls, right, strict=True):
            assert not one.refused
            torch.testing.assert_close(one.results[0], expected, msg=fault)


def is_right(build, fault, phase):
    """Whether the kernel without a fault gives the right results, and nothing is said of it."""
    case, right = case_of(fault, False)
    try:
        ((one,),) = harness.run(build, SIGNATURE, [case], [phase]).calls
    except Fault:
        return False
    return not one.refused and not one.seen and torch.allclose(one.results[0], right)


def lines_of(fault):
    """The lines that are marked in a fault's kernel, or by its name."""
    lines = SOURCE.read_text().splitlines()
    named = [n for n, text in enumerate(lines, 1) if text.endswith(f"// FAULT {fault}")]
    start = next(n for n, text in enumerate(lines) if re.search(rf"\b{fault}\b", text))
    end = next((n for n in range(start + 1, len(lines)) if lines[n] == "}"), len(lines))
    return named or [n for n in range(start + 1, end + 1) if lines[n - 1].endswith("// FAULT")]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_in_every_order_and_named_with_its_line(build, fault):
    _, _, code, words = FAULTS[fault]
    for phase in PHASES:
        found, message = outcome(build, fault, phase)
        assert found == (code and f"OPS-{code}"), message
        assert re.search(words, message), message
        places = [f"{SOURCE}:{line}" for line in lines_of(fault)]
        assert not message or any(place in message for place in places), (message, places)


def outcome(build, fault, phase):
    """The code of what was found, and the words; no code where the results alone are wrong."""
    try:
        case, right = case_of(fault, True)
        ((one,),) = harness.run(build, SIGNATURE, [case], [phase]).calls
    except Fault as found:
        return found.code, str(found)
    assert not torch.allclose(one.results[0], right), "no fault was found"
    return "", "\n".join(one.remarks)
