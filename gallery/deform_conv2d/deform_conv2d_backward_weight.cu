// The gradient of the weight: a product of the output's gradient and what was sampled, over all
// output pixels. Blocks share these out, and their sums are added up in order.
#include "deform_conv2d_backward_weight.h"

#include "sampling.cuh"

namespace {

using deform::GroupedGeometry, deform::kThreads, deform::Sampler;

struct Tiles {
  int64_t rows, columns;  // of one group and tap
  int64_t shares, share;  // of the output pixels
  int64_t count;
};

template <typename T, int kRows>
__global__ void multiply(Sampler<T> sampler, const T* grad, Tiles tiles,
                         deform::compute_t<T>* sums) {
  using A = deform::compute_t<T>;
  const GroupedGeometry& g = sampler.g;
  const int64_t all = g.N * g.pixels;
  for (int64_t tile = blockIdx.x; tile < tiles.count; tile += gridDim.x) {
    int64_t rest = tile / tiles.rows;
    const int64_t column_tile = rest % tiles.columns;
    rest /= tiles.columns;
    const int tap = static_cast<int>(rest % g.taps);
    rest /= g.taps;
    const int64_t group = rest % g.groups, share = rest / g.groups;
    const int64_t first = share * tiles.share;
    A* to = sums + share * g.M * g.channels * g.taps;
    deform::Samples<T> samples{sampler};
    deform::Pixel at;
    deform::multiply_tile<A, kRows, true>(
        tile % tiles.rows * kRows, column_tile * deform::kColumns, first,
        min(first + tiles.share, all),
        [&](int64_t output, int64_t pixel) {
          if (output >= g.outputs) return A(0);
          at.move(pixel, g.pixels);
          const int64_t plane = at.image * g.M + group * g.outputs + output;
          return static_cast<A>(grad[plane * g.pixels + at.pixel]);
        },
        [&](int64_t channel, int64_t pixel) {
          if (channel >= g.channels) return A(0);
          return samples(pixel, tap, static_cast<int>(group * g.channels + channel));
        },
        [&](int64_t output, int64_t channel, A sum) {
          if (output >= g.outputs || channel >= g.channels) return;
          to[((group * g.outputs + output) * g.channels + channel) * g.taps + tap] = sum;
        });
  }
}

template <typename T>
__global__ void add_up_shares(const deform::compute_t<T>* sums, int64_t shares, int64_t count,
                              T* out) {
  const int64_t item = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (item >= count) return;
  deform::compute_t<T> sum = 0;
  for (int64_t share = 0; share < shares; ++share) sum += sums[share * count + item];
  out[item] = static_cast<T>(sum);
}

}  // namespace

template <typename T>
void deform_conv2d_backward_weight(const opsmith::Context& ctx,
                                   const vision::deform_conv2d_backward_weight_args<T>& a) {
  const GroupedGeometry g = deform::cuda_geometry(ctx, deform::sizes_of(a));
  const int64_t count = a.out.numel(), all = g.N * g.pixels;
  if (count == 0) return;
  if (all == 0) {
    deform::fill_zeros(ctx, a.out);
    return;
  }
  const int rows = deform::tile_rows(g.outputs);
  Tiles tiles = {deform::tiles_of(g.outputs, rows), deform::tiles_of(g.channels, deform::kColumns)};
  const int64_t in_one = tiles.rows * tiles.columns * g.taps * g.groups;
  // Enough blocks for any GPU, and no share too small. The device has no say in it, so that
  // sums are taken in the same order everywhere.
  constexpr int64_t enough = 1024, least = 256;
  tiles.shares = std::clamp<int64_t>(enough / in_one, 1, deform::tiles_of(all, least));
  tiles.share = deform::tiles_of(all, tiles.shares);
  tiles.shares = deform::tiles_of(all, tiles.share);
  tiles.count = in_one * tiles.shares;
  const auto sums = ctx.scratch<deform::compute_t<T>>(tiles.shares * count);
  opsmith::launch(ctx, rows == 16 ? multiply<T, 16> : multiply<T, 64>,
                  opsmith::blocks_for(tiles.count, 1), kThreads, 0,
                  Sampler<T>{g, a.input.data(), a.offset.data(), a.mask.data()}, a.grad.data(),
                  tiles, sums.data());
  opsmith::launch(ctx, add_up_shares<T>, opsmith::blocks_for(count, kThreads), kThreads, 0,
                  sums.data(), tiles.shares, count, a.out.data());
}
OPSMITH_KERNEL(vision, deform_conv2d_backward_weight, cuda, float, double, opsmith::half,
               opsmith::bfloat16)
