"""Inline PTX in the emulation of CUDA: every instruction that is emulated, and what is refused."""

import pytest
import torch
from emulated_sources import obstacle, rewritten
from jaxtyping import Float32
from torch import Tensor

from opsmith.checks import harness
from opsmith.checks.harness import Phase
from opsmith.kernels import kernel_source
from opsmith.kernels.languages.emulated_cuda import emulated
from opsmith.signature import signature_of


def product(
    x: Float32[Tensor, "M K"], y: Float32[Tensor, "K N"], kind: str
) -> Float32[Tensor, "M N"]:
    return x @ y


SIGNATURE = signature_of(product, "inline_ptx::product")
#: By instruction: the type of numbers, the type of sums, and K. Rows and columns are as the PTX ISA
#: lists them: `i` is the number in a thread, `g` is the thread's group, `t` is the thread in the
#: group.
KINDS = {
    "m16n8k16.row.col.f32.f16.f16.f32": ("__half", "float", 16),
    "m16n8k16.row.col.f16.f16.f16.f16": ("__half", "__half", 16),
    "m16n8k16.row.col.f32.bf16.bf16.f32": ("__nv_bfloat16", "float", 16),
    "m16n8k8.row.col.f32.f16.f16.f32": ("__half", "float", 8),
    "m16n8k8.row.col.f16.f16.f16.f16": ("__half", "__half", 8),
    "m16n8k8.row.col.f32.bf16.bf16.f32": ("__nv_bfloat16", "float", 8),
    "m16n8k8.row.col.f32.tf32.tf32.f32": ("float", "float", 8),
    "m16n8k4.row.col.f32.tf32.tf32.f32": ("float", "float", 4),
    "m16n8k32.row.col.s32.s8.s8.s32": ("signed char", "int", 32),
    "m16n8k32.row.col.satfinite.s32.s8.s8.s32": ("signed char", "int", 32),
    "m16n8k16.row.col.s32.s8.s8.s32": ("signed char", "int", 16),
    "m16n8k32.row.col.f32.e4m3.e5m2.f32": ("__nv_fp8_e4m3, __nv_fp8_e5m2", "float", 32),
}
LAYOUTS = {  # of 4, 2 and 1 bytes, for the larger K; for the smaller K the first half of each
    1: ("i < 4 || 8 <= i && i < 12", "t * 4 + i % 4 + (i < 8 ? 0 : 16)", "i < 4 ? 0 : 16"),
    2: ("i < 2 || 4 <= i && i < 6", "t * 2 + i % 2 + (i < 4 ? 0 : 8)", "i < 2 ? 0 : 8"),
    4: ("i == 0 || i == 2", "t + (i < 2 ? 0 : 4)", "i < 1 ? 0 : 4"),
}
BEGINNING = """\
#include "product.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <opsmith/cuda.h>

#include <cstdint>
#include <cstring>

template <typename A, typename B = A>
struct Pair {
  using Left = A;
  using Right = B;
};
"""
PRODUCT = """\
__global__ void multiply_{name}(const float* x, const float* y, float* out) {{
  using Numbers = Pair<{numbers}>;
  const int g = threadIdx.x / 4, t = threadIdx.x % 4;
  constexpr int k = {k}, size = sizeof(Numbers::Left);
  uint32_t a[{of_a}], b[{of_b}], d[{of_d}];
  Numbers::Left as[16 * k / 32];
  Numbers::Right bs[8 * k / 32];
  {sums} ds[4];
  for (int i = 0; i < 16 * k / 32; ++i) {{
    const int row = {in_first_rows} ? g : g + 8, column = {column};
    as[i] = static_cast<Numbers::Left>(x[row * k + column]);
  }}
  for (int i = 0; i < 8 * k / 32; ++i) {{
    const int row = t * 4 / size + i % (4 / size) + ({row_b});
    bs[i] = static_cast<Numbers::Right>(y[row * 8 + g]);
  }}
  for ({sums}& one : ds) one = static_cast<{sums}>(1.0f);
  memcpy(a, as, sizeof as);
  memcpy(b, bs, sizeof bs);
  memcpy(d, ds, sizeof ds);
  asm volatile("mma.sync.aligned.{instruction} {registers};"
               : {outputs} : {inputs});
  memcpy(ds, d, sizeof ds);
  for (int i = 0; i < 4; ++i) {{
    out[(i < 2 ? g : g + 8) * 8 + t * 2 + i % 2] = static_cast<float>(ds[i]);
  }}
}}
"""
#: By what stands behind `ldmatrix` or `stmatrix`: how many matrices.
MATRICES = {"x1": 1, "x2": 2, "x4": 4, "x1.trans": 1, "x2.trans": 2, "x4.trans": 4}
LOAD = """\
__global__ void load_{name}(const float* x, const float*, float* out) {{
  __shared__ __align__(16) __half tile[8 * {count}][24];
  const int lane = threadIdx.x;
  for (int i = lane; i < 64 * {count}; i += 32) tile[i / 8][i % 8] = __float2half(x[i]);
  __syncwarp();
  uint32_t found[{count}];
  const auto row = static_cast<uint32_t>(__cvta_generic_to_shared(tile[lane % (8 * {count})]));
  asm volatile("ldmatrix.sync.aligned.{instruction}.shared.b16 {{{registers}}}, [%{count} + 0];"
               : {outputs} : "r"(row));
  for (int i = 0; i < {count}; ++i) {{
    __half both[2];
    memcpy(both, &found[i], sizeof both);
    out[(lane * {count} + i) * 2] = __half2float(both[0]);
    out[(lane * {count} + i) * 2 + 1] = __half2float(both[1]);
  }}
}}
"""
STORE = """\
__global__ void store_{name}(const float* x, const float*, float* out) {{
  __shared__ __align__(16) __half tile[8 * {count}][24];
  const int lane = threadIdx.x;
  uint32_t held[{count}];
  for (int i = 0; i < {count}; ++i) {{
    const float* two = x + (lane * {count} + i) * 2;
    const __half both[2] = {{__float2half(two[0]), __float2half(two[1])}};
    memcpy(&held[i], both, sizeof both);
  }}
  const auto row = static_cast<uint32_t>(__cvta_generic_to_shared(tile[lane % (8 * {count})]));
  asm volatile("stmatrix.sync.aligned.{instruction}.shared.b16 [%0], {{{registers}}};"
               :: "r"(row), {inputs});
  __syncwarp();
  for (int i = lane; i < 64 * {count}; i += 32) out[i] = __half2float(tile[i / 8][i % 8]);
}}
"""
#: Copies the numbers that the thread's number counts, and zeros.
COPY = """\
__global__ void copy(const float* __restrict__ x, const float*, float* out) {
  __shared__ __align__(16) float tile[32][4];
  uint64_t address;
  asm("{ .reg .u64 %%a; cvta.to.shared.u64 %%a, %1; mov.u64 %0, %%a; }"
      : "=l"(address) : "l"(tile[threadIdx.x]));
  const int some = threadIdx.x % 5;
  asm volatile("cp.async.ca.shared::cta.global.L2::128B [%0], [%1], 16, %2;"
               :: "r"(static_cast<uint32_t>(address)), "l"(&x[4 * threadIdx.x]), "r"(4 * some)
               : "memory");
  asm volatile("cp.async.wait_all;" ::: "memory");
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = tile[threadIdx.x][i];
}
"""
#: Takes the number of a count that stands in the memory of the result, by a table of bits.
OF_BLOCKS = """\
__global__ void of_blocks(const float* x, const float*, float* out) {
  uint32_t* count = reinterpret_cast<uint32_t*>(out);
  if (threadIdx.x == 0) count[0] = 0;
  __syncthreads();
  asm volatile("fence.acq_rel.gpu;\\n" ::: "memory");
  asm volatile("red.relaxed.gpu.global.add.s32 [%0], %1;" :: "l"(count), "r"(3) : "memory");
  __syncthreads();
  uint32_t all, lane, some;
  asm("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm volatile("ld.global.acquire.gpu.b32 %0, [%1];" : "=r"(all) : "l"(count));
  asm("lop3.b32 %0, %1, %2, %3, %4;"
      : "=r"(some) : "r"(all), "r"(0x3c), "r"(lane), "n"((0xf0 & 0xcc) ^ 0xaa));
  __syncthreads();
  out[threadIdx.x] = some;
}
"""


