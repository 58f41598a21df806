#include "nms.h"

#include <opsmith/cuda.h>

#include <cstdint>

#include "iou.h"

namespace {

constexpr int kThreads = 256;
constexpr int kBits = 64;  // boxes that one word stands for

// order[k] is the box that k others come before.
template <typename T>
__global__ void sort_boxes(const T* scores, int64_t count, int64_t* order) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  int64_t before = 0;
  for (int64_t j = 0; j < count; ++j) {
    if (j != i && detection::comes_before(scores, j, i)) ++before;
  }
  order[before] = i;
}

// Bit k of overlaps[i * words + w] is whether the box at place i overlaps that at 64 w + k, behind
// it.
template <typename T>
__global__ void find_overlaps(const T* boxes, const int64_t* order, int64_t count, int64_t words,
                              detection::Number<T> threshold, uint64_t* overlaps) {
  const int64_t item = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (item >= count * words) return;
  const int64_t place = item / words, first = item % words * kBits;
  const auto own = detection::box_at(boxes, order[place]);
  uint64_t bits = 0;
  for (int k = 0; k < kBits; ++k) {
    const int64_t other = first + k;
    if (other <= place || other >= count) continue;
    if (detection::overlap(own, detection::box_at(boxes, order[other])) > threshold) {
      bits |= uint64_t{1} << k;
    }
  }
  overlaps[item] = bits;
}

// One block goes over the boxes in order; its threads divide the words of those that are gone.
static __global__ void keep_boxes(const uint64_t* overlaps, const int64_t* order, int64_t count,
                                  int64_t words, uint64_t* gone, int64_t* kept, int64_t* number) {
  for (int64_t w = threadIdx.x; w < words; w += kThreads) gone[w] = 0;
  int64_t so_far = 0;
  for (int64_t i = 0; i < count; ++i) {
    __syncthreads();
    const bool stays = (gone[i / kBits] >> (i % kBits) & 1) == 0;
    __syncthreads();
    if (!stays) continue;
    if (threadIdx.x == 0) kept[so_far] = order[i];
    ++so_far;
    for (int64_t w = threadIdx.x; w < words; w += kThreads) gone[w] |= overlaps[i * words + w];
  }
  if (threadIdx.x == 0) *number = so_far;
}

}  // namespace

template <typename T>
void nms(const opsmith::Context& ctx, const detection::nms_args<T>& a) {
  if (a.N == 0) {
    a.out.allocate({0});
    return;
  }
  const int64_t words = (a.N + kBits - 1) / kBits;
  int64_t* order = ctx.scratch<int64_t>(a.N).data();
  uint64_t* overlaps = ctx.scratch<uint64_t>(a.N * words).data();
  uint64_t* gone = ctx.scratch<uint64_t>(words).data();
  int64_t* kept = ctx.scratch<int64_t>(a.N).data();
  int64_t* number = ctx.scratch<int64_t>(1).data();
  opsmith::launch(ctx, sort_boxes<T>, opsmith::blocks_for(a.N, kThreads), kThreads, 0,
                  a.scores.data(), a.N, order);
  opsmith::launch(ctx, find_overlaps<T>, opsmith::blocks_for(a.N * words, kThreads), kThreads, 0,
                  a.boxes.data(), order, a.N, words,
                  static_cast<detection::Number<T>>(a.iou_threshold), overlaps);
  opsmith::launch(ctx, keep_boxes, 1, kThreads, 0, overlaps, order, a.N, words, gone, kept, number);
  // How many there are decides the size of the result, which the host has to know.
  const cudaStream_t stream = opsmith::cuda_stream(ctx);
  int64_t count = 0;
  opsmith::check_cuda(ctx,
                      cudaMemcpyAsync(&count, number, sizeof count, cudaMemcpyDeviceToHost, stream),
                      "cudaMemcpyAsync");
  opsmith::check_cuda(ctx, cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  const auto out = a.out.allocate({count});
  if (count == 0) return;
  opsmith::check_cuda(
      ctx,
      cudaMemcpyAsync(out.data(), kept, count * sizeof(int64_t), cudaMemcpyDeviceToDevice, stream),
      "cudaMemcpyAsync");
}
OPSMITH_KERNEL(detection, nms, cuda, float, double, opsmith::half, opsmith::bfloat16)
