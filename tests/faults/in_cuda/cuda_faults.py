"""The planted faults of CUDA kernels beside the same without them; and unusual right kernels."""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from algorithm_faults import ALGORITHMS
from barriers.barrier_faults import NAMED_BARRIERS
from behind_torch_faults import BEHIND_TORCH
from collective_faults import COLLECTIVES
from copy_faults import COPIES
from inline_ptx_faults import INLINE_PTX
from jaxtyping import Float32
from noise import noised
from order_faults import LAUNCHES, ORDERS
from right_results import (
    any_above_half,
    copied,
    count,
    first,
    greatest,
    neighbours,
    reversed_,
    summed,
    sums_of_four,
    total,
    turned,
)
from torch import Tensor

from opsmith.checks import harness
from opsmith.checks.harness import Fault, Phase
from opsmith.kernels import kernel_source
from opsmith.kernels.languages.emulated_cuda import emulated, emulated_behind_torch
from opsmith.signature import Signature, signature_of

HERE = Path(__file__).parent


def faulty(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def orders(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def launches(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def collectives(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def copies(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def inline_ptx(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def named_barriers(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def algorithms(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def behind_torch(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def unusual(x: Float32[Tensor, "N"], kernel: str) -> Float32[Tensor, "N"]:
    return x


#: By name: how many elements show the fault, what is right, the code, and the words.
FAULTS = {
    "no_barrier": (100, turned, "CUDA-RACE", "with no(ne)? .*__syncthreads|__syncwarp"),
    "no_barrier_between_steps": (
        100,
        total,
        "CUDA-RACE",
        "a race: thread .* of shared memory 'sums'",
    ),
    "shared_memory_used_again": (200, turned, "CUDA-RACE", "a race: .* shared memory 'tile'"),
    "half_of_a_word_written": (200, turned, "CUDA-RACE", "a race: .* shared memory 'tile'"),
    "barrier_in_a_branch": (
        100,
        turned,
        "CUDA-BARRIER",
        "wait at different places: ",
    ),
    "return_before_barrier": (100, turned, "", "92 threads returned before __syncthreads"),
    "two_barriers": (
        40,
        first,
        "CUDA-BARRIER",
        "wait at different places",
    ),
    "warp_without_barrier": (40, total, "CUDA-RACE", "with neither __syncwarp nor __syncthreads"),
    "shuffle_in_a_branch": (20, total, "CUDA-BARRIER", "wait at different places: 20 threads"),
    "mask_without_own_lane": (40, neighbours, "CUDA-BARRIER", "which leaves out its own lane"),
    "lanes_in_two_shuffles": (
        40,
        first,
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
    "read_before_the_guard": (100, copied, "MEMORY-BOUNDS", "past the end of argument 'x'"),
    "vector_before_the_guard": (
        100,
        sums_of_four,
        "MEMORY-BOUNDS",
        "past the end of argument 'x'",
    ),
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
        any_above_half,
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


#: Right kernels of unusual form: for how many elements, and what is right.
UNUSUAL = {
    "own_lerp": (200, copied),
    "double_by_cas": (200, total),
    "volatile_before_cas": (200, greatest),
    "maximum_as_int": (200, greatest),
    "half_of_a_word_by_cas": (200, count),
    "lock_of_a_block": (200, total),
    "lock_of_the_grid": (200, total),
    "count_in_blocks_then_in_grid": (200, count),
    "all_fence_before_the_barrier": (200, reversed_),
    "look_back": (200, summed),
    "look_back_by_fences": (200, summed),
    "warp_hands_to_warp": (200, total),
    "variables_of_the_device": (200, total),
    "halves_of_a_warp": (200, total),
    "lanes_that_have_left": (200, copied),
    "leader_of_equals": (200, count),
    "vectors_in_aligned_chars": (200, copied),
    "type_before_shared": (200, copied),
    "two_uses_of_dynamic": (200, copied),
    "two_buffers": (200, turned),
    "same_value_by_all": (200, any_above_half),
    "read_only_cache": (200, copied),
    "result_as_scratch": (200, copied),
    "calls_a_constant_function": (200, copied),
    "least_and_most_of_words": (200, copied),
    "bounded": (200, copied),
    "bounded_template": (200, copied),
    "much_shared": (200, copied),
    "copy_of_constant_size": (200, copied),
    "rank_in_the_grid": (200, copied),
}


def phase_of(seed, fill=0xFF):
    return Phase(seed=seed, fill=fill, emulated=True)


@dataclass(frozen=True)
class Group:
    """Kernels of one file."""

    signature: Signature
    faults: dict
    api: str = "opsmith"
    noisy: Path | None = None
    folder: str = ""

    @cached_property
    def source(self):
        name = "faults" if self.faults is FAULTS else self.signature.name
        return self.noisy or HERE / self.folder / f"{name}.cu"

    def with_noise(self, seed, folder):
        """Return the group with its file written again; see `noise.noised`."""
        path = folder / self.source.name
        path.write_text(noised(self.source.read_text(), seed))
        return replace(self, noisy=path)

    @cached_property
    def build(self):
        """The file, compiled for the CPU."""
        source = kernel_source(self.signature, "cuda", self.source, api=self.api)
        of_cpu = (
            emulated_behind_torch(source) if self.api == "torch" else emulated(source, watched=True)
        )
        return harness.build(of_cpu, emulated=True)

    def called(self, name, wrong, phase):
        """Call a kernel; return its code and words, or whether the results are right."""
        count, right, *_ = self.faults[name]
        x = torch.rand(count, generator=torch.Generator().manual_seed(count)) + 0.25
        last = {"kernel": name} if self.faults is UNUSUAL else {"fault": name, "wrong": wrong}
        try:
            ((one,),) = harness.run(self.build, self.signature, [{"x": x, **last}], [phase])
        except Fault as found:
            return found.code.removeprefix("OPS-"), str(found)
        if one.refused:
            return "", one.refused
        same = torch.allclose(one.results[0], right(x).to(torch.float32))
        return ("right" if same else ""), "\n".join(one.remarks)

    def said_of_right(self, name, phase):
        """Return what is said of the kernel without a fault: nothing, if all is well."""
        found = self.called(name, False, phase)
        return "" if found == ("right", "") else ": ".join(found).strip(": ") or "wrong results"

    def missed(self, name, phase):
        """Return what is said of a fault that is not found as it has to be; else nothing."""
        _, _, code, words, *_ = self.faults[name]
        found, message = self.called(name, True, phase)
        places = self.places(name)
        if found != code or not re.search(words, message):
            return f"{found or 'no code'}, expected {code or 'none'}, {words!r}: {message}"
        named = set(re.findall(rf"{re.escape(str(self.source))}:\d+", message))
        # Without a message the results alone are wrong.
        if message and places is not None and not named & places:
            return f"names {sorted(named)}, expected one of {sorted(places)}: {message}"
        return ""

    def places(self, name):
        """Return the lines that are marked in a fault's kernel, or by its name."""
        lines = self.source.read_text().splitlines()
        mark = self.faults[name][4] if len(self.faults[name]) > 4 else ""
        if mark is None:
            return None
        marks = re.compile(rf"// FAULT\b.*\b({'|'.join((mark or name).split())})\b")
        named = [n for n, text in enumerate(lines, 1) if marks.search(text)]
        start = next(n for n, text in enumerate(lines) if re.search(rf"\b{name}\b", text))
        end = next(
            (n for n in range(start + 1, len(lines)) if lines[n] in ("}", "  }")), len(lines)
        )
        end = next((n for n in range(start + 1, len(lines)) if lines[n] == "}"), end)
        inside = [n for n in range(start + 1, end + 1) if lines[n - 1].endswith("// FAULT")]
        # A compiler gives code in the arguments of a macro the line where the macro begins.
        macro = next((n for n, text in enumerate(lines, 1) if "AT_DISPATCH" in text), len(lines))
        return {f"{self.source}:{min(line, macro)}" for line in named or inside}


GROUPS = (
    Group(signature_of(faulty, "cuda_faults::faulty"), FAULTS),
    Group(signature_of(orders, "cuda_faults::orders"), ORDERS),
    Group(signature_of(launches, "cuda_faults::launches"), LAUNCHES),
    Group(signature_of(collectives, "cuda_faults::collectives"), COLLECTIVES),
    Group(signature_of(copies, "cuda_faults::copies"), COPIES),
    Group(signature_of(algorithms, "cuda_faults::algorithms"), ALGORITHMS),
    Group(signature_of(inline_ptx, "cuda_faults::inline_ptx"), INLINE_PTX),
    Group(
        signature_of(named_barriers, "cuda_faults::named_barriers"),
        NAMED_BARRIERS,
        folder="barriers",
    ),
)
IN_TORCH = Group(signature_of(behind_torch, "cuda_faults::behind_torch"), BEHIND_TORCH, "torch")
RIGHT = Group(signature_of(unusual, "cuda_faults::unusual"), UNUSUAL)
