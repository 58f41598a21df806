"""The planted faults around tensor cores in inline PTX."""

from right_results import squared, squared_in_bfloat16

#: By name: how many elements show the fault, what is right, the code, the words, and the mark.
INLINE_PTX = {
    name: (256, right, *found)
    for name, right, *found in (
        ("numbers_not_committed", squared, "CUDA-RACE", "has not waited for", "converted"),
        ("numbers_not_waited_for", squared, "CUDA-RACE", "has not waited for", "converted"),
        ("last_numbers_not_waited_for", squared, "CUDA-RACE", "has not waited for", "converted"),
        (
            "matrix_loaded_without_barrier",
            squared,
            "CUDA-RACE",
            "element .* of shared memory 'tile'.*__syncthreads",
            "converted loaded",
        ),
        (
            "matrix_cleared_while_it_is_loaded",
            squared,
            "CUDA-RACE",
            "element .* of shared memory 'tile'.*no __syncthreads",
            "cleared",
        ),
        (
            "copy_to_an_odd_address",
            squared,
            "CUDA-UNDEFINED",
            "cp.async copies at an address that is not a multiple of the size",
            "unaligned_copy",
        ),
        (
            "rows_at_odd_addresses",
            squared,
            "CUDA-UNDEFINED",
            "ldmatrix and stmatrix take rows at addresses that are multiples of 16",
            "loaded",
        ),
        (
            "pointer_in_place_of_an_address",
            squared,
            "CUDA-UNDEFINED",
            "ldmatrix takes an address that is not one of shared memory",
            "loaded",
        ),
        (
            "row_past_the_end",
            squared_in_bfloat16,
            "MEMORY-BOUNDS",
            "past the end of shared memory 'tile'",
            "loaded",
        ),
        ("rows_of_another_matrix", squared, "", "^$", ""),
        ("matrix_not_transposed", squared_in_bfloat16, "", "^$", ""),
        ("registers_in_another_order", squared, "", "^$", ""),
        ("steps_in_another_order", squared, "", "^$", ""),
        (
            "product_in_a_branch",
            squared,
            "CUDA-BARRIER",
            "32 threads .* in mma.sync with mask 0xffffffff",
            "some_lanes",
        ),
        (
            "product_of_lanes_that_left",
            squared,
            "CUDA-UNDEFINED",
            "for all lanes",
            "lanes_that_left",
        ),
        (
            "results_in_other_rows",
            squared,
            "CUDA-RACE",
            "writes element .* of the result",
            "written",
        ),
        ("half_taken_for_bfloat16", squared, "", "^$", ""),
    )
}
