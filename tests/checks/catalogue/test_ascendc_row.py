"""Have the row `ascendc-on-cpu` decide on kernels, and say what it cannot decide."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks

SOURCE = """
#include <opsmith/ascendc.h>
#include <opsmith/kernel.h>
#include "{name}.h"
using namespace AscendC;

template <typename T>
__global__ __aicore__ void scale(GM_ADDR x_at, GM_ADDR out_at, int32_t n) {{
  GlobalTensor<T> x, out;
  x.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x_at));
  out.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(out_at));
  TPipe pipe;
  TQue<TPosition::VECIN, 1> ins;
  TQue<TPosition::VECOUT, 1> outs;
  pipe.InitBuffer(ins, 2, 64 * sizeof(T));
  pipe.InitBuffer(outs, 2, 64 * sizeof(T)); {buffers}
  for (int32_t at = GetBlockIdx() * 64; at < n; at += GetBlockNum() * 64) {{
    const int32_t size = n - at < 64 ? n - at : 64;
    const DataCopyExtParams bytes{{1, static_cast<uint32_t>(size * sizeof(T)), 0, 0, 0}};
    LocalTensor<T> in = ins.AllocTensor<T>();
    DataCopyPad(in, x[at], bytes, DataCopyPadExtParams<T>{{false, 0, 0, 0}});
    {wait}
    LocalTensor<T> result = outs.AllocTensor<T>();
    {compute}
    outs.EnQue(result);
    ins.FreeTensor(in);
    result = outs.DeQue<T>();
    DataCopyPad(out[at], result, bytes);
    outs.FreeTensor(result);
  }}
}}

