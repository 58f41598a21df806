// Deformable convolution: a block samples the columns of its output pixels into shared memory, a
// few at a time, and multiplies them by the weights of its output channels.
#include "deform_conv2d.h"

#include "sampling.cuh"

namespace {

using deform::GroupedGeometry, deform::kThreads, deform::Sampler;

// (group, tap, channel, output): neighbouring threads read neighbouring outputs.
template <typename T>
__global__ void pack_weights(GroupedGeometry g, const T* weight, deform::compute_t<T>* packed) {
  const int64_t item = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (item >= g.groups * g.taps * g.channels * g.outputs) return;
  const int64_t output = item % g.outputs, channel = item / g.outputs % g.channels;
  const int64_t tap = item / g.outputs / g.channels % g.taps;
  const int64_t group = item / g.outputs / g.channels / g.taps;
  packed[item] = static_cast<deform::compute_t<T>>(
      weight[((group * g.outputs + output) * g.channels + channel) * g.taps + tap]);
}

template <typename T, int kRows>
__global__ void convolve(Sampler<T> sampler, const deform::compute_t<T>* packed, const T* bias,
                         int64_t row_tiles, int64_t tiles, T* out) {
  using A = deform::compute_t<T>;
  const GroupedGeometry& g = sampler.g;
  const int64_t depth = g.taps * g.channels, all = g.N * g.pixels;
  const int channels = static_cast<int>(g.channels);
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t group = tile / row_tiles % g.groups;
    const A* weights = packed + group * depth * g.outputs;
    deform::Samples<T> samples{sampler};
    deform::Pixel at;
    deform::multiply_tile<A, kRows, false>(
        tile % row_tiles * kRows, tile / row_tiles / g.groups * deform::kColumns, 0, depth,
        [&](int64_t output, int64_t k) {
          return output < g.outputs ? weights[k * g.outputs + output] : A(0);
        },
        [&](int64_t pixel, int64_t k) {
          if (pixel >= all) return A(0);
          const int tap = static_cast<int>(k) / channels, channel = static_cast<int>(k) % channels;
          return samples(pixel, tap, static_cast<int>(group) * channels + channel);
        },
        [&](int64_t output, int64_t pixel, A sum) {
          if (output >= g.outputs || pixel >= all) return;
          const int64_t channel = group * g.outputs + output;
          if (bias != nullptr) sum += static_cast<A>(bias[channel]);
          at.move(pixel, g.pixels);
          out[(at.image * g.M + channel) * g.pixels + at.pixel] = static_cast<T>(sum);
        });
  }
}

}  // namespace

template <typename T>
void deform_conv2d(const opsmith::Context& ctx, const vision::deform_conv2d_args<T>& a) {
  const GroupedGeometry g = deform::cuda_geometry(ctx, deform::sizes_of(a));
  if (a.out.numel() == 0) return;
  const int64_t count = a.weight.numel();
  const auto packed = ctx.scratch<deform::compute_t<T>>(count);
  if (count > 0) {
    opsmith::launch(ctx, pack_weights<T>, opsmith::blocks_for(count, kThreads), kThreads, 0, g,
                    a.weight.data(), packed.data());
  }
  const int rows = deform::tile_rows(g.outputs);
  const int64_t row_tiles = deform::tiles_of(g.outputs, rows);
  const int64_t tiles = row_tiles * g.groups * deform::tiles_of(g.N * g.pixels, deform::kColumns);
  opsmith::launch(ctx, rows == 16 ? convolve<T, 16> : convolve<T, 64>,
                  opsmith::blocks_for(tiles, 1), kThreads, 0,
                  Sampler<T>{g, a.input.data(), a.offset.data(), a.mask.data()}, packed.data(),
                  a.bias.data(), row_tiles, tiles, a.out.data());
}
OPSMITH_KERNEL(vision, deform_conv2d, cuda, float, double, opsmith::half, opsmith::bfloat16)
