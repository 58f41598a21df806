// Faults around tensor cores, loads of matrices and asynchronous copies in inline PTX; see
// faults.cu for the form.
#include "inline_ptx.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <opsmith/cuda.h>

#include <cstdint>
#include <string>

#define COMMIT() asm volatile("cp.async.commit_group;\n" ::)
#define WAIT(n) asm volatile("cp.async.wait_group %0;\n" ::"n"(n))
#define LDMATRIX_X4(R, address)                                                     \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n" \
               : "=r"(R[0]), "=r"(R[1]), "=r"(R[2]), "=r"(R[3])                     \
               : "r"(address))
#define LDMATRIX_X2(R, address)                                             \
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];\n" \
               : "=r"(R[0]), "=r"(R[1])                                     \
               : "r"(address))
#define LDMATRIX_X2_TRANS(R, address)                                             \
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];\n" \
               : "=r"(R[0]), "=r"(R[1])                                           \
               : "r"(address))
// A macro that nobody uses may be what cannot be emulated.
#define WAIT_FOR_BULK() asm volatile("cp.async.bulk.wait_group 0;\n" ::)

namespace {

constexpr int kThreads = 64;  // a warp for each half of the columns

enum class Slip {
  none,
  not_committed,
  not_waited_for,
  one_group_more,
  no_barrier,
  no_barrier_after_reading,
  unaligned_copy,
  odd_stride,
  pointer_cut_off,
  past_the_end,
  rows_of_another_matrix,
  not_transposed,
  swapped_registers,
  some_lanes,
  lanes_that_left,
  results_in_other_rows,
};

__device__ unsigned shared_address(const void* data) {
  return static_cast<unsigned>(__cvta_generic_to_shared(data));
}

__device__ void copy_4(float* to, const float* from, bool condition) {
  asm volatile(  // FAULT unaligned_copy
      "{\n"
      "  .reg .pred p;\n"
      "  setp.ne.b32 p, %0, 0;\n"
      "  @p cp.async.cg.shared.global [%1], [%2], 16;  // numbers of four bytes\n"
      "}\n" ::"r"(static_cast<int>(condition)),
      "r"(shared_address(to)), "l"(from));
}

__device__ void multiply_add(float* d, const uint32_t* a, const uint32_t* b, __half) {
  asm volatile(  // FAULT some_lanes lanes_that_left
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};\n"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(d[0]), "f"(d[1]),
        "f"(d[2]), "f"(d[3]));
}

__device__ void multiply_add(float* d, const uint32_t* a, const uint32_t* b, __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The same in two steps, each with 8 columns of a.
struct Halves {
  __half number;
  Halves() = default;
  __device__ explicit Halves(float x) : number(__float2half(x)) {}
};
__device__ void multiply_add(float* d, const uint32_t* a, const uint32_t* b, Halves) {
  for (int i = 0; i < 2; ++i) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[2 * i]), "r"(a[2 * i + 1]), "r"(b[i]));
  }
}

// out = 2 x · x for 16 × 16 numbers, which are copied, made shorter, loaded and multiplied.
template <Slip slip, typename Number, typename Taken = Number>
__device__ void multiply(const float* x, float* out) {
  constexpr int stride = slip == Slip::odd_stride ? 20 : 24;
  __shared__ __align__(16) float copied[16 * 16 + 4];
  __shared__ __align__(16) Number tile[16 * stride];
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  float* to = copied + (slip == Slip::unaligned_copy ? 1 : 0);
  for (int group = 0; group < 2; ++group) {
    copy_4(to + 4 * thread, x + 4 * thread, warp == group);
    if constexpr (slip != Slip::not_committed) COMMIT();
  }
  if constexpr (slip == Slip::one_group_more) WAIT(1);
  if constexpr (slip != Slip::one_group_more && slip != Slip::not_waited_for) WAIT(0);
  __syncthreads();
  for (int i = thread; i < 256; i += kThreads) {
    tile[i / 16 * stride + i % 16] = Number(to[i]);  // FAULT converted
  }
  if constexpr (slip != Slip::no_barrier) __syncthreads();
  if (slip == Slip::lanes_that_left && lane >= 24) return;

  const int row = slip == Slip::rows_of_another_matrix ? lane % 8 : lane % 16;
  const Number* left = tile + row * stride + lane / 16 * 8;
  if constexpr (slip == Slip::past_the_end) left += stride;
  unsigned address = shared_address(left);
  if constexpr (slip == Slip::pointer_cut_off) {
    address = static_cast<unsigned>(reinterpret_cast<uintptr_t>(left));
  }
  uint32_t a[4], b[2];
  LDMATRIX_X4(a, address);  // FAULT loaded lanes_that_left
  address = shared_address(tile + lane % 16 * stride + warp * 8);
  if constexpr (slip == Slip::not_transposed) {
    LDMATRIX_X2(b, address);
  } else {
    LDMATRIX_X2_TRANS(b, address);  // FAULT cleared
  }
  if constexpr (slip == Slip::swapped_registers) {
    const uint32_t one = a[1];
    a[1] = a[2];
    a[2] = one;
  }
  float sums[4] = {};
  if (slip != Slip::some_lanes || lane < 16) multiply_add(sums, a, b, Taken());

  if constexpr (slip != Slip::no_barrier_after_reading) __syncthreads();
  if (thread < 16) tile[thread * stride + 8] = Number(0.0f);  // FAULT cleared
  const int below = slip == Slip::results_in_other_rows ? 4 : 8;
  for (int i = 0; i < 4; ++i) {
    const int at = (lane / 4 + i / 2 * below) * 16 + warp * 8 + lane % 4 * 2 + i % 2;
    out[at] = 2 * sums[i];  // FAULT written
  }
}

