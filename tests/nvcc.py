"""Compile the gallery's CUDA kernels with nvcc where no GPU is, for the GPUs of OPSMITH_CUDA_ARCHS.

It shows that nvcc takes what `cuda-on-cpu` proves, for a PyTorch without CUDA too: its libraries
are left unresolved, so that what is built is not loaded.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "gpu")]
MODULES = (
    "gallery.identity_conv.identity_conv",
    "gallery.my_add.my_add",
    "gallery.bev_pool_v2.bev_pool_v2",
    "gallery.deform_conv2d.deform_conv2d",
    "published",
)


def main() -> int:
    """Compile every kernel; 1 where one does not compile, 2 without nvcc."""
    from opsmith.errors import BuildError, MissingError
    from opsmith.kernels.languages import cuda
    from opsmith.kernels.nvcc import usable_nvcc
    from opsmith.operators import registry

    try:
        usable_nvcc("make nvcc")
    except MissingError as error:
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
        except BuildError as error:
            print(f"✗ {operator.name}\n{error}", flush=True)
            failed += 1
        else:
            print(f"✓ {operator.name}  {time.monotonic() - started:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
