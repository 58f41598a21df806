"""`bev_pool_v2` and its backward with kernels in Ascend C, beside those in C++ and CUDA.

    opsmith check gallery/bev_pool_v2/in_ascendc.py --check ascendc-on-cpu

Import it in place of ``bev_pool_v2.py`` where tensors may be on an NPU. Cores add to global memory
at once, so the last bits of a sum depend on their order.
"""

from .bev_pool_v2 import bev_pool_v2, bev_pool_v2_backward

bev_pool_v2.register_kernel("npu", source="bev_pool_v2_npu.cpp", language="ascendc")
bev_pool_v2_backward.register_kernel(
    "npu", source="bev_pool_v2_backward_npu.cpp", language="ascendc"
)
