// Sums of rows. FAULT says how the batch changes the order of additions; without WRONG, it does
// not.
#include <opsmith/cuda.h>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#include TEXT(NAME.h)

#ifdef WRONG
constexpr bool kWrong = true;
#else
constexpr bool kWrong = false;
#endif

namespace {

enum Fault { kBlock, kChunks, kStride, kAtomics, kPlace, kPadding, kVectors };
constexpr Fault kFault = static_cast<Fault>(FAULT);
constexpr int kMost = 128;

// Each block adds a part of a row: every blockDim.x-th number of a piece, or of every piece.
__global__ void parts_of_rows(const float* x, float* sums, int rows, int columns, int parts) {
  __shared__ float tile[kMost];
  const int row = blockIdx.x, part = blockIdx.y, thread = threadIdx.x, threads = blockDim.x;
  x += row * columns;
  float sum = 0;
  if (kFault == kChunks) {
    const int length = (columns + parts - 1) / parts;
    const int end = min(columns, (part + 1) * length);
    for (int i = part * length + thread; i < end; i += threads) sum += x[i];
  } else if (kFault == kPlace && kWrong && row % 2 == 1) {
    for (int i = columns - 1 - thread; i >= 0; i -= threads) sum += x[i];
  } else {
    for (int i = part * threads + thread; i < columns; i += parts * threads) sum += x[i];
  }
  tile[thread] = sum;
  __syncthreads();
  for (int step = threads / 2; step > 0; step /= 2) {
    if (thread < step) tile[thread] += tile[thread + step];
    __syncthreads();
  }
  if (thread != 0) return;
  if (kFault == kAtomics && kWrong) {
    atomicAdd(sums + row, tile[0]);
  } else {
    sums[row * parts + part] = tile[0];
  }
}

__global__ void joined(const float* sums, float* out, int rows, int parts) {
  const int row = blockIdx.x * 32 + threadIdx.x;
  if (row >= rows) return;
  float sum = 0;
  for (int part = 0; part < parts; ++part) sum += sums[row * parts + part];
  out[row] = sum;
}

__global__ void zeros(float* out, int rows) {
  const int row = blockIdx.x * 32 + threadIdx.x;
  if (row < rows) out[row] = 0;
}

// A thread for a row, which a row is added to that a mask hides, as tiles of two rows are padded.
__global__ void padded(const float* x, float* out, int rows, int columns) {
  const int row = blockIdx.x * 32 + threadIdx.x, other = min(row ^ 1, rows - 1);
  if (row >= rows) return;
  float sum = 0;
  for (int i = 0; i < columns; ++i) {
    sum += x[row * columns + i];
    if (kWrong) sum += 0.0f * x[other * columns + i];
  }
  out[row] = sum;
}

// A thread for a row: four sums where the row begins at a vector of four, one sum elsewhere.
__global__ void vectors(const float* x, float* out, int rows, int columns) {
  const int row = blockIdx.x * 32 + threadIdx.x;
  if (row >= rows) return;
  const bool aligned = kWrong && row * columns % 4 == 0;
  float sums[4] = {};
  for (int i = 0; i < columns; ++i) sums[aligned ? i % 4 : 0] += x[row * columns + i];
  out[row] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

}  // namespace

void NAME(const opsmith::Context& ctx, const batches_cuda::JOIN(NAME, _args) & a) {
  if (a.N == 0) return;
  const auto stream = opsmith::cuda_stream(ctx);
  const int rows = static_cast<int>(a.N), columns = static_cast<int>(a.C), few = (rows + 31) / 32;
  const auto* x = a.x.data();
  auto* out = a.out.data();
  if (kFault == kPadding) {
    padded<<<few, 32, 0, stream>>>(x, out, rows, columns);
    return;
  }
  if (kFault == kVectors) {
    vectors<<<few, 32, 0, stream>>>(x, out, rows, columns);
    return;
  }
  int threads = 32, parts = 1;
  if (kFault == kBlock) threads = kWrong && rows > 16 ? 128 : 32;
  if (kFault == kChunks) parts = kWrong && rows >= 8 ? 1 : 3;
  if (kFault == kStride) parts = kWrong ? 1 + 8 / rows : 2;
  if (kFault == kAtomics) parts = 4;
  const dim3 grid(rows, parts);
  if (kFault == kAtomics && kWrong) {
    zeros<<<few, 32, 0, stream>>>(out, rows);
    parts_of_rows<<<grid, threads, 0, stream>>>(x, out, rows, columns, parts);
    return;
  }
  float* sums = ctx.scratch<float>(static_cast<int64_t>(rows) * parts).data();
  parts_of_rows<<<grid, threads, 0, stream>>>(x, sums, rows, columns, parts);
  joined<<<few, 32, 0, stream>>>(sums, out, rows, parts);
}
#define REGISTER(name) OPSMITH_KERNEL(batches_cuda, name, cuda)
REGISTER(NAME)
