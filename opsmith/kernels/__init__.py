"""Build and load kernels from their source files: headers, adapters, compiler, cache.

The layers above use::

    source = kernel_source(signature, "cpu", Path("scale.cpp"), strided=False, flags=("-Wall",))
    source.build()         # -> Path of the library, built or cached
    library = source.load()          # -> Library, in this process
    library.register()               # the operator's kernel for the device, until unregister()
    library.calls()                  # number of the kernel's calls in this process
    library.dtypes()                 # ("float32", "float64", ...): those of OPSMITH_KERNEL

    # A target with its own adapter for the same kernel source:
    adapters.source(template, signature, "cpu", ...)    # -> str
    source.build_beside("scale__mine", Generated(key, render_files), torch="none", what="…")

`opsmith.kernels.adapters` explains how adapters are written. ``include/opsmith/kernel.h`` describes
the interface for kernels, ``include/opsmith/abi.h`` the interface for adapters.

Environment variables choose compilers, processors and the cache: see
``docs/reference/environment.md``.
"""

from opsmith.kernels.codegen.cache_key import generated_key as generated_key
from opsmith.kernels.codegen.cpp_names import calls_symbol as calls_symbol
from opsmith.kernels.language_registry import kernel_source as kernel_source
from opsmith.kernels.languages.torch_library import (
    defines_operator as defines_operator,
    forget_definition as forget_definition,
)
from opsmith.kernels.libraries.loaded_library import Library as Library
from opsmith.kernels.source import KernelSource as KernelSource
from opsmith.kernels.toolchain.devices import (
    DEVICES as DEVICES,
    HOST as HOST,
    Device as Device,
    dispatch_key as dispatch_key,
    find_device as find_device,
    get_device as get_device,
)
from opsmith.kernels.toolchain.recipe import Recipe as Recipe
from opsmith.kernels.toolchain.units import INCLUDE as INCLUDE, Generated as Generated, Unit as Unit
from opsmith.system.files import cache_folder as cache_folder
