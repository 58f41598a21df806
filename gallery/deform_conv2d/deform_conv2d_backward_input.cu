// The gradients of what is sampled, and where. The gradients of the samples are a product of the
// weights and the output's gradient, for some images at a time; offsets and masks sum them over the
// channels. For the input the samples are sorted by the pixel above and to the left of them, and
// each pixel of the input sums those around it in order: nothing is added atomically.
#include "deform_conv2d_backward_input.h"

#include "../segments.cuh"
#include "sampling.cuh"

// How much memory the gradients of samples may take.
#ifndef DEFORM_SAMPLES_BYTES
#define DEFORM_SAMPLES_BYTES (int64_t{256} << 20)
#endif

namespace {

using deform::GroupedGeometry, deform::kThreads, deform::Sampler;

// Images first … first + count, whose samples' gradients are (count, C, taps, pixels).
struct Images {
  int64_t first, count;
};

template <typename T, int kRows>
__global__ void spread_gradient(GroupedGeometry g, Images images, const T* grad, const T* weight,
                                int64_t row_tiles, int64_t tiles, deform::compute_t<T>* samples) {
  using A = deform::compute_t<T>;
  const int64_t rows = g.channels * g.taps, all = images.count * g.pixels;
  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t group = tile / row_tiles % g.groups;
    const T* weights = weight + group * g.outputs * rows;
    deform::Pixel read, written;
    deform::multiply_tile<A, kRows, false>(
        tile % row_tiles * kRows, tile / row_tiles / g.groups * deform::kColumns, 0, g.outputs,
        [&](int64_t row, int64_t output) {
          return row < rows ? static_cast<A>(weights[output * rows + row]) : A(0);
        },
        [&](int64_t pixel, int64_t output) {
          if (pixel >= all) return A(0);
          read.move(pixel, g.pixels);
          const int64_t plane = (images.first + read.image) * g.M + group * g.outputs + output;
          return static_cast<A>(grad[plane * g.pixels + read.pixel]);
        },
        [&](int64_t row, int64_t pixel, A sum) {
          if (row >= rows || pixel >= all) return;
          written.move(pixel, g.pixels);
          const int64_t plane = (written.image * g.groups + group) * rows + row;
          samples[plane * g.pixels + written.pixel] = sum;
        });
  }
}

// One thread for each sample of an offset group: sums over its channels, and the pixel above and to
// the left of it, as one of (H + 1) * (W + 1) that begin one pixel outside of the image; `bins`
// where it touches no pixel.
template <typename T>
__global__ void sum_over_channels(Sampler<T> sampler, Images images,
                                  const deform::compute_t<T>* samples, int64_t bins, T* grad_offset,
                                  T* grad_mask, int32_t* rows) {
  using A = deform::compute_t<T>;
  const GroupedGeometry& g = sampler.g;
  const int64_t item = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (item >= images.count * g.offset_groups * g.taps * g.pixels) return;
  const int64_t plane = item / g.pixels, groups = plane / g.taps;
  const int pixel = static_cast<int>(item - plane * g.pixels);
  const int tap = static_cast<int>(plane - groups * g.taps);
  const int64_t own = groups / g.offset_groups, image = images.first + own;
  const int offset_group = static_cast<int>(groups - own * g.offset_groups);
  const deform::Sample<A> sample = sampler.locate(image, offset_group, tap, pixel);
  const bool touches = sample.y >= -1 && sample.y < g.H && sample.x >= -1 && sample.x < g.W;
  rows[item] = static_cast<int32_t>(
      touches ? (groups * (g.H + 1) + sample.y + 1) * (g.W + 1) + sample.x + 1 : bins);
  A down = 0, right = 0, mask = 0;
  const int64_t first = offset_group * g.channels_per_offset_group;
  for (int64_t c = first; c < first + g.channels_per_offset_group; ++c) {
    const A grad = samples[((own * g.C + c) * g.taps + tap) * g.pixels + pixel];
    const deform::Around<A> at = sampler.around(sample, image, c);
    down += grad * ((1 - sample.right) * (at.high_low - at.low_low) +
                    sample.right * (at.high_high - at.low_high));
    right += grad * ((1 - sample.down) * (at.low_high - at.low_low) +
                     sample.down * (at.high_high - at.high_low));
    mask += grad * at.at(sample);
  }
  const int64_t to = (image * g.offset_groups + offset_group) * g.taps + tap;
  grad_offset[2 * to * g.pixels + pixel] = static_cast<T>(down * sample.amount);
  grad_offset[(2 * to + 1) * g.pixels + pixel] = static_cast<T>(right * sample.amount);
  grad_mask[to * g.pixels + pixel] = static_cast<T>(mask);
}

