// What the three kernels for CUDA share: where each tap of each output pixel samples the input, and
// a matrix product in tiles whose factors may be sampled. None of them holds all samples.
#pragma once

#include <opsmith/cuda.h>

#include <algorithm>
#include <cstdint>

#include "geometry.h"

namespace deform {

inline constexpr int kThreads = 256;

// Where one tap of one output pixel samples an image.
template <typename A>
struct Sample {
  int32_t y, x;   // of the pixel above and to the left
  A down, right;  // how far it is from there: in [0, 1), or no number
  A amount;       // the mask's
};

// The values of the four pixels around a sample; outside of the image they are 0.
template <typename A>
struct Around {
  A low_low, low_high, high_low, high_high;

  __device__ A at(const Sample<A>& sample) const {
    return (1 - sample.down) * ((1 - sample.right) * low_low + sample.right * low_high) +
           sample.down * ((1 - sample.right) * high_low + sample.right * high_high);
  }
};

// The tensors of a call that say what is sampled, and where.
template <typename T>
struct Sampler {
  using A = compute_t<T>;

  GroupedGeometry g;
  const T *input, *offset, *mask;

  __device__ Sample<A> locate(int64_t image, int offset_group, int tap, int pixel) const {
    const int64_t plane = (image * g.offset_groups + offset_group) * g.taps + tap;
    const T* offset_y = offset + 2 * plane * g.pixels + pixel;
    const int width = static_cast<int>(g.out_w), kernel_w = static_cast<int>(g.kernel_w);
    Sample<A> found;
    found.y = split_offset(static_cast<A>(offset_y[0]), found.down) +
              static_cast<int32_t>(pixel / width * g.stride[0] - g.padding[0] +
                                   tap / kernel_w * g.dilation[0]);
    found.x = split_offset(static_cast<A>(offset_y[g.pixels]), found.right) +
              static_cast<int32_t>(pixel % width * g.stride[1] - g.padding[1] +
                                   tap % kernel_w * g.dilation[1]);
    found.amount = mask == nullptr ? A(1) : static_cast<A>(mask[plane * g.pixels + pixel]);
    return found;
  }

  __device__ Around<A> around(const Sample<A>& sample, int64_t image, int64_t channel) const {
    const T* plane = input + (image * g.C + channel) * g.H * g.W;
    return {value(plane, sample.y, sample.x), value(plane, sample.y, sample.x + 1),
            value(plane, sample.y + 1, sample.x), value(plane, sample.y + 1, sample.x + 1)};
  }

 private:
  __device__ A value(const T* plane, int32_t y, int32_t x) const {
    const bool inside = y >= 0 && y < g.H && x >= 0 && x < g.W;
    return inside ? static_cast<A>(plane[y * static_cast<int32_t>(g.W) + x]) : A(0);
  }
};

// An output pixel, counted through all images. Threads ask for the same one again and again.
struct Pixel {
  int64_t number = -1, image = 0;
  int pixel = 0;

  __device__ bool move(int64_t to, int64_t pixels) {
    if (to == number) return false;
    number = to;
    image = to / pixels;
    pixel = static_cast<int>(to - image * pixels);
    return true;
  }
};

// The samples of a call, one at a time.
template <typename T>
struct Samples {
  using A = compute_t<T>;

  const Sampler<T>& sampler;
  Pixel at{};
  int tap = -1, offset_group = -1;
  Sample<A> sample{};

  __device__ A operator()(int64_t pixel, int new_tap, int channel) {
    const int group = channel / static_cast<int>(sampler.g.channels_per_offset_group);
    if (at.move(pixel, sampler.g.pixels) || new_tap != tap || group != offset_group) {
      tap = new_tap;
      offset_group = group;
      sample = sampler.locate(at.image, group, tap, at.pixel);
    }
    return sampler.around(sample, at.image, channel).at(sample) * sample.amount;
  }
};

// One tile of a product, by a block of kThreads: store(row, column, sum) gets the sum over
// [begin, end) of left(row, depth) * right(column, depth). Both give 0 beside their matrices; in
// which direction neighbouring threads read them together is up to kAlongDepth.
inline constexpr int kColumns = 64, kDepth = 16;
template <typename A, int kRows, bool kAlongDepth, typename Left, typename Right, typename Store>
__device__ void multiply_tile(int64_t first_row, int64_t first_column, int64_t begin, int64_t end,
                              Left&& left, Right&& right, Store&& store) {
  constexpr int kOwnRows = kRows / 16, kOwnColumns = kColumns / 16;
  // Rows of shared memory that are written down their columns are a little longer.
  constexpr int kPad = kAlongDepth ? 4 : 0;
  __shared__ __align__(16) A lefts[kDepth][kRows + kPad];
  __shared__ __align__(16) A rights[kDepth][kColumns + kPad];
  const int thread = static_cast<int>(threadIdx.x);
  const int own_row = thread / 16 * kOwnRows, own_column = thread % 16 * kOwnColumns;
  A sums[kOwnRows][kOwnColumns] = {};
  for (int64_t first = begin; first < end; first += kDepth) {
    for (int i = thread; i < kDepth * kRows; i += kThreads) {
      const int depth = kAlongDepth ? i % kDepth : i / kRows;
      const int row = kAlongDepth ? i / kDepth : i % kRows;
      lefts[depth][row] = first + depth < end ? left(first_row + row, first + depth) : A(0);
    }
    for (int i = thread; i < kDepth * kColumns; i += kThreads) {
      const int depth = kAlongDepth ? i % kDepth : i / kColumns;
      const int column = kAlongDepth ? i / kDepth : i % kColumns;
      rights[depth][column] =
          first + depth < end ? right(first_column + column, first + depth) : A(0);
    }
    __syncthreads();
    for (int depth = 0; depth < kDepth; ++depth) {
      for (int r = 0; r < kOwnRows; ++r) {
        for (int c = 0; c < kOwnColumns; ++c) {
          sums[r][c] += lefts[depth][own_row + r] * rights[depth][own_column + c];
        }
      }
    }
    __syncthreads();
  }
  for (int r = 0; r < kOwnRows; ++r) {
    for (int c = 0; c < kOwnColumns; ++c) {
      store(first_row + own_row + r, first_column + own_column + c, sums[r][c]);
    }
  }
}

inline int64_t tiles_of(int64_t count, int64_t side) { return (count + side - 1) / side; }

// Few rows would leave most of a tall tile empty.
inline int tile_rows(int64_t rows) { return rows <= 16 ? 16 : 64; }

// The sizes of a call, for kernels that count within one image in 32 bits.
inline GroupedGeometry cuda_geometry(const opsmith::Context& ctx, const Sizes& sizes) {
  const GroupedGeometry g = grouped_geometry(ctx, sizes);
  constexpr int64_t limit = INT32_MAX;
  if (g.pixels > limit / std::max<int64_t>(1, g.offset_groups * g.taps) ||
      (g.H + 1) * (g.W + 1) > limit / std::max<int64_t>(1, g.offset_groups) ||
      g.channels > limit / std::max<int64_t>(1, g.taps)) {
    ctx.fail("an image of ", g.H, " x ", g.W, " with ", g.C, " channels and ", g.taps,
             " taps is more than this kernel can index.");
  }
  return g;
}

template <typename T>
void fill_zeros(const opsmith::Context& ctx, const opsmith::Tensor<T>& tensor) {
  if (tensor.numel() == 0) return;
  opsmith::check_cuda(
      ctx, cudaMemsetAsync(tensor.data(), 0, tensor.numel() * sizeof(T), opsmith::cuda_stream(ctx)),
      "cudaMemsetAsync");
}

}  // namespace deform