def operands(mark, name, count):
    return ", ".join(f'"{mark}"({name}[{i}])' for i in range(count))


def registers(first, count):
    return ", ".join(f"%{i}" for i in range(first, first + count))


def identifier(instruction):
    return instruction.replace(".", "_")


def product_kernel(instruction):
    numbers, sums, k = KINDS[instruction]
    size = {"float": 4, "__half": 2, "__nv_bfloat16": 2}.get(numbers, 1)
    of_d, of_a, of_b = (2 if sums == "__half" else 4), k * size // 8, k * size // 16
    in_first_rows, column, row_b = LAYOUTS[size]
    braces = (registers(0, of_d), registers(of_d, of_a), registers(of_d + of_a, of_b))
    return PRODUCT.format(
        name=identifier(instruction),
        registers=", ".join(f"{{{one}}}" for one in (*braces, braces[0])),
        outputs=operands("+r", "d", of_d),
        inputs=f"{operands('r', 'a', of_a)}, {operands('r', 'b', of_b)}",
        **locals(),
    )


def matrix_kernel(text, instruction):
    count = MATRICES[instruction]
    return text.format(
        name=identifier(instruction),
        # The shape may stand at either end.
        instruction=f"m8n8.{instruction}" if count != 2 else f"{instruction}.m8n8",
        registers=registers(0 if text is LOAD else 1, count),
        outputs=operands("=r", "found", count),
        inputs=operands("r", "held", count),
        count=count,
    )


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    kernels = {
        **{kind: (f"multiply_{identifier(kind)}", product_kernel(kind)) for kind in KINDS},
        **{
            f"{name} {kind}": (f"{name}_{identifier(kind)}", matrix_kernel(text, kind))
            for name, text in (("load", LOAD), ("store", STORE))
            for kind in MATRICES
        },
        "copy": ("copy", COPY),
        "of blocks": ("of_blocks", OF_BLOCKS),
    }
    source = tmp_path_factory.mktemp("inline_ptx") / "product.cu"
    launches = "".join(
        f'  if (a.kind == "{kind}") {{\n    {name}<<<1, 32, 0, opsmith::cuda_stream(ctx)>>>'
        "(a.x.data(), a.y.data(), a.out.data());\n  }\n"
        for kind, (name, _) in kernels.items()
    )
    source.write_text(
        f"{BEGINNING}{''.join(text for _, text in kernels.values())}"
        "void product(const opsmith::Context& ctx, const inline_ptx::product_args& a) {\n"
        f"{launches}}}\nOPSMITH_KERNEL(inline_ptx, product, cuda)\n"
    )
    return harness.build(
        emulated(kernel_source(SIGNATURE, "cuda", source), watched=True), emulated=True
    )


