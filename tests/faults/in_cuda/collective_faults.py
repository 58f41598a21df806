"""The planted faults with collectives of CUB and of groups, numbers of 8 bits and tensor cores."""

from right_results import (
    copied,
    greatest_before,
    reversed_,
    squared,
    summed,
    sums_before_in_warps,
    total,
    total_of_96,
    total_of_exponentials,
)

#: By name: how many elements show the fault, what is right, the code, the words, and the mark.
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
    "own_value_in_the_sum_before": (90, sums_before_in_warps, "", "^$", ""),
    "own_value_in_the_most_before": (90, greatest_before, "", "^$", ""),
    "lanes_of_nothing_meet": (10, total_of_exponentials, "", "^$", ""),
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
    "barrier_of_a_grid": (200, copied, "CUDA-UNDEFINED", "without a cooperative launch", ""),
}
