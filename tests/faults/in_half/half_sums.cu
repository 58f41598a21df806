// A row's sum of terms. FORM says which terms, WAY in which order they are added, SUM in which
// type.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <opsmith/cuda.h>

#include <type_traits>

#define TEXT_(text) #text
#define TEXT(text) TEXT_(text)
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#include TEXT(NAME.h)

namespace {

using Half = HALF;
enum Form { kSum, kMean, kDot, kNorm, kSoftmax };
enum Way { kOneThread, kTree, kShuffles, kFused, kAtomic, kLanes };
constexpr Form kForm = static_cast<Form>(FORM);
constexpr Way kWay = static_cast<Way>(WAY);
constexpr int kThreads = 64;

template <typename Sum>
__device__ Sum add(Sum a, Sum b) {
  if constexpr (std::is_same_v<Sum, float>) {
    return a + b;
  } else {
    return __hadd(a, b);
  }
}

template <typename Sum>
__device__ Sum as(float value) {
  return Sum(value);
}

template <typename Sum>
__device__ Sum term(const Half* x, const Half* y, int i, float most) {
  const float own = float(x[i]);
  if constexpr (kForm == kDot) return as<Sum>(own * float(y[i]));
  if constexpr (kForm == kNorm) return as<Sum>(own * own);
  if constexpr (kForm == kSoftmax) return as<Sum>(expf(own - most));
  return as<Sum>(own);
}

template <typename Sum>
__global__ void rows(const Half* x, const Half* y, Half* out, int columns) {
  __shared__ Sum sums[kThreads];
  const int row = blockIdx.x, thread = threadIdx.x;
  x += row * columns;
  y += row * columns;
  float most = -INFINITY;
  if constexpr (kForm == kSoftmax) {
    for (int i = 0; i < columns; ++i) {
      const float own = float(x[i]);
      most = own > most || isnan(own) ? own : most;
      if (isnan(own)) break;
    }
  }
  Sum sum = as<Sum>(0.0f);
  if constexpr (kWay == kOneThread) {
    if (thread == 0) {
      for (int i = 0; i < columns; ++i) sum = add(sum, term<Sum>(x, y, i, most));
    }
  } else if constexpr (kWay == kFused) {
    if (thread == 0) {
      for (int i = 0; i < columns; ++i) {
        if constexpr (std::is_same_v<Sum, float>) {
          sum = fmaf(float(x[i]), float(y[i]), sum);
        } else {
          sum = __hfma(x[i], y[i], sum);
        }
      }
    }
  } else if constexpr (kWay == kLanes) {
    if (thread == 0) {
      Sum lanes[8];
      for (int k = 0; k < 8; ++k) lanes[k] = as<Sum>(0.0f);
      for (int i = 0; i < columns; ++i) lanes[i % 8] = add(lanes[i % 8], term<Sum>(x, y, i, most));
      for (int k = 0; k < 8; ++k) sum = add(sum, lanes[k]);
    }
  } else {
    for (int i = thread; i < columns; i += kThreads) sum = add(sum, term<Sum>(x, y, i, most));
    if constexpr (kWay == kTree) {
      sums[thread] = sum;
      __syncthreads();
      for (int step = kThreads / 2; step > 0; step /= 2) {
        if (thread < step) sums[thread] = add(sums[thread], sums[thread + step]);
        __syncthreads();
      }
      sum = sums[0];
    } else if constexpr (kWay == kShuffles) {
      for (int step = 16; step > 0; step /= 2) {
        sum = add(sum, __shfl_down_sync(0xffffffffu, sum, step));
      }
      if (thread % 32 == 0) sums[thread / 32] = sum;
      __syncthreads();
      sum = add(sums[0], sums[1]);
    } else {
      if (thread == 0) sums[0] = as<Sum>(0.0f);
      __syncthreads();
      atomicAdd(&sums[0], sum);
      __syncthreads();
      sum = sums[0];
    }
  }
  if (thread == 0) {
    float found = float(sum);
    if constexpr (kForm == kMean) found /= columns;
    if constexpr (kForm == kNorm) found = sqrtf(found);
    if constexpr (kForm == kSoftmax) {
      found = columns == 0 ? NAN : expf(float(x[0]) - most) / found;
    }
    out[row] = Half(found);
  }
}

}  // namespace

void NAME(const opsmith::Context& ctx, const half_sums::JOIN(NAME, _args) & a) {
  if (a.R == 0) return;
  const auto* x = reinterpret_cast<const Half*>(a.x.data());
  const auto* y = x;
#if FORM == 2  // the only one with two arguments
  y = reinterpret_cast<const Half*>(a.y.data());
#endif
  rows<SUM><<<static_cast<int>(a.R), kThreads, 0, opsmith::cuda_stream(ctx)>>>(
      x, y, reinterpret_cast<Half*>(a.out.data()), static_cast<int>(a.C));
}
#define REGISTER(name) OPSMITH_KERNEL(half_sums, name, cuda)
REGISTER(NAME)
