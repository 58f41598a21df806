"""Emulate Ascend C whose host code is for torch_npu: as CANN's guide on PyTorch has it."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jaxtyping import Float16
from torch import Tensor

import opsmith
from opsmith import checks

COMMAND = "torch_npu/csrc/framework/OpCommand.h"
Rows = Float16[Tensor, "8 1024"]
KERNEL = """
#include <torch/extension.h>
#include "torch_npu/csrc/core/npu/NPUStream.h"
#include "kernel_operator.h"

constexpr uint32_t kTile = 128;

class Adder {
 public:
  __aicore__ inline void Init(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t count) {
    own = count / AscendC::GetBlockNum();
    const uint32_t begin = own * AscendC::GetBlockIdx();
    x_.SetGlobalBuffer((__gm__ half*)x + begin, own);
    y_.SetGlobalBuffer((__gm__ half*)y + begin, own);
    z_.SetGlobalBuffer((__gm__ half*)z + begin, own);
    pipe.InitBuffer(xs, 2, kTile * sizeof(half));
    pipe.InitBuffer(ys, 2, kTile * sizeof(half));
    pipe.InitBuffer(zs, 2, kTile * sizeof(half));
  }
  __aicore__ inline void Process() {
    for (uint32_t at = 0; at < own; at += kTile) {
      AscendC::LocalTensor<half> x = xs.AllocTensor<half>(), y = ys.AllocTensor<half>();
      AscendC::DataCopy(x, x_[at], kTile);
      AscendC::DataCopy(y, y_[at], kTile);
      xs.EnQue(x);
      ys.EnQue(y);
      x = xs.DeQue<half>();
      y = ys.DeQue<half>();
      AscendC::LocalTensor<half> z = zs.AllocTensor<half>();
      AscendC::Add(z, x, y, kTile);
      zs.EnQue<half>(z);
      xs.FreeTensor(x);
      ys.FreeTensor(y);
      z = zs.DeQue<half>();
      AscendC::DataCopy(z_[at], z, kTile);
      zs.FreeTensor(z);
    }
  }

 private:
  AscendC::TPipe pipe;
  AscendC::TQue<AscendC::TPosition::VECIN, 2> xs, ys;
  AscendC::TQue<AscendC::TPosition::VECOUT, 2> zs;
  AscendC::GlobalTensor<half> x_, y_, z_;
  uint32_t own;
};

__global__ __aicore__ void add_elements(GM_ADDR x, GM_ADDR y, GM_ADDR z, uint32_t count) {
  Adder adder;
  adder.Init(x, y, z, count);
  adder.Process();
}

