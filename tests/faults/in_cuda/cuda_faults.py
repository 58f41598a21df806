"""The planted faults of CUDA kernels beside the same without them; and unusual right kernels."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from algorithm_faults import ALGORITHMS
from jaxtyping import Float32
from right_results import (
    any_above_half,
    copied,
    count,
    first,
    greatest,
    greatest_before,
    neighbours,
    reversed_,
    squared,
    summed,
    sums_before_in_warps,
    sums_of_four,
    total,
    total_of_96,
    turned,
)
from torch import Tensor

from opsmith.checks import harness
from opsmith.checks.harness import Fault, Phase
from opsmith.kernels import kernel_source
from opsmith.kernels.cuda_emulator import emulated
from opsmith.signature import Signature, signature_of

HERE = Path(__file__).parent


def faulty(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def orders(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def collectives(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
    return x


def algorithms(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
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
    "barrier_in_a_branch": (
        100,
        turned,
        "CUDA-BARRIER",
        "reaches __syncthreads: 92 threads returned",
    ),
    "return_before_barrier": (100, turned, "CUDA-BARRIER", "reaches __syncthreads: 92 threads"),
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


#: The same of faults in the order of accesses and in launches; and the name in the comment that
#: marks the lines, where these are not in the kernel itself.
ORDERS = {
    "fence_before_the_store": (200, total, "CUDA-RACE", "no order of these blocks", "last_sum"),
    "fence_after_the_ticket": (200, total, "CUDA-RACE", "no order of these blocks", "last_sum"),
    "fence_of_a_block": (200, total, "CUDA-RACE", "no order of these blocks", "last_sum"),
    "count_in_block_scope": (
        200,
        total,
        "CUDA-RACE",
        "the scope of such an operation is one block",
        "",
    ),
    "ticket_without_barrier": (
        200,
        total,
        "CUDA-RACE",
        "(shared memory 'last'|scratch memory)",
        "ticket_without_barrier last_sum",
    ),
    "only_one_thread_fences": (200, reversed_, "CUDA-RACE", "no order of these blocks", ""),
    "flag_set_without_fence": (100, total, "CUDA-RACE", "shared memory 'tile'", "flag"),
    "flag_read_without_fence": (100, total, "CUDA-RACE", "shared memory 'tile'", "flag"),
    "flag_stored_relaxed": (100, first, "CUDA-RACE", "shared memory 'first'", "reference"),
    "flag_loaded_relaxed": (100, first, "CUDA-RACE", "shared memory 'first'", "reference"),
    "counted_by_a_reference_of_a_block": (
        200,
        count,
        "CUDA-RACE",
        "the scope of such an operation is one block",
        "",
    ),
    "plain_flag": (100, first, "CUDA-RACE", "shared memory 'ready'", ""),
    "lock_without_fences": (200, total, "CUDA-RACE", "a race: .* writes|reads", "locked"),
    "lock_taken_without_fence": (200, total, "CUDA-RACE", "a race: .*", "locked"),
    "lock_released_without_fence": (200, total, "CUDA-RACE", "a race: .*", "locked"),
    "lock_of_a_block_in_a_grid": (
        200,
        total,
        "CUDA-RACE",
        "the scope of such an operation is one block",
        "",
    ),
    "lock_released_by_a_store": (200, total, "CUDA-RACE", "a race: .*", "lock_released_by_a_store"),
    "waits_for_a_later_block": (
        200,
        copied,
        "CUDA-BARRIER",
        "CUDA does not promise that another block",
        "",
    ),
    "counter_read_and_written": (100, count, "CUDA-RACE", "shared memory 'count'", ""),
    "maximum_read_and_written": (100, greatest, "CUDA-RACE", "shared memory 'most'", ""),
    "sum_read_before_it_is_complete": (100, total, "CUDA-RACE", "shared memory 'total'", ""),
    "histogram_without_atomics": (100, count, "CUDA-RACE", "shared memory 'bins'", ""),
    "variable_without_atomics": (200, total, "CUDA-RACE", "variable 'device_total'", ""),
    "variable_written_by_one_block": (200, copied, "CUDA-RACE", "variable 'device_table'", ""),
    "variable_past_its_end": (
        200,
        copied,
        "MEMORY-BOUNDS",
        "past the end of variable 'device_table'",
        "",
    ),
    "ldg_of_what_was_written": (
        100,
        copied,
        "CUDA-RACE",
        "__ldg is for memory that the kernel does not write",
        "",
    ),
    "written_after_ldg": (
        100,
        copied,
        "CUDA-RACE",
        "__ldg is for memory that the kernel does not write",
        "",
    ),
    "syncwarp_of_half_the_lanes": (
        40,
        total,
        "CUDA-RACE",
        "neither __syncwarp nor __syncthreads",
        "",
    ),
    "syncwarp_between_warps": (100, turned, "CUDA-RACE", "no __syncthreads", ""),
    "last_round_without_barrier": (100, total, "CUDA-RACE", "shared memory 'tile'", ""),
    "one_buffer_for_two_rounds": (200, turned, "CUDA-RACE", "shared memory 'buffers'", ""),
    "vector_in_unaligned_shared": (100, copied, "CUDA-ALIGNMENT", "not a multiple of 16", ""),
    "calls_the_host": (100, copied, "CUDA-HOST", "calls of_the_host, a function of the host", ""),
    "default_stream": (100, copied, "CUDA-LAUNCH", "the default stream", ""),
    "no_stream": (100, copied, "CUDA-LAUNCH", "the default stream", ""),
    "copy_on_the_default_stream": (
        100,
        copied,
        "CUDA-LAUNCH",
        "cudaMemcpyAsync is on the default stream",
        "",
    ),
    "set_on_the_default_stream": (
        100,
        copied,
        "CUDA-LAUNCH",
        "cudaMemsetAsync is on the default stream",
        "",
    ),
    "more_threads_than_bounds": (
        100,
        copied,
        "CUDA-LAUNCH",
        "__launch_bounds__ promise at most 96 threads",
        "",
    ),
    "rows_along_y": (100, copied, "CUDA-LAUNCH", "65535 along y and z", ""),
    "static_and_dynamic_shared": (
        100,
        copied,
        "CUDA-LAUNCH",
        "40000 bytes of dynamic shared memory and 16384 declared",
        "",
    ),
    "attribute_of_another_kernel": (100, copied, "CUDA-LAUNCH", "of this kernel allows more", ""),
    "more_than_a_device_has": (100, copied, "CUDA-LAUNCH", "no device has them", ""),
    "copy_past_a_variable": (
        100,
        copied,
        "MEMORY-BOUNDS",
        "past the end of variable 'device_table'",
        "",
    ),
}

#: The same of faults with CUB's collectives and numbers of 8 bits.
COLLECTIVES = {
    "memory_of_a_reduction_used_again": (100, total_of_96, "CUDA-RACE", "shared memory 'room'", ""),
    "sum_taken_by_all": (90, total, "", "^$", ""),
    "sum_in_a_branch": (90, total, "CUDA-BARRIER", "__syncthreads", ""),
    "sum_of_those_that_have_none": (90, total, "", "^$", ""),
    "declared_for_other_threads": (
        90,
        total,
        "CUDA-UNDEFINED",
        "cub::BlockReduce in a block of another size than it was declared for",
        "",
    ),
    "one_memory_for_two_warps": (90, total, "CUDA-RACE", "shared memory 'rooms'", ""),
    "memory_in_a_union": (384, summed, "CUDA-RACE", "shared memory 'room'", ""),
    "load_past_the_end": (383, copied, "MEMORY-BOUNDS", "past the end of argument 'x'", ""),
    "store_past_the_end": (383, copied, "MEMORY-BOUNDS", "past the end of the result", ""),
    "scan_in_rounds": (200, summed, "CUDA-RACE", "shared memory 'room'", ""),
    "places_by_an_exclusive_sum": (
        90,
        reversed_,
        "MEMORY-BOUNDS",
        "past the end of the result",
        "",
    ),
    "not_clamped": (100, copied, "", "^$", ""),
    "pasted_name": (
        100,
        copied,
        "MEMORY-BOUNDS",
        "pasted_name.*past the end of the result|past",
        "",
    ),
}

COLLECTIVES |= {
    "own_value_in_the_sum_before": (90, sums_before_in_warps, "", "^$", ""),
    "own_value_in_the_most_before": (90, greatest_before, "", "^$", ""),
    "copy_not_waited_for": (90, reversed_, "CUDA-RACE", "fills by an asynchronous copy", ""),
    "copy_not_committed": (90, copied, "CUDA-RACE", "has not waited for", ""),
    "copy_waited_for_by_its_thread_alone": (
        90,
        reversed_,
        "CUDA-RACE",
        "asynchronous copy|shared memory 'tile'.*no(ne)? .*__syncthreads|__syncwarp",
        "",
    ),
    "second_stage_read_early": (150, copied, "CUDA-RACE", "fills by an asynchronous copy", ""),
    "copy_of_a_group_not_waited_for": (90, reversed_, "CUDA-RACE", "asynchronous copy", ""),
    "sum_not_cleared": (256, squared, "", "^$", ""),
    "product_of_some_lanes": (256, squared, "CUDA-UNDEFINED", "for all lanes", "multiply"),
    "matrix_without_barrier": (256, squared, "CUDA-RACE", "neither __syncwarp", "multiply"),
    "matrix_of_odd_stride": (256, squared, "CUDA-UNDEFINED", "multiple of 16 bytes", "multiply"),
    "matrix_past_the_end": (
        256,
        squared,
        "MEMORY-BOUNDS",
        "past the end of the result",
        "multiply",
    ),
    "matrix_by_columns": (256, squared, "", "^$", ""),
}

#: Right kernels of unusual form: for how many elements, and what is right.
UNUSUAL = {
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
}


def phase_of(seed, fill=0xFF):
    return Phase(seed=seed, fill=fill, emulated=True)


@dataclass(frozen=True)
class Group:
    """Kernels of one file."""

    signature: Signature
    faults: dict

    @cached_property
    def source(self):
        return HERE / f"{self.signature.name if self.faults is not FAULTS else 'faults'}.cu"

    def built(self):
        """Compile the file for the CPU."""
        source = kernel_source(self.signature, "cuda", self.source)
        return harness.build(emulated(source, watched=True), emulated=True)

    def case_of(self, name, wrong):
        """Return the arguments of a call, and the right result."""
        count, right, *_ = self.faults[name]
        x = torch.rand(count, generator=torch.Generator().manual_seed(count)) + 0.25
        last = {"kernel": name} if self.faults is UNUSUAL else {"fault": name, "wrong": wrong}
        return {"x": x, **last}, right(x).to(torch.float32)

    def said_of_right(self, build, name, phase):
        """Return what is said of the kernel without a fault: nothing, if all is well."""
        case, right = self.case_of(name, False)
        try:
            ((one,),) = harness.run(build, self.signature, [case], [phase]).calls
        except Fault as found:
            return str(found)
        if one.refused or one.remarks:
            return f"refused: {one.refused}, {one.remarks}"
        return "" if torch.allclose(one.results[0], right) else "wrong results"

    def outcome(self, build, name, phase):
        """Return the code of what was found, and the words; no code for wrong results alone."""
        try:
            case, right = self.case_of(name, True)
            ((one,),) = harness.run(build, self.signature, [case], [phase]).calls
        except Fault as found:
            return found.code, str(found)
        assert not torch.allclose(one.results[0], right), "no fault was found"
        return "", "\n".join(one.remarks)

    def places(self, name):
        """Return the lines that are marked in a fault's kernel, or by its name."""
        lines = self.source.read_text().splitlines()
        mark = self.faults[name][4] if len(self.faults[name]) > 4 else ""
        marks = tuple(f"// FAULT {one}" for one in (mark or name).split())
        named = [n for n, text in enumerate(lines, 1) if text.endswith(marks)]
        start = next(n for n, text in enumerate(lines) if re.search(rf"\b{name}\b", text))
        end = next(
            (n for n in range(start + 1, len(lines)) if lines[n] in ("}", "  }")), len(lines)
        )
        end = next((n for n in range(start + 1, len(lines)) if lines[n] == "}"), end)
        inside = [n for n in range(start + 1, end + 1) if lines[n - 1].endswith("// FAULT")]
        return [f"{self.source}:{line}" for line in named or inside]


GROUPS = (
    Group(signature_of(faulty, "cuda_faults::faulty"), FAULTS),
    Group(signature_of(orders, "cuda_faults::orders"), ORDERS),
    Group(signature_of(collectives, "cuda_faults::collectives"), COLLECTIVES),
    Group(signature_of(algorithms, "cuda_faults::algorithms"), ALGORITHMS),
)
RIGHT = Group(signature_of(unusual, "cuda_faults::unusual"), UNUSUAL)