def results(build, cases):
    phase = Phase(seed=1, fill=0xFF, emulated=True)
    (calls,) = harness.run(build, SIGNATURE, cases, [phase])
    return [call.results[0] for call in calls]


@pytest.mark.slow
def test_products_of_small_integers_are_exact_in_every_shape_and_type(build):
    generator = torch.Generator().manual_seed(0)
    cases = [
        {
            "x": torch.randint(-3, 4, (16, k), generator=generator).float(),
            "y": torch.randint(-3, 4, (k, 8), generator=generator).float(),
            "kind": kind,
        }
        for kind, (_, _, k) in KINDS.items()
    ]
    for case, found in zip(cases, results(build, cases), strict=True):
        assert torch.equal(found, case["x"] @ case["y"] + 1), case["kind"]


def in_registers(kind, matrices):
    """Return the two numbers that each lane holds of each matrix."""
    turned = matrices.view(-1, 8, 8)
    turned = turned.transpose(1, 2) if "trans" in kind else turned
    return turned.reshape(-1, 32, 2).transpose(0, 1).reshape(32, -1)


@pytest.mark.slow
def test_matrices_are_loaded_and_stored_as_they_are_and_turned(build):
    for kind, count in MATRICES.items():
        matrices = torch.arange(64.0 * count).view(32, -1)
        held = in_registers(kind, matrices)
        y = torch.zeros(2 * count, 2 * count)
        loaded, stored = results(
            build,
            [
                {"x": matrices, "y": y, "kind": f"load {kind}"},
                {"x": held, "y": y, "kind": f"store {kind}"},
            ],
        )
        assert torch.equal(loaded, held), kind
        assert torch.equal(stored, matrices), kind