namespace own_ops {
at::Tensor NAME(const at::Tensor& x, const at::Tensor& y) {
  TORCH_CHECK(x.device().type() == c10::DeviceType::PrivateUse1, "x has to be on an NPU");
  auto stream = c10_npu::getCurrentNPUStream().stream(false);
  at::Tensor z = at::empty_like(x);
  uint32_t blocks = 8;
  uint32_t count = x.numel();
  add_elements<<<blocks, 0, stream>>>((uint8_t*)(x.mutable_data_ptr()),
      (uint8_t*)(y.mutable_data_ptr()), (uint8_t*)(z.mutable_data_ptr()), count);
  return z;
}
}  // namespace own_ops
"""
BLOCKS = """
TORCH_LIBRARY(own_ops, m) { m.def("NAME(Tensor x, Tensor y) -> Tensor"); }
TORCH_LIBRARY_IMPL(own_ops, PrivateUse1, m) { m.impl("NAME", TORCH_FN(own_ops::NAME)); }
"""
MODULE = """
PYBIND11_MODULE(own_ops, m) {
  m.doc() = "adds";
  m.def("NAME", &own_ops::NAME, "");
}
"""


def added(folder: Path, name: str, source: str) -> opsmith.Operator:
    @opsmith.op(f"own_ops::{name}", autograd="reference")
    def add(
        x: Float16[Tensor, "8 1024"], y: Float16[Tensor, "8 1024"]
    ) -> Float16[Tensor, "8 1024"]:
        return x + y

    (folder / f"{name}.cpp").write_text(source.replace("NAME", name))
    add.register_kernel("npu", source=folder / f"{name}.cpp", language="ascendc", api="torch")
    return add


def row(operator: opsmith.Operator) -> checks.Row:
    report = checks.run(operator, select=["ascendc-on-cpu"], isolate=False, examples=3)
    (found,) = [row for row in report.rows if row.check == "ascendc-on-cpu"]
    return found


def call(folder: Path, name: str, source: str) -> None:
    """Check an emulated kernel and call it, as a user does; see the end of this file."""
    add = added(folder, name, source)
    x, y = torch.rand(2, 8, 1024, dtype=torch.float16).unbind()
    x.requires_grad_()
    with opsmith.emulate("npu"):
        assert torch.equal(add(x, y), x + y)
        assert add(x, y).is_cpu
        compiled = torch.compile(lambda x, y: add(x, y) * 2, fullgraph=True)
        assert torch.equal(compiled(x, y), (x + y) * 2)
        (gradient,) = torch.autograd.grad(add(x, y).sum(), x)
        assert torch.equal(gradient, torch.ones_like(x))
        with pytest.raises(opsmith.OpsmithError, match="dimension 0 is 4, expected 8"):
            add(x, y[:4])
    assert torch.equal(add(x, y), x + y)  # by the reference again
    assert row(add).status == "passed"


# A process has one device PrivateUse1, which other tests bring, too.
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize("way", ["blocks", "module"])
def test_host_code_for_torch_npu_is_checked_and_called_with_tensors_of_the_cpu(tmp_path, way):
    ran = subprocess.run(
        [sys.executable, __file__, str(tmp_path), way], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


CLASH = """
import sys

import pytest
import torch

import opsmith

# As a vendor's package does, when it is imported.
vendor = torch.library.Library("_", "IMPL")
vendor.fallback(torch.library.fallthrough_kernel, "PrivateUse1")
sys.path.insert(0, {tests!r})
from test_ascendc_library import BLOCKS, KERNEL, Path, added

add, x = added(Path({folder!r}), "called", KERNEL + BLOCKS), torch.rand(8, 1024).half()
with opsmith.emulate("npu"), pytest.raises(opsmith.MissingDependencyError, match="of its own"):
    add(x, x)
"""


# It compiles what the test above compiles.
@pytest.mark.long
def test_a_process_with_a_device_of_its_own_says_so(tmp_path):
    program = CLASH.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")


# The second case compiles for half a minute; the first ends at the header.
@pytest.mark.slow(cases=1)
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "commanded",
            (
                '#include "kernel',
                '#include "torch_npu/csrc/framework/OpCommand.h"\n#include "kernel',
            ),
            f"{COMMAND}, at commanded.cpp:4",
        ),
        ("usual", ("getCurrent", "getDefault"), "getDefaultNPUStream, at usual.cpp:57"),
    ],
)
def test_what_of_torch_npu_is_not_emulated_is_not_applicable_and_named(
    tmp_path, name, change, said
):
    found = row(added(tmp_path, name, KERNEL.replace(*change) + BLOCKS))
    assert (found.status, found.message) == (
        "not applicable",
        f"opsmith does not emulate {said}",
    )


# The test above states that a right kernel passes.
@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "change", "code", "said"),
    [
        (
            "hurried",
            ("zs.EnQue<half>(z);\n      xs", "xs"),
            "OPS-NPU-QUEUE",
            "DeQue",
        ),
        (
            "beyond",
            ("(z_[at], z", "(z_[at + 16], z"),
            "OPS-MEMORY-BOUNDS",
            "a tensor of sizes [8, 1024], made by the host code",
        ),
    ],
)
def test_the_row_finds_faults_behind_host_code_for_torch_npu(tmp_path, name, change, code, said):
    source = KERNEL.replace(*change).replace("blocks = 8", "blocks = 1")
    found = row(added(tmp_path, name, source + BLOCKS))
    assert (found.status, found.code) == ("failed", code)
    assert said in found.message


if __name__ == "__main__":
    call(Path(sys.argv[1]), "called", KERNEL + (BLOCKS if sys.argv[2] == "blocks" else MODULE))
