"""The planted faults of CUDA sources with PyTorch's host code."""

import torch
from right_results import copied, total, turned_by_64

#: By name: how many elements show the fault, what is right, the code, the words, and the mark;
#: `None` where no line is named.
BEHIND_TORCH = {
    "no_barrier": (
        100,
        turned_by_64,
        "CUDA-RACE",
        "shared memory 'tile'",
        "",
    ),
    "default_stream": (100, copied, "CUDA-LAUNCH", "getCurrentCUDAStream", ""),
    "nothing_to_do": (0, copied, "CUDA-LAUNCH", "at least one block", ""),
    "workspace_too_small": (
        100,
        copied,
        "MEMORY-BOUNDS",
        r"past the end of a tensor of sizes \[100\], made by the host code \(100 elements\)",
        "",
    ),
    "sum_not_cleared": (
        100,
        total,
        "",
        r"element 0 of a tensor of sizes \[1\], made by the host code, which nothing had written",
        "",
    ),
    "freed_workspace": (100, lambda x: x + 1, "MEMORY-BOUNDS", "memory that was freed", ""),
    "host_tensor": (100, torch.ones_like, "CUDA-HOST", "memory of the host", ""),
    "read_by_host": (100, copied, "CUDA-HOST", "the host read element 0 of argument 'x'", ""),
    "strides_ignored": (100, lambda x: x.view(2, -1).t().flatten(), "", "^$", ""),
    "rows_for_columns": (100, copied, "MEMORY-BOUNDS", "past the end of argument 'x'", ""),
    "argument_written": (100, copied, "MUTATION-UNDECLARED", "argument 'x'", ""),
    "devices_mixed": (
        100,
        lambda x: x + 1,
        "",
        "on the same device, .* cuda:0 and cpu",
        None,
    ),
}
