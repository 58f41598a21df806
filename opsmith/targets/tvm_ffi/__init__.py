"""Target ``tvm_ffi``: operators as functions of a tvm-ffi module, for every caller of its ABI."""

from opsmith.targets.exporting.protocol import Option
from opsmith.targets.hosted.target import PackageTarget


class TvmFfiTarget(PackageTarget):
    """Modules of tvm-ffi on the CPU."""

    name = "tvm_ffi"
    title = "tvm-ffi"
    options = (Option("package", "the name of the Python package; by default <namespace>_tvm_ffi"),)
    packages = ("tvm_ffi",)
    install = 'pip install "opsmith[tvm-ffi]"'
    page = "docs/reference/tvm_ffi.md"


TARGET = TvmFfiTarget()
