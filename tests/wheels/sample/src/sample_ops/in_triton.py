"""A kernel in Triton, which is imported when a call needs it."""

import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, weight_ptr, out_ptr, C):
    row = tl.program_id(0) * C
    for column in range(C):
        x = tl.load(x_ptr + row + column)
        tl.store(out_ptr + row + column, tl.load(weight_ptr + column) * x * x)
