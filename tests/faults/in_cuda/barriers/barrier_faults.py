"""The planted faults around barriers of some threads of a block, and of copies."""

from right_results import reversed_, turned_by_64

#: By name: how many elements show the fault, what is right, the code, the words, and the mark.
NAMED_BARRIERS = {
    "arrival_taken_for_waiting": (
        150,
        turned_by_64,
        "CUDA-RACE",
        "shared memory 'buffer'",
        "buffer",
    ),
    "buffer_filled_again_at_once": (
        150,
        turned_by_64,
        "CUDA-RACE",
        "shared memory 'buffer'",
        "buffer",
    ),
    "arrival_before_the_last_read": (
        150,
        turned_by_64,
        "CUDA-RACE",
        "shared memory 'buffer'",
        "buffer",
    ),
    "barrier_for_more_threads": (
        60,
        turned_by_64,
        "CUDA-BARRIER",
        "64 threads .* in bar.sync of barrier 1 at .*barrier 1 has had 96 of the 128 threads",
        "waits",
    ),
    "a_warp_does_not_come": (
        60,
        turned_by_64,
        "CUDA-BARRIER",
        "32 threads .* in bar.sync of barrier 1 at .*barrier 1 has had 64 of the 96 threads",
        "waits",
    ),
    "counts_that_differ": (
        60,
        turned_by_64,
        "CUDA-BARRIER",
        "comes to barrier 1 for (64|96) threads, and others to the same barrier for (96|64)",
        "waits arrives",
    ),
    "arrival_at_another_barrier": (
        60,
        turned_by_64,
        "CUDA-BARRIER",
        "barrier 1 has had 64 of the 96 threads.*barrier 2 has had 32 of the 96 threads",
        "waits",
    ),
    "consumers_never_arrive": (
        150,
        turned_by_64,
        "CUDA-BARRIER",
        "32 threads .* in bar.sync of barrier 2 at .*barrier 2 has had 32 of the 96 threads",
        "waits",
    ),
    "count_of_no_whole_warps": (
        60,
        reversed_,
        "CUDA-UNDEFINED",
        "bar.sync is for 60 threads, which is no multiple of the 32 of a warp",
        "counts",
    ),
    "count_for_one_warp": (60, reversed_, "CUDA-RACE", "shared memory 'tile'", "tile"),
    "barrier_16": (
        60,
        reversed_,
        "CUDA-UNDEFINED",
        "names barrier 16, and a block has those from 0 to 15",
        "counts",
    ),
    "barrier_0_for_some": (
        90,
        reversed_,
        "CUDA-BARRIER",
        "barrier 0 is for 64 threads, and it is that of bar.sync, where .* waits for all",
        "",
    ),
    "warps_at_two_barriers": (
        90,
        reversed_,
        "CUDA-BARRIER",
        "barrier 5 has had 32 of the 96 threads.*barrier 6 has had 64 of the 96 threads",
        "",
    ),
    "barrier_for_half_a_warp": (
        60,
        reversed_,
        "CUDA-BARRIER",
        "16 threads .* in bar.sync of barrier 1 with mask 0xffffffff",
        "",
    ),
}