// One thread for some channels of a pixel of the input.
constexpr int kChannels = 4;
template <typename T>
__global__ void sum_samples(Sampler<T> sampler, Images images, const deform::compute_t<T>* samples,
                            gallery::Segments segments, int64_t count, T* grad_input) {
  using A = deform::compute_t<T>;
  const GroupedGeometry& g = sampler.g;
  const int64_t item = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (item >= count) return;
  const int64_t area = g.H * g.W, parts = (g.channels_per_offset_group + kChannels - 1) / kChannels;
  const int64_t plane = item / area, groups = plane / parts;
  const int pixel = static_cast<int>(item - plane * area);
  const int64_t own = groups / g.offset_groups, offset_group = groups - own * g.offset_groups;
  const int64_t first = (plane - groups * parts) * kChannels;
  const int channels =
      static_cast<int>(min(int64_t{kChannels}, g.channels_per_offset_group - first));
  const int64_t channel = offset_group * g.channels_per_offset_group + first;

  const int64_t all = g.taps * g.pixels;  // samples of one channel
  const int64_t offset_groups = (images.first + own) * g.offset_groups + offset_group;
  const T* offset = sampler.offset + 2 * offset_groups * all;
  const T* mask = sampler.mask == nullptr ? nullptr : sampler.mask + offset_groups * all;
  const A* from = samples + (own * g.C + channel) * all;
  const int y = pixel / static_cast<int>(g.W), x = pixel % static_cast<int>(g.W);
  A sums[kChannels] = {};
  for (int corner = 0; corner < 4; ++corner) {
    const int below = corner / 2, beside = corner % 2;  // of the sample's first pixel
    const int64_t bin = (groups * (g.H + 1) + y + 1 - below) * (g.W + 1) + x + 1 - beside;
    const int32_t end = segments.starts[bin + 1];
    for (int32_t i = segments.starts[bin]; i < end; ++i) {
      const int number = static_cast<int>(segments.point(i) - groups * all);
      const int tap = number / static_cast<int>(g.pixels);
      A down, right;
      deform::split_offset(static_cast<A>(offset[number + tap * g.pixels]), down);
      deform::split_offset(static_cast<A>(offset[number + (tap + 1) * g.pixels]), right);
      A share = (below ? down : 1 - down) * (beside ? right : 1 - right);
      if (mask != nullptr) share *= static_cast<A>(mask[number]);
      for (int c = 0; c < channels; ++c) sums[c] += share * from[c * all + number];
    }
  }
  T* to = grad_input + ((images.first + own) * g.C + channel) * area + pixel;
  for (int c = 0; c < channels; ++c) to[c * area] = static_cast<T>(sums[c]);
}

template <typename T>
void gradients(const opsmith::Context& ctx, const vision::deform_conv2d_backward_input_args<T>& a,
               const GroupedGeometry& g) {
  using A = deform::compute_t<T>;
  const int64_t area = g.H * g.W, in_group = g.taps * g.pixels;
  const int64_t in_image = g.offset_groups * in_group;
  const int64_t bins_of_image = g.offset_groups * (g.H + 1) * (g.W + 1);
  const int64_t bytes = g.C * in_group * static_cast<int64_t>(sizeof(A));
  const int64_t most = std::clamp<int64_t>(
      std::min(DEFORM_SAMPLES_BYTES / bytes, INT32_MAX / std::max(in_image, bins_of_image)), 1,
      g.N);
  const auto samples = ctx.scratch<A>(most * g.C * in_group);
  const auto bins = ctx.scratch<int32_t>(most * in_image);
  gallery::Segmenter segmenter(ctx, most * in_image, most * bins_of_image);

  const Sampler<T> sampler{g, a.input.data(), a.offset.data(), a.mask.data()};
  const int rows = deform::tile_rows(g.channels * g.taps);
  const int64_t row_tiles = deform::tiles_of(g.channels * g.taps, rows);
  for (int64_t first = 0; first < g.N; first += most) {
    const Images images = {first, std::min(most, g.N - first)};
    const int64_t tiles =
        row_tiles * g.groups * deform::tiles_of(images.count * g.pixels, deform::kColumns);
    opsmith::launch(ctx, rows == 16 ? spread_gradient<T, 16> : spread_gradient<T, 64>,
                    opsmith::blocks_for(tiles, 1), kThreads, 0, g, images, a.grad.data(),
                    a.weight.data(), row_tiles, tiles, samples.data());
    const int64_t points = images.count * in_image;
    opsmith::launch(ctx, sum_over_channels<T>, opsmith::blocks_for(points, kThreads), kThreads, 0,
                    sampler, images, samples.data(), most * bins_of_image, a.out1.data(),
                    a.out2.data(), bins.data());
    const int64_t parts = (g.channels_per_offset_group + kChannels - 1) / kChannels;
    const int64_t items = images.count * g.offset_groups * parts * area;
    opsmith::launch(ctx, sum_samples<T>, opsmith::blocks_for(items, kThreads), kThreads, 0, sampler,
                    images, samples.data(), segmenter(bins.data(), points), items, a.out0.data());
  }
}

}  // namespace

template <typename T>
void deform_conv2d_backward_input(const opsmith::Context& ctx,
                                  const vision::deform_conv2d_backward_input_args<T>& a) {
  const GroupedGeometry g = deform::cuda_geometry(ctx, deform::sizes_of(a));
  if (a.out0.numel() == 0 || a.grad.numel() == 0 || g.taps == 0) {  // nothing to sum
    deform::fill_zeros(ctx, a.out0);
    deform::fill_zeros(ctx, a.out1);
    deform::fill_zeros(ctx, a.out2);
    return;
  }
  gradients(ctx, a, g);
}
OPSMITH_KERNEL(vision, deform_conv2d_backward_input, cuda, float, double, opsmith::half,
               opsmith::bfloat16)
