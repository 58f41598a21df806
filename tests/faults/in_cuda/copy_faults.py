"""The planted faults with asynchronous copies and pipelines."""

from right_results import copied, reversed_, turned, turned_by_64

#: By name: how many elements show the fault, what is right, the code, the words, and the mark.
COPIES = {
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
    "stage_of_a_thread_not_waited_for": (
        150,
        turned,
        "CUDA-RACE",
        "asynchronous copy",
        "thread_stage",
    ),
    "stage_of_a_thread_without_barrier": (
        150,
        turned,
        "CUDA-RACE",
        "shared memory 'tiles'",
        "thread_stage",
    ),
    "last_stage_waited_for_too_little": (
        150,
        turned,
        "CUDA-RACE",
        "asynchronous copy",
        "thread_stage",
    ),
    "stage_of_a_block_not_waited_for": (
        150,
        turned,
        "CUDA-RACE",
        "shared memory 'tiles'",
        "block_stage",
    ),
    "stage_never_released": (
        250,
        turned,
        "CUDA-BARRIER",
        "waits for another value of element 0 of shared memory 'state'",
        "block_acquires",
    ),
    "one_buffer_for_two_stages": (
        150,
        turned,
        "CUDA-RACE",
        "shared memory 'tiles'",
        "block_copies block_stage",
    ),
    "stage_of_others_not_waited_for": (
        150,
        turned_by_64,
        "CUDA-RACE",
        "shared memory 'tiles'",
        "warp_stage",
    ),
    "stage_filled_before_it_is_free": (
        150,
        turned_by_64,
        "CUDA-RACE",
        "shared memory 'tiles'",
        "warp_copies",
    ),
    "stage_released_before_it_is_read": (
        150,
        turned_by_64,
        "CUDA-RACE",
        "shared memory 'tiles'",
        "warp_copies",
    ),
    "size_of_another_alignment": (
        90,
        copied,
        "CUDA-UNDEFINED",
        "no multiple of its cuda::aligned_size_t",
        "",
    ),
}