@pytest.mark.slow
def test_a_copy_of_fewer_bytes_ends_in_zeros(build):
    x = torch.rand(32, 4)
    (found,) = results(build, [{"x": x, "y": torch.zeros(4, 4), "kind": "copy"}])
    right = torch.where(torch.arange(4) < torch.arange(32)[:, None] % 5, x, torch.zeros(()))
    assert torch.equal(found, right)


@pytest.mark.slow
def test_counts_and_tables_of_bits(build):
    case = {"x": torch.zeros(32, 1), "y": torch.zeros(1, 1), "kind": "of blocks"}
    (found,) = results(build, [case])
    assert found.flatten().tolist() == [(96 & 0x3C) ^ thread for thread in range(32)]


MACRO = '#define WAIT() asm volatile("cp.async.bulk.wait_group 0;" ::)\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'void f() {\nasm("bar.warp.sync 1;"); }',
            "it has inline PTX that is not emulated (bar.warp.sync), at",
        ),
        (
            'void f() { asm("mov.u32 %0, %%smid;" : "=r"(a)); }',
            "(the register %smid), at kernel.cu:1",
        ),
        ('void f() { asm("mov.u32 %0, 0;" : "=x"(a)); }', '(the operand "=x"(a)), at kernel.cu:1'),
        ('void f() { asm("mma.sync" KIND ";"); }', '(asm("mma.sync" KIND ";")), at kernel.cu:1'),
        (f"{MACRO}\nvoid f() {{ WAIT(); }}", "(cp.async.bulk.wait_group), at kernel.cu:3"),
    ],
)
def test_what_is_not_emulated_is_named_with_its_line(tmp_path, text, words):
    assert words in obstacle(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        'asm volatile("" ::: "memory");',
        "/* asm(); */",
        '__asm__(".symver powf,powf@GLIBC_2.2.5");',  # of the host's
        f"{MACRO}#undef WAIT\n",
        'asm("bar.sync 1; barrier.cta.sync.aligned 2, %0; barrier.arrive 3, 64;" :: "n"(64));',
        'asm("{ .reg .pred p; // why\\n setp.eq.u32 p, %0, 0; @!p cp.async.wait_all;}" :: "r"(1));',
    ],
)
def test_what_is_emulated_is_no_obstacle(tmp_path, text):
    assert obstacle(tmp_path, text) == "None"


def test_the_lines_of_a_source_stay(tmp_path):
    text = 'void f(int a) {\n  asm("mov.b32 %0, %1;"\n : "=r"(a)\n : "n"(1));\n}\nint b;\n'
    assert rewritten(tmp_path, text).splitlines()[5:] == ["int b;"]


def test_ptx_is_for_warps_of_32_threads(tmp_path):
    text = '\nasm volatile("cp.async.wait_all;");'
    assert obstacle(tmp_path, text) == "None"
    found = obstacle(tmp_path, text, warp=64)
    assert found == "it uses inline PTX, for warps of 32 threads, at kernel.cu:2"
