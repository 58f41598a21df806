"""Generate C++ from exported YAML by `torchnpugen`, and compile it and TorchAir's graphs.

``make npu`` runs this by `headers.py`, which unpacks torch_npu's wheel. The steps are those of
op-plugin's ``examples/aclnn_extension/gen.sh``. Nothing runs on a device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch
from emulated_cann import HERE

import opsmith
from opsmith.kernels.toolchain.torch_paths import torch_paths
from opsmith.sources.importing import import_all

ROOT = HERE.parents[1]
OWN = ROOT / "tests" / "targets" / "op_plugin" / "op_plugin_operators.py"
GALLERY = ("add_custom", "rms_norm", "bev_pool_v2", "paged_attention", "int4_linear")
#: Gallery and examples; the dtype of rfft's result, complex, follows from no argument.
FILES = (
    *(f"gallery/{name}/{name}.py" for name in GALLERY),
    *(
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "examples" / "todays_operators").glob("*.py"))
        if path.stem != "rfft"
    ),
)
VERSION = torch.__version__.split("+")[0]
CONFIG = "op_plugin/config/v{}r{}".format(*VERSION.split("."))
FUNCTIONS = f"{CONFIG}/op_plugin_functions.yaml"
STEPS = {
    "gen_op_plugin_functions": {
        "version": VERSION,
        "output_dir": f"{CONFIG}/",
        "source_yaml": "npu_custom.yaml",
    },
    "gen_derivatives": {
        "version": VERSION,
        "output_dir": f"{CONFIG}/",
        "source_yaml": "derivatives.yaml",
    },
    "gen_op_backend": {
        "version": VERSION,
        "output_dir": "op_plugin/",
        "source_yaml": FUNCTIONS,
        "deprecate_yaml": "deprecated.yaml",
    },
    "struct.gen_struct_opapi": {
        "output_dir": "op_plugin/ops/opapi/",
        "native_yaml": FUNCTIONS,
        "struct_yaml": "npu_custom.yaml",
    },
    "gen_backend_stubs": {
        "output_dir": "torch_npu/csrc/aten",
        "source_yaml": "backend.yaml",
        "impl_path": "torch_npu/csrc/aten",
        "op_plugin_impl_path": "op_plugin/ops",
        "op_plugin_yaml_path": FUNCTIONS,
    },
}
SOURCES = (
    "op_plugin/ops/opapi/StructKernelNpuOpApiEverything.cpp",
    "op_plugin/OpInterfaceEverything.cpp",
    "torch_npu/csrc/aten/CustomRegisterSchema.cpp",
)
#: What TorchAir's graphs hold of the operators that `torchair_graphs.py` compiles.
GRAPHS = [
    {
        "type": "Scaled",
        "inputs": ["x", "weight"],
        "outputs": ["out"],
        "attributes": {"eps": 0.5},
    },
    {
        "type": "Mixed",
        "inputs": ["x", "bias"],
        "outputs": ["out0", "out1", "out2"],
        "attributes": {
            "count": 2,
            "eps": float(torch.tensor(1e-6)),
            "flip": False,
            "halves": [7],
            "mode": "mean",
            "size": [3, 5],
            "steps": [1, 2],
        },
    },
    {
        "type": "Joined",
        "inputs": ["xs0", "xs1", "halves", "mask"],
        "outputs": ["out0", "out1"],
        "attributes": {},
    },
    {
        "type": "Moved",
        "inputs": ["state", "x"],
        "outputs": ["state", "out"],
        "attributes": {"rate": 0.25},
    },
]


def check(wheel: Path) -> None:
    """Check what is exported against an unpacked wheel of torch_npu."""
    own, others = import_all([str(OWN)]), import_all([str(ROOT / file) for file in FILES])
    folder, graphs = wheel / "exported", wheel / "for_graphs"
    opsmith.export([*own, *others], target="op_plugin", out=folder, say=None)
    opsmith.export(own, target="op_plugin", out=graphs, say=None)
    generate(folder, wheel / "generator")
    compile_generated(folder, wheel / "torch_npu" / "include")
    print(f"{len(own) + len(others)} operators: what torchnpugen generates compiles")
    command = [HERE / "torchair_graphs.py", wheel / "torch_npu" / "dynamo", graphs]
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, *command], env=environment, check=True, capture_output=True, text=True
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == GRAPHS, done.stdout
    print(f"{len(GRAPHS)} graphs: TorchAir's Python converts the operators")


def generate(folder: Path, generator: Path) -> None:
    """Run torchnpugen over a folder that was exported."""
    for made in (CONFIG, "op_plugin/ops/opapi", "torch_npu/csrc/aten", "torch_npu/utils"):
        (folder / made).mkdir(parents=True)
    (folder / "derivatives.yaml").write_text("all_version: [v2.13]\nbackward: []\n")
    (folder / "deprecated.yaml").write_text("deprecated:\n")
    (folder / "backend.yaml").write_text("backend: NPU\ncpp_namespace: at_npu::native\n")
    environment = {
        **os.environ,
        "PYTHONPATH": str(generator),
        "PYTORCH_VERSION": VERSION,
        "ACLNN_EXTENSION_SWITCH": "TRUE",
        "ACLNN_EXTENSION_PATH": str(folder),
        "PYTORCH_CUSTOM_DERIVATIVES_PATH": str(folder / CONFIG / "derivatives.yaml"),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    for module, options in STEPS.items():
        words = [f"--{name}={value}" for name, value in options.items()]
        command = [sys.executable, "-m", f"torchnpugen.{module}", *words]
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def compile_generated(folder: Path, npu: Path) -> None:
    """Compile what torchnpugen generated against torch_npu's own headers."""
    paths = torch_paths()
    assert paths is not None
    third = npu / "third_party"
    include = [folder, npu, third / "acl" / "inc", third / "hccl" / "inc", third / "op-plugin"]
    include += [*paths.include, Path(sysconfig.get_paths()["include"])]
    words = [f"-I{path}" for path in include]
    macro = "-DCURRENT_VERSION=V{}R{}".format(*VERSION.split("."))
    for source in SOURCES:
        command = ["g++", "-std=c++20", "-fsyntax-only", "-w", macro, *words, source]
        subprocess.run(command, cwd=folder, check=True)