template <typename T>
void {name}(const opsmith::Context& ctx, const ascendc_row::{name}_args<T>& a) {{
  if (a.N == 0) return;
  scale<opsmith::device_type<T>><<<4, nullptr, opsmith::npu_stream(ctx)>>>(
      opsmith::gm(a.x), opsmith::gm(a.out), static_cast<int32_t>(a.N));
}}
OPSMITH_KERNEL(ascendc_row, {name}, npu, float, opsmith::half)
"""
WAIT = "ins.EnQue(in); in = ins.DeQue<T>();"
COMPUTE = "Muls(result, in, T(3), size);"
BUFFERS = "TBuf<> own, others; pipe.InitBuffer(own, 4096); pipe.InitBuffer(others, 4096);"


def triple(x: Tensor) -> Tensor:
    return x * 3


def tripled(
    folder: Path,
    name: str,
    wait: str = WAIT,
    compute: str = COMPUTE,
    buffers: str = "",
    right: Callable[[Tensor], Tensor] = triple,
) -> opsmith.Operator:
    @opsmith.op(f"ascendc_row::{name}", autograd="reference")
    def operator(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return right(x)

    source = folder / f"{name}.cpp"
    source.write_text(SOURCE.format(name=name, wait=wait, compute=compute, buffers=buffers))
    operator.register_kernel("npu", source=source, language="ascendc")
    return operator


def row(operator: opsmith.Operator) -> checks.Row:
    report = checks.run(operator, select=["ascendc-on-cpu"], isolate=False, examples=6)
    (found,) = [row for row in report.rows if row.check == "ascendc-on-cpu"]
    return found


@pytest.mark.slow
def test_a_right_kernel_passes_in_each_of_its_dtypes_and_runs_on_tensors_of_the_cpu(tmp_path):
    operator = tripled(tmp_path, "right")
    found = row(operator)
    assert (found.status, found.kernel) == ("passed", "npu")
    assert {sample.dtype for sample in found.samples} == {"float32", "float16"}
    x = torch.rand(100, requires_grad=True)
    with opsmith.emulate("npu"):
        assert torch.equal(operator(x), x * 3)
        assert torch.equal(torch.compile(lambda x: operator(x) + 1, fullgraph=True)(x), x * 3 + 1)
        (gradient,) = torch.autograd.grad(operator(x).sum(), x)
        with pytest.raises(opsmith.OpsmithError, match="the npu kernel has no float64"):
            operator(x.double())
    assert torch.equal(gradient, torch.full_like(x, 3))


def sorted_by_64(x: Tensor) -> Tensor:
    least = torch.full((-len(x) % 64,), -60000.0, dtype=x.dtype)
    return torch.cat([x, least]).view(-1, 64).sort(descending=True).values.flatten()[: len(x)]


def greatest_by_64(x: Tensor) -> Tensor:
    return torch.cat([tile.max().expand(len(tile)) for tile in x.split(64)]) if len(x) else x


#: What is right, and how a tile is computed. The reference is in float64 too.
VALUES = {
    "powers": (
        lambda x: (x.abs() + 1) ** 2.5 + 2 ** x.clamp(-3, 3),
        "auto a = own.Get<T>(), b = others.Get<T>(); Abs(a, in, size); Adds(a, a, T(1), size);"
        "Duplicate(b, T(2.5), size); Power(result, a, b, size); Maxs(b, in, T(-3), size);"
        "Mins(b, b, T(3), size); Power(b, T(2), b, size); Add(result, result, b, size);",
    ),
    "logarithms": (
        lambda x: torch.log2(x.abs() + 1) + torch.log10(x.abs() + 1),
        "auto a = own.Get<T>(), b = others.Get<T>(); Abs(a, in, size); Adds(a, a, T(1), size);"
        "Log2(b, a, own.GetWithOffset<uint8_t>(256, 2048), size); Log10(result, a, size);"
        "Add(result, result, b, size);",
    ),
    "rests": (
        lambda x: torch.fmod(x, 3),
        "auto b = own.Get<T>(); Duplicate(b, T(3), size); Fmod(result, in, b, size);",
    ),
    "counted": (
        triple,
        "SetMaskCount(); SetVectorMask<T, MaskMode::COUNTER>(size);"
        "Muls<T, false>(result, in, T(3), MASK_PLACEHOLDER, 1, {1, 1, 8, 8}); SetMaskNorm();"
        "ResetMask();",
    ),
    "rows": (
        triple,
        "auto rows = own.Get<T>(); const uint32_t all = size, fit = 32 / sizeof(T);"
        "const uint32_t from[] = {all, 1}, to[] = {all, fit};"
        "Broadcast<T, 2, 1>(rows, in, to, from); Sum(result, rows, {all, fit, 3});",
    ),
    "scaled": (
        triple,
        "auto a = own.Get<int32_t>(); auto b = others.Get<half>(); Duplicate(a, 12, size);"
        "SetDeqScale(half(0.25f)); Cast(b, a, RoundMode::CAST_NONE, size);"
        "if constexpr (sizeof(T) == 2) { Mul(result, in, b, size); } else {"
        "auto c = own.Get<float>(); Cast(c, b, RoundMode::CAST_NONE, size);"
        "Mul(result, in, c, size); }",
    ),
    "products": (
        lambda x: x * 3 + x * x,
        "auto a = own.Get<T>(); Duplicate(a, T(0), 128); Axpy<T, T>(a, in, T(3), 32, 2,"
        "{1, 1, sizeof(T), sizeof(T)}); MulAddDst<T, T>(a, in, in, 32, 2,"
        "{1, 1, 1, sizeof(T), sizeof(T), sizeof(T)}); Adds(result, a, T(0), size);",
    ),
    "repeats": (
        greatest_by_64,
        "auto a = own.Get<T>(); Duplicate(a, T(-60000), 64); Adds(a, in, T(0), size);"
        "ReduceMax(others.Get<T>(), a, others.Get<T>()[64], 32, 2, sizeof(T), false);"
        "const T most = others.Get<T>().GetValue(0); Duplicate(result, most, size);",
    ),
    "sorts": (
        sorted_by_64,
        "auto a = own.Get<T>(), pairs = others.Get<T>(); auto places = "
        "own.GetWithOffset<uint32_t>(64, 1024); Duplicate(a, T(-60000), 64);"
        "Adds(a, in, T(0), size);"
        "CreateVecIndex(places.template ReinterpretCast<int32_t>(), 0, 64);"
        "auto buffer = own.GetWithOffset<T>(64, 2048);"
        "Sort<T, true>(pairs, a, places, buffer, 2); Extract(a, places, pairs, 2);"
        "Copy(result, a, 32, 2, {1, 1, 32 * sizeof(T) / 32, 32 * sizeof(T) / 32});",
    ),
}


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("name", VALUES)
def test_values_are_those_of_the_reference(tmp_path, name):
    right, compute = VALUES[name]
    found = row(tripled(tmp_path, name, compute=compute, buffers=BUFFERS, right=right))
    assert (found.status, found.message) == ("passed", "")
    assert {sample.dtype for sample in found.samples} == {"float32", "float16"}


@pytest.mark.slow
def test_a_wrong_kernel_fails_by_its_cause_and_raises_where_it_is_called(tmp_path):
    operator = tripled(tmp_path, "hurried", wait="")
    found = row(operator)
    assert (found.status, found.code) == ("failed", "OPS-NPU-RACE")
    assert "Muls (V of block" in found.message
    assert f"at {tmp_path / 'hurried.cpp'}:24" in found.message
    with opsmith.emulate("npu"), pytest.raises(RuntimeError, match=r"a race: Muls \(V of block"):
        operator(torch.rand(100))


@pytest.mark.slow
def test_memory_that_nothing_wrote_is_no_cause_of_what_is_the_same_in_any_memory(tmp_path):
    found = row(tripled(tmp_path, "fourfold", compute="Muls(result, in, T(4), 64);"))
    assert (found.status, found.code) == ("failed", "OPS-VALUE-WRONG")
    assert "nothing had written" not in found.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "compute", "said"),
    [
        ("greatest", "TopK(result, in, 1);", "opsmith does not emulate TopK, at greatest.cpp"),
        (
            "assembly",
            'asm volatile("nop");',
            "ascendc_row::assembly (npu): opsmith does not emulate this kernel: it has 'asm' in "
            "code that opsmith does not read, at assembly.cpp:24",
        ),
        (
            "bitwise",
            "And(result, in, in, size);",
            "opsmith emulates no And of other elements than int16_t, uint16_t, at bitwise.cpp:24",
        ),
        (
            "repeated",
            "const uint32_t one[] = {1}; auto all = result.template ReinterpretCast<int32_t>(); "
            "Broadcast<int32_t, 1, 0>(all, all, one, one);",
            "opsmith emulates no Broadcast of other elements than int8_t, uint8_t, half, float, "
            "at repeated.cpp:24",
        ),
        (
            "cast",
            "ScalarCast<float, int64_t, RoundMode::CAST_FLOOR>(1.5f);",
            "opsmith emulates no Cast of a number by this mode, or to this type, at cast.cpp:24",
        ),
        (
            "bound",
            "TQueBind<TPosition::LCM, TPosition::LCM, 1> bound; pipe.InitBuffer(bound, 1, 32);",
            "opsmith emulates no TQueBind of one position, at bound.cpp:24",
        ),
        (
            "by_register",
            "TBuf<> own; Select(result, own.Get<uint8_t>(), in, 1, BinaryRepeatParams());",
            "opsmith does not emulate Select with these arguments, at by_register.cpp:24",
        ),
        (
            "quantized",
            "SetDeqScale(1.0f, int16_t(0), true);",
            "opsmith does not emulate SetDeqScale with these arguments, at quantized.cpp:24",
        ),
        (
            "tagged",
            "result.SetUserTag(1);",
            "opsmith does not emulate SetUserTag, at tagged.cpp:24",
        ),
        (
            "paired",
            "CrossCoreSetFlag<2, PIPE_MTE3>(0);",
            "opsmith emulates no CrossCoreSetFlag of cube cores, PIPE_S or PIPE_ALL, at paired.cpp",
        ),
        (
            # Right on an NPU: the vector unit waits, and the scalar unit goes on to set the flag.
            "awaited_early",
            "WaitFlag<HardEvent::MTE3_V>(EVENT_ID0); Muls(result, in, T(3), size);"
            "SetFlag<HardEvent::MTE3_V>(EVENT_ID0);",
            "WaitFlag (V of block 0) waits for the flag <MTE3_V>(0), which opsmith emulates behind "
            "its SetFlag alone",
        ),
        (
            "mixed",
            "KERNEL_TASK_TYPE_DEFAULT(KERNEL_TYPE_MIX_AIC_1_2);",
            "opsmith does not emulate KERNEL_TYPE_MIX_AIC_1_2, at mixed.cpp:24",
        ),
        (
            "turns",
            "LocalTensor<int32_t> own; GlobalTensor<int32_t> all; "
            "InitDetermineComputeWorkspace(all, own);",
            "opsmith does not emulate InitDetermineComputeWorkspace, at turns.cpp:24",
        ),
        (
            "some_blocks",
            "GlobalTensor<int32_t> all; SyncAll(all, in.template ReinterpretCast<int32_t>(), 2);",
            "SyncAll (S of block",
        ),
    ],
)
def test_what_is_not_emulated_is_not_applicable_and_named(tmp_path, name, compute, said):
    found = row(tripled(tmp_path, name, compute=compute))
    assert (found.status, found.code) == ("not applicable", "")
    assert found.message.startswith(said)
    assert f"{name}.cpp:24" in found.message


def test_assembly_in_a_header_is_not_applicable_in_both_rows(tmp_path):
    operator = tripled(tmp_path, "beside")
    (tmp_path / "stop.h").write_text('inline void stop() { asm volatile("nop"); }\n')
    source = tmp_path / "beside.cpp"
    source.write_text('#include "stop.h"\n' + source.read_text())
    report = checks.run(
        operator, select=["ascendc-on-cpu", "exact-ascendc-on-cpu"], isolate=False, examples=2
    )
    said = {row.check: (row.status, row.message) for row in report.rows if "on-cpu" in row.check}
    words = (
        "ascendc_row::beside (npu): opsmith does not emulate this kernel: it has 'asm' in code "
        "that opsmith does not read, at stop.h:1"
    )
    assert said == dict.fromkeys(
        ("ascendc-on-cpu", "exact-ascendc-on-cpu"), ("not applicable", words)
    )


@pytest.mark.slow
def test_a_name_of_the_users_that_nothing_declares_is_a_mistake(tmp_path):
    found = row(tripled(tmp_path, "misspelt", compute="Muls(result, inn, T(3), size);"))
    assert (found.status, found.code) == ("failed", "OPS-BUILD-FAILED")
    assert "'inn' was not declared" in found.message
