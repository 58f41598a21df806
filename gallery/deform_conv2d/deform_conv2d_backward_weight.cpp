// The gradient of deformable convolution's weights: sample again, and multiply by the output's
// gradient over all pixels.
//
// A task owns the sums of a block of input channels at one tap, and goes through the pixels in
// order; the result does not depend on the number of threads.
#include "deform_conv2d_backward_weight.h"

#include "sampling.h"

namespace {

using deform::Geometry;

template <typename T, int vectors>
void gradient(const opsmith::Context& ctx, const vision::deform_conv2d_backward_weight_args<T>& a,
              const Geometry& g) {
  using A = deform::compute_t<T>;
  constexpr int64_t height = gemm::Tile<A>::rows, width = vectors * gemm::Vector<A>::lanes;
  constexpr int64_t tile = deform::Pixels::most, images_bytes = 8 << 20;
  const int64_t stride = deform::row_stride<A>(g);
  const int64_t blocks = (g.channels + width - 1) / width;
  const int64_t bands = (g.outputs + height - 1) / height;  // of output channels

  const int64_t image_bytes = static_cast<int64_t>(sizeof(A)) *
                              (g.image_rows() * stride + g.groups * bands * height * g.pixels);
  const int64_t images = std::clamp<int64_t>(images_bytes / image_bytes, 1, g.N);
  const auto rows = ctx.scratch<A>(deform::rows_count<A>(g, images));
  const auto grad = ctx.scratch<A>(images * g.groups * bands * height * g.pixels);

  const int64_t tasks = g.groups * blocks * g.taps;
  const int64_t task_sums = bands * height * width;
  const auto sums = ctx.scratch<A>(tasks * task_sums);

  const int64_t workers = deform::worker_count(ctx, tasks);
  const auto state = ctx.scratch<deform::Pixels>(workers);
  const auto corners_memory = ctx.scratch<A>(workers * deform::Corners<A>::size(tile));
  const auto columns_memory = ctx.scratch<A>(workers * tile * width);
  std::fill(columns_memory.begin(), columns_memory.end(), A(0));

  for (int64_t first = 0; first < g.N; first += images) {
    const int64_t here = std::min(images, g.N - first), count = here * g.pixels;
    deform::turn_images(ctx, g, a.input.data() + first * g.C * g.H * g.W, here, rows.data());

    // The gradient in bands of output channels, those of a pixel side by side.
    ctx.parallel_for(0, g.groups * bands * here, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t image = i % here, band = i / here % bands, group = i / here / bands;
        const int64_t outputs = std::min(height, g.outputs - band * height);
        const int64_t output = group * g.outputs + band * height;
        A* to = grad.data() + ((group * bands + band) * count + image * g.pixels) * height;
        if (outputs < height) std::fill_n(to, g.pixels * height, A(0));
        deform::transpose(a.grad.data() + ((first + image) * g.M + output) * g.pixels, g.pixels, to,
                          height, outputs, g.pixels);
      }
    });

    deform::share_out(ctx, tasks, [&](int64_t worker, int64_t task) {
      deform::Pixels& pixels = state[worker];
      const deform::Corners<A> corners(
          corners_memory.data() + worker * deform::Corners<A>::size(tile), tile);
      A* columns = columns_memory.data() + worker * tile * width;
      const int64_t tap = task % g.taps, block = task / g.taps % blocks;
      const int64_t group = task / g.taps / blocks;
      const int64_t channel = group * g.channels + block * width;
      const int64_t channels = std::min(width, g.channels - block * width);
      A* sum = sums.data() + task * task_sums;
      for (int64_t start = 0; start < count; start += tile) {
        pixels.locate(g, start, std::min(count, start + tile));
        deform::by_offset_group(
            g, channel, channel + channels, [&](int64_t offset_group, int64_t begin, int64_t end) {
              corners.template locate<false>(g, pixels, a.offset.data(), a.mask.data(), first,
                                             offset_group, tap);
              deform::sample<true>(corners, pixels.count, rows.data() + begin, stride, end - begin,
                                   columns + begin - channel, width);
            });
        for (int64_t band = 0; band < bands; ++band) {
          gemm::multiply<A, vectors, 1, height>(
              pixels.count, grad.data() + ((group * bands + band) * count + start) * height,
              columns, sum + band * height * width, width, first > 0 || start > 0);
        }
      }
    });
  }

  ctx.parallel_for(0, g.M, 1, [&](int64_t begin, int64_t end) {
    const int64_t channels = g.channels / g.merged, outputs = g.outputs / g.merged;
    for (int64_t m = begin; m < end; ++m) {
      const int64_t group = m / g.outputs, output = m % g.outputs;
      const int64_t first = output / outputs * channels;  // of a merged group, its diagonal block
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t block = (first + c) / width, lane = (first + c) % width;
        for (int64_t tap = 0; tap < g.taps; ++tap) {
          const int64_t task = (group * blocks + block) * g.taps + tap;
          a.out[(m * channels + c) * g.taps + tap] =
              static_cast<T>(sums[task * task_sums + output * width + lane]);
        }
      }
    }
  });
}

}  // namespace

template <typename T>
void deform_conv2d_backward_weight(const opsmith::Context& ctx,
                                   const vision::deform_conv2d_backward_weight_args<T>& a) {
  const deform::Geometry g = deform::geometry<T>(ctx, deform::sizes_of(a));
  if (a.out.numel() == 0) return;
  if (g.N == 0 || g.pixels == 0) {
    std::fill_n(a.out.data(), a.out.numel(), static_cast<T>(0));
    return;
  }
  if (g.channels <= gemm::Vector<deform::compute_t<T>>::lanes) {
    gradient<T, 1>(ctx, a, g);
  } else {
    gradient<T, gemm::Tile<deform::compute_t<T>>::vectors>(ctx, a, g);
  }
}
OPSMITH_KERNEL(vision, deform_conv2d_backward_weight, cpu, float, double, opsmith::half,
               opsmith::bfloat16)
