"""Compile the gallery's CUDA kernels with nvcc where no GPU is, for the GPUs of OPSMITH_CUDA_ARCHS.

It shows that nvcc takes what `cuda-on-cpu` proves, for a PyTorch without CUDA too: its libraries
are left unresolved, so that what is built is not loaded. Those for ONNX Runtime need no PyTorch,
and an ONNX Runtime without CUDA registers them too.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opsmith.kernels import KernelSource

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "gpu")]
MODULES = (
    "gallery.identity_conv.identity_conv",
    "gallery.my_add.my_add",
    "gallery.bev_pool_v2.bev_pool_v2",
    "gallery.deform_conv2d.deform_conv2d",
    "gallery.swiglu.swiglu",
    "gallery.rope.rope",
    "gallery.rms_norm.rms_norm",
    "gallery.add_rms_norm.add_rms_norm",
    "gallery.segment_reduce.segment_reduce",
    "gallery.selective_scan.selective_scan",
    "gallery.moe_gating.moe_gating",
    "gallery.grouped_linear.grouped_linear",
    "gallery.nms.nms",
    "gallery.voxelize.voxelize",
    "gallery.flash_attention.flash_attention",
    "gallery.paged_attention.paged_attention",
    "gallery.int4_linear.int4_linear",
    "published",
)


def main() -> int:
    """Compile every kernel; 1 where one does not compile, 2 without nvcc."""
    from opsmith.errors import BuildError, MissingDependencyError
    from opsmith.kernels.languages import cuda
    from opsmith.kernels.toolchain.nvcc import usable_nvcc
    from opsmith.operators.core import registry

    try:
        usable_nvcc("make nvcc")
    except MissingDependencyError as error:
        print(error, file=sys.stderr)
        return 2
    os.environ.setdefault("OPSMITH_CUDA_ARCHS", "80;90")
    os.environ["LDFLAGS"] = "-Wl,-z,undefs"
    cuda.require_cuda = lambda source, torch: None
    for module in MODULES:
        importlib.import_module(module)
    failed = 0
    for operator in registry.all_operators():
        kernel = operator.kernels.get("cuda")
        if kernel is None or kernel.source is None:
            continue
        started = time.monotonic()
        try:
            kernel.source.build()
            register_in_onnxruntime(kernel.source)
        except (BuildError, RuntimeError) as error:
            print(f"✗ {operator.name}\n{error}", flush=True)
            failed += 1
        else:
            print(f"✓ {operator.name}  {time.monotonic() - started:.0f} s", flush=True)
    return 1 if failed else 0


def register_in_onnxruntime(source: KernelSource) -> None:
    """Build the library for ONNX Runtime's CUDA provider, and have ONNX Runtime take it."""
    from onnxruntime import SessionOptions

    from opsmith.targets.onnxruntime import library

    SessionOptions().register_custom_ops_library(str(library.build(source)))


if __name__ == "__main__":
    sys.exit(main())