#define KERNEL(name)     \
  template <bool kWrong> \
  __global__ void name(const float* x, float* out)
#define PRODUCT(name, Number, slip) \
  KERNEL(name) { multiply<kWrong ? Slip::slip : Slip::none, Number>(x, out); }
PRODUCT(numbers_not_committed, __half, not_committed)
PRODUCT(numbers_not_waited_for, __half, not_waited_for)
PRODUCT(last_numbers_not_waited_for, __half, one_group_more)
PRODUCT(matrix_loaded_without_barrier, __half, no_barrier)
PRODUCT(matrix_cleared_while_it_is_loaded, __half, no_barrier_after_reading)
PRODUCT(copy_to_an_odd_address, __half, unaligned_copy)
PRODUCT(rows_at_odd_addresses, __half, odd_stride)
PRODUCT(pointer_in_place_of_an_address, __half, pointer_cut_off)
PRODUCT(row_past_the_end, __nv_bfloat16, past_the_end)
PRODUCT(rows_of_another_matrix, __half, rows_of_another_matrix)
PRODUCT(matrix_not_transposed, __nv_bfloat16, not_transposed)
PRODUCT(registers_in_another_order, __half, swapped_registers)
PRODUCT(steps_in_another_order, Halves, swapped_registers)
PRODUCT(product_in_a_branch, __half, some_lanes)
PRODUCT(product_of_lanes_that_left, __half, lanes_that_left)
PRODUCT(results_in_other_rows, Halves, results_in_other_rows)
KERNEL(half_taken_for_bfloat16) {
  using Taken = std::conditional_t<kWrong, __nv_bfloat16, __half>;
  multiply<Slip::none, __half, Taken>(x, out);
}

using Kernel = void (*)(const float*, float*);

template <bool kWrong>
void launch(const std::string& name, cudaStream_t stream, const float* x, float* out) {
  struct {
    const char* name;
    Kernel kernel;
  } const table[] = {
#define ROW(name) {#name, name<kWrong>}
      ROW(numbers_not_committed),
      ROW(numbers_not_waited_for),
      ROW(last_numbers_not_waited_for),
      ROW(matrix_loaded_without_barrier),
      ROW(matrix_cleared_while_it_is_loaded),
      ROW(copy_to_an_odd_address),
      ROW(rows_at_odd_addresses),
      ROW(pointer_in_place_of_an_address),
      ROW(row_past_the_end),
      ROW(rows_of_another_matrix),
      ROW(matrix_not_transposed),
      ROW(registers_in_another_order),
      ROW(steps_in_another_order),
      ROW(product_in_a_branch),
      ROW(product_of_lanes_that_left),
      ROW(results_in_other_rows),
      ROW(half_taken_for_bfloat16),
  };
  for (const auto& row : table) {
    if (name == row.name) row.kernel<<<1, kThreads, 0, stream>>>(x, out);
  }
}

}  // namespace

void inline_ptx(const opsmith::Context& ctx, const cuda_faults::inline_ptx_args& a) {
  const auto run = a.wrong ? launch<true> : launch<false>;
  run(std::string(a.fault), opsmith::cuda_stream(ctx), a.x.data(), a.out.data());
}
OPSMITH_KERNEL(cuda_faults, inline_ptx, cuda)
