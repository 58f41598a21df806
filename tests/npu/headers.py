"""Compile the host code of a kernel in Ascend C against the headers of torch_npu's wheels.

``make npu`` runs this, and with it `op_plugin.py`. Each wheel is downloaded into a folder of its
own and unpacked, but never importable: with a torch_npu that cannot load, PyTorch does not load.
Device code is compiled as the emulation has it, and nothing runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import emulated_cann
import op_plugin

from opsmith.kernels import INCLUDE, adapters
from opsmith.kernels.toolchain.torch_paths import torch_paths
from opsmith.sources.importing import import_all

GALLERY = Path(__file__).parents[2] / "gallery" / "add_custom"
#: That of the PyTorch which is pinned here, and the newest.
WHEELS = ("torch-npu==2.13.0", "torch-npu==2.14.0")
STREAM = """
#include <torch_npu/csrc/core/npu/NPUStream.h>

#include <type_traits>

// What ctx.stream() gives is what torch_npu's own interface gives.
static_assert(std::is_same_v<decltype(c10_npu::getCurrentNPUStream().stream()), aclrtStream>);
static_assert(std::is_same_v<aclrtStream, void*>);
aclrtStream current() { return c10_npu::getCurrentNPUStream().stream(); }
"""


def unpacked(name: str, folder: Path) -> Path:
    """The wheel's headers, with torchnpugen and TorchAir's Python beside them."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, name]
    subprocess.run([*command, "--disable-pip-version-check"], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        archive.extractall(folder, [name for name in names if name.endswith((".h", ".hpp"))])
        archive.extractall(
            folder / "generator", [name for name in names if name.startswith("torchnpugen/")]
        )
        torchair = "torch_npu/dynamo/torchair/"
        archive.extractall(
            folder, [name for name in names if name.startswith(torchair) and name.endswith(".py")]
        )
    return folder / "torch_npu" / "include"


def main() -> None:
    for wheel in WHEELS:
        check(wheel)


def check(wheel: str) -> None:
    """Compile everything against one wheel, and run its generators."""
    paths = torch_paths()
    assert paths is not None
    (operator,) = import_all([str(GALLERY / "add_custom.py")])
    signature = operator.signature
    with tempfile.TemporaryDirectory(prefix="opsmith-npu-") as name:
        folder = Path(name)
        npu = unpacked(wheel, folder)
        texts = adapters.kernel_files(signature)
        texts["adapter.cpp"] = adapters.torch_adapter(signature, "npu", strided=False)
        texts["kernel.cpp"] = emulated_cann.as_calls((GALLERY / "add_custom.cpp").read_text())
        texts["stream.cpp"] = STREAM
        for file, text in texts.items():
            (folder / file).write_text(text)
        # CANN's own headers come before the emulation's, of which device code alone is left.
        own = [folder, INCLUDE, npu / "third_party" / "acl" / "inc", npu]
        include = [*own, *emulated_cann.INCLUDE, *paths.include]
        row = operator.kernels["npu"].source.device_row
        words = [f"-I{path}" for path in include] + [f"-D{one}" for one in row.compile_definitions]
        for file in ("adapter.cpp", "kernel.cpp", "stream.cpp"):
            command = ["g++", "-std=c++20", "-fsyntax-only", "-w", *words, folder / file]
            subprocess.run(command, check=True)
            print(f"{file:12}  compiles against {wheel}")
        op_plugin.check(folder)


if __name__ == "__main__":
    main()
