"""The C++ in the YAML gives results the sizes and dtypes that the operators' results have.

`torchnpugen` is in torch_npu's wheel, which `make npu` downloads. Here its part is played in a few
lines: variables, sizes and dtypes become ``auto`` variables of a function with the parameters that
`torchgen` gives the schema, results are allocated beside the first tensor, and the API is passed
what ``exec`` lists. An argument of a type that torch_npu does not convert does not compile.
"""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import op_plugin_operators as operators
import pytest
import torch
import yaml
from torchgen.api.types import DispatcherSignature
from torchgen.local import parametrize
from torchgen.model import FunctionSchema

import opsmith
from opsmith.kernels.toolchain.torch_paths import torch_paths

HEAD = """
#include <torch/extension.h>
#include <functional>

// What EXEC_NPU_CMD of torch_npu converts or passes on, among what functions are given.
void pass(const at::Tensor&) {}
void pass(const std::optional<at::Tensor>&) {}
void pass(const at::TensorList&) {}
void pass(const c10::SymIntArrayRef&) {}
void pass(int64_t) {}
void pass(double) {}
void pass(bool) {}
void pass(char* text) { TORCH_CHECK(std::string(text) == "mean"); }
template <typename T>
void pass(const T&) = delete;
"""


def functions(folder: Path) -> Iterator[tuple[str, str]]:
    """Each function's schema and C++."""
    for entry in yaml.safe_load((folder / "npu_custom.yaml").read_text())["custom"]:
        schema = FunctionSchema.parse(entry["func"])
        opapi = entry["gen_opapi"]
        tensors = [a.name for a in schema.arguments.flat_all if str(a.type) == "Tensor"]
        tensors += [f"{a.name}[0]" for a in schema.arguments.flat_all if str(a.type) == "Tensor[]"]
        first = min(tensors, key=lambda name: entry["func"].index(name.partition("[")[0]))
        lines = [f"auto {name} = {cpp};" for name, cpp in opapi.get("new_params", {}).items()]
        results = [name for name in opapi if name not in ("new_params", "exec")]
        for name in results:
            size, dtype = opapi[name]["size"], opapi[name]["dtype"]
            size = f"{size}.sizes()" if size in tensors else size
            dtype = f"{dtype}.scalar_type()" if dtype in tensors else dtype
            lines += [f"auto size_{name} = {size};", f"auto dtype_{name} = {dtype};"]
            options = f"{first}.options().dtype(dtype_{name})"
            lines.append(f"at::Tensor {name} = at::empty(size_{name}, {options});")
        lines += [f"pass({name});" for name in opapi["exec"].split(", ")[1:]]
        made = ", ".join(results)
        lines.append(f"return std::make_tuple({made});" if results[1:] else f"return {made};")
        with parametrize(
            use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False
        ):
            signature = DispatcherSignature.from_schema(schema, prefix="made_").defn()
        yield entry["func"], f"{signature} {{\n  " + "\n  ".join(lines) + "\n}\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The functions as operators of PyTorch."""
    folder = tmp_path_factory.mktemp("op_plugin")
    opsmith.export(operators.EVERY, target="op_plugin", out=folder / "out", say=None)
    listed = dict(functions(folder / "out"))
    names = {func: re.match(r"\w+", func)[0] for func in listed}
    definitions = "\n".join(f'  m.def(R"({func})", &made_{names[func]});' for func in listed)
    text = "\n".join([HEAD, *listed.values(), "TORCH_LIBRARY(npu_sizes, m) {", definitions, "}\n"])
    (folder / "functions.cpp").write_text(text)
    paths = torch_paths()
    assert paths is not None
    python = sysconfig.get_paths()["include"]
    include = [f"-I{path}" for path in (*paths.include, python)]
    library = folder / "libfunctions.so"
    command = ["g++", "-std=c++20", "-O0", "-w", "-shared", "-fPIC", *include]
    links = paths.links(["torch_cpu", "c10"])
    command += [str(folder / "functions.cpp"), "-o", str(library), *links]
    subprocess.run(command, check=True)
    torch.ops.load_library(str(library))
    return torch.ops.npu_sizes


X = torch.ones(3, 4)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pooled", (torch.ones(5, 7, 11), 1, 3)),
        ("mixed", (2, X, None, [3, 5], [7])),
        ("pooled", (torch.ones(8), 0, 4)),
        ("pooled", (torch.ones(2, 0, 1), 0, 4)),
        ("mixed", (0, X.half(), torch.ones(4).half(), [3, 0], [])),
        ("scaled", (X, torch.ones(4), 0.5)),
        ("scaled_backward", (X, X, torch.ones(4))),
        ("joined", ([X, X], torch.ones(9), torch.ones(2, dtype=torch.int64))),
        ("moved", (torch.ones(4), torch.ones(4), 0.5)),
        ("stepped", ([X], [X], torch.tensor(1.0))),
    ],
)
def test_results_have_the_sizes_and_dtypes_of_the_operators(built, name, arguments) -> None:
    more = {"mode": "mean"} if name == "mixed" else {}
    wanted = getattr(torch.ops.npu_said, name)(*arguments, **more)
    made = getattr(built, name)(*arguments, **more)
    assert told(made) == told(wanted)


def told(results: Any) -> list[tuple[torch.Size, torch.dtype]]:
    """Sizes and dtypes."""
    listed = [] if results is None else results if isinstance(results, tuple) else (results,)
    return [(one.shape, one.dtype) for one in listed]
