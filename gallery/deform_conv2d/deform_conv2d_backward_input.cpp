// The gradients of deformable convolution's input, offsets and mask: the columns' gradient is the
// weights times the output's gradient, made a few pixels at a time and at once spread over the four
// corners of each sampled position, and multiplied with them for what moving it would change.
//
// A task owns a block of channels of one image and goes through its pixels in order, so nothing
// is added atomically; what blocks contribute to the same offset is added up afterwards, in order.
// The result does not depend on the number of threads.
#include "deform_conv2d_backward_input.h"

#include "sampling.h"

namespace {

using deform::Geometry;

// The channels of a block that share offsets, and where their part of the offsets' gradient goes.
struct Strip {
  int64_t offset_group, begin, end, index;
};

// How the channels are cut: blocks of `width` within each weight group, each into strips. All
// strips, in the order of their channels, are numbered, so those of one offset group are adjacent.
struct Cuts {
  Cuts(const opsmith::Context& ctx, const Geometry& g, int64_t width)
      : width(width), blocks((g.channels + width - 1) / width) {
    first_strip = ctx.scratch<int64_t>(g.groups * blocks + 1);
    group_strips = ctx.scratch<int64_t>(g.offset_groups + 1);
    int64_t last_group = -1;
    for (int64_t block = 0; block < g.groups * blocks; ++block) {
      first_strip[block] = strips;
      each(g, block, [&](const Strip& strip) {
        while (last_group < strip.offset_group) group_strips[++last_group] = strips;
        ++strips;
      });
    }
    first_strip[g.groups * blocks] = strips;
    group_strips[g.offset_groups] = strips;
  }

  int64_t first_channel(const Geometry& g, int64_t block) const {
    return block / blocks * g.channels + block % blocks * width;
  }

  template <typename Body>
  void each(const Geometry& g, int64_t block, Body&& body) const {
    const int64_t channel = first_channel(g, block);
    const int64_t channels = std::min(width, g.channels - block % blocks * width);
    int64_t index = first_strip[block];
    deform::by_offset_group(g, channel, channel + channels,
                            [&](int64_t group, int64_t begin, int64_t end) {
                              body(Strip{group, begin, end, index++});
                            });
  }

  int64_t width, blocks;            // blocks of one weight group
  std::span<int64_t> first_strip;   // of each block
  std::span<int64_t> group_strips;  // the first strip of each offset group
  int64_t strips = 0;
};

// Panels: block, tap, then output channel, then the block's channels.
template <typename T, typename A>
void pack_weights(const opsmith::Context& ctx, const Geometry& g, const Cuts& cuts, const T* weight,
                  A* packed) {
  const int64_t width = cuts.width, panel = g.outputs * width;
  const int64_t channels = g.channels / g.merged, outputs = g.outputs / g.merged;
  ctx.parallel_for(0, g.groups * cuts.blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t group = block / cuts.blocks, low = block % cuts.blocks * width;
      A* to = packed + block * g.taps * panel;
      std::fill_n(to, g.taps * panel, A(0));
      for (int64_t m = 0; m < g.outputs; ++m) {
        // Of a merged group, the block on the diagonal that output m is in.
        const int64_t first = g.merged > 1 ? m / outputs * channels : 0;
        const int64_t start = std::max(low, first);
        const T* from = weight + ((group * g.outputs + m) * channels + start - first) * g.taps;
        deform::transpose(from, g.taps, to + m * width + start - low, panel,
                          std::min(low + width, first + channels) - start, g.taps);
      }
    }
  });
}

// One offset's gradient, y and x, and its mask's.
enum Part { part_y, part_x, part_mask, parts };

// The pixels of a tile, at one tap, for the channels of a strip. `columns` is the columns' gradient
// (`width` apart), `rows` the strip's channels of the input, `grad_rows` of its gradient. `partial`
// gets the strip's contribution to the offsets, the parts `part_stride` apart.
template <typename A, bool whole_vectors, int64_t width>
inline void spread(const deform::Corners<A>& at, int64_t count, int64_t channels, const A* columns,
                   const A* rows, int64_t stride, A* grad_rows, A* partial, int64_t part_stride) {
  using V = gemm::Vector<A>;
  for (int64_t i = 0; i < count; ++i, columns += width) {
    const A* from[4];
    A* to[4];
    V share[4], dot[4];
    for (int k = 0; k < 4; ++k) {
      from[k] = rows + at.row[k][i] * stride;
      to[k] = grad_rows + at.row[k][i] * width;
      share[k] = V::fill(at.share[k][i] * at.mask[i]);
      dot[k] = V{};
    }
    for (int64_t c = 0; c < channels; c += V::lanes) {
      V column = V::load(columns + c);
      V corner[4];
      for (int k = 0; k < 4; ++k) corner[k] = V::load(from[k] + c);
      if constexpr (!whole_vectors) {
        // The other lanes belong to other strips; what they hold may be infinite.
        column = column.first(channels - c);
        for (int k = 0; k < 4; ++k) corner[k] = corner[k].first(channels - c);
      }
      for (int k = 0; k < 4; ++k) {
        dot[k] += column * corner[k];
        (V::load(to[k] + c) + column * share[k]).store(to[k] + c);
      }
    }
    const A low_low = dot[0].sum(), low_high = dot[1].sum();
    const A high_low = dot[2].sum(), high_high = dot[3].sum();
    const A y = at.y[i], x = at.x[i], mask = at.mask[i];
    partial[part_y * part_stride + i] =
        mask * ((1 - x) * (high_low - low_low) + x * (high_high - low_high));
    partial[part_x * part_stride + i] =
        mask * ((1 - y) * (low_high - low_low) + y * (high_high - high_low));
    partial[part_mask * part_stride + i] = at.share[0][i] * low_low + at.share[1][i] * low_high +
                                           at.share[2][i] * high_low + at.share[3][i] * high_high;
  }
}

template <typename T, int vectors>
void gradients(const opsmith::Context& ctx, const vision::deform_conv2d_backward_input_args<T>& a,
               const Geometry& g) {
  using A = deform::compute_t<T>;
  constexpr int64_t lanes = gemm::Vector<A>::lanes;
  constexpr int64_t height = gemm::Tile<A>::rows, width = vectors * lanes;
  constexpr int64_t tile = 112 / height * height;
  constexpr int64_t images_bytes = 8 << 20, partial_bytes = 8 << 20;
  const Cuts cuts(ctx, g, width);
  const int64_t blocks = g.groups * cuts.blocks, stride = deform::row_stride<A>(g);

  const auto packed = ctx.scratch<A>(blocks * g.taps * g.outputs * width);
  pack_weights(ctx, g, cuts, a.weight.data(), packed.data());

  // A vector may be stored past the last channel.
  const int64_t block_rows = g.image_rows() * width + lanes;
  const int64_t image_bytes =
      static_cast<int64_t>(sizeof(A)) * (g.image_rows() * stride + blocks * block_rows);
  const int64_t images = std::clamp<int64_t>(images_bytes / image_bytes, 1, g.N);
  const auto rows = ctx.scratch<A>(deform::rows_count<A>(g, images));
  const auto grad_rows = ctx.scratch<A>(images * blocks * block_rows);

  // As many pixels at a time as have room for what each strip contributes to their offsets.
  const int64_t pixel_bytes =
      static_cast<int64_t>(sizeof(A)) * images * cuts.strips * parts * g.taps;
  const int64_t chunk =
      std::min(g.pixels, std::max<int64_t>(tile, partial_bytes / pixel_bytes / tile * tile));
  const auto partial = ctx.scratch<A>(images * cuts.strips * parts * g.taps * chunk);

  const int64_t workers = deform::worker_count(ctx, images * blocks);
  const auto state = ctx.scratch<deform::Pixels>(workers);
  const auto corners_memory = ctx.scratch<A>(workers * deform::Corners<A>::size(tile));
  const auto columns_memory = ctx.scratch<A>(workers * (tile * width + lanes));
  const auto grad_memory = ctx.scratch<A>(workers * tile * g.outputs);

  for (int64_t first = 0; first < g.N; first += images) {
    const int64_t here = std::min(images, g.N - first);
    deform::turn_images(ctx, g, a.input.data() + first * g.C * g.H * g.W, here, rows.data());
    for (int64_t start = 0; start < g.pixels; start += chunk) {
      const int64_t stop = std::min(g.pixels, start + chunk), count = stop - start;
      deform::share_out(ctx, here * blocks, [&](int64_t worker, int64_t task) {
        deform::Pixels& pixels = state[worker];
        const deform::Corners<A> corners(
            corners_memory.data() + worker * deform::Corners<A>::size(tile), tile);
        A* columns = columns_memory.data() + worker * (tile * width + lanes);
        A* grad = grad_memory.data() + worker * tile * g.outputs;
        const int64_t image = task / blocks, block = task % blocks, group = block / cuts.blocks;
        const int64_t channel = cuts.first_channel(g, block);
        const A* image_rows = rows.data() + image * g.image_rows() * stride;
        A* block_grad = grad_rows.data() + task * block_rows;
        if (start == 0) std::fill_n(block_grad, block_rows, A(0));
        const T* grad_out = a.grad.data() + ((first + image) * g.M + group * g.outputs) * g.pixels;

        for (int64_t p = start; p < stop; p += tile) {
          const int64_t tile_pixels = std::min(tile, stop - p);
          pixels.locate(g, p, p + tile_pixels);
          // Bands of `height` pixels: output channel, then the pixels of the band.
          for (int64_t i = 0; i < tile_pixels; i += height) {
            const int64_t band = std::min(height, tile_pixels - i);
            for (int64_t m = 0; m < g.outputs; ++m) {
              A* to = grad + i * g.outputs + m * height;
              const T* from = grad_out + m * g.pixels + p + i;
              for (int64_t r = 0; r < band; ++r) to[r] = static_cast<A>(from[r]);
              for (int64_t r = band; r < height; ++r) to[r] = A(0);
            }
          }
          for (int64_t tap = 0; tap < g.taps; ++tap) {
            const A* panel = packed.data() + (block * g.taps + tap) * g.outputs * width;
            for (int64_t i = 0; i < tile_pixels; i += height) {
              gemm::multiply<A, vectors, 1, height>(g.outputs, grad + i * g.outputs, panel,
                                                    columns + i * width, width, false);
            }
            cuts.each(g, block, [&](const Strip& strip) {
              corners.template locate<true>(g, pixels, a.offset.data(), a.mask.data(),
                                            first + image, strip.offset_group, tap);
              const int64_t strip_channels = strip.end - strip.begin;
              const auto spread_strip =
                  strip_channels % lanes == 0 ? spread<A, true, width> : spread<A, false, width>;
              spread_strip(
                  corners, tile_pixels, strip_channels, columns + strip.begin - channel,
                  image_rows + strip.begin, stride, block_grad + strip.begin - channel,
                  partial.data() +
                      ((image * cuts.strips + strip.index) * g.taps + tap) * parts * chunk + p -
                      start,
                  chunk);
            });
          }
        }
      });

      const int64_t planes = g.offset_groups * g.taps;
      ctx.parallel_for(0, here * planes, 4, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t image = i / planes, offset_group = i % planes / g.taps, tap = i % g.taps;
          const int64_t plane = (first + image) * planes + i % planes;
          T* to[parts] = {a.out1.data() + 2 * plane * g.pixels + start,
                          a.out1.data() + (2 * plane + 1) * g.pixels + start,
                          a.out2.data() + plane * g.pixels + start};
          const int64_t low = cuts.group_strips[offset_group];
          const int64_t high = cuts.group_strips[offset_group + 1];
          for (int part = 0; part < parts; ++part) {
            const auto from = [&](int64_t strip) {
              return partial.data() +
                     (((image * cuts.strips + strip) * g.taps + tap) * parts + part) * chunk;
            };
            A* sum = from(low);
            for (int64_t strip = low + 1; strip < high; ++strip) {
              const A* more = from(strip);
              for (int64_t p = 0; p < count; ++p) sum[p] += more[p];
            }
            for (int64_t p = 0; p < count; ++p) to[part][p] = static_cast<T>(sum[p]);
          }
        }
      });
    }

    ctx.parallel_for(0, here * blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t image = task / blocks, block = task % blocks;
        const int64_t channels = std::min(width, g.channels - block % cuts.blocks * width);
        T* to = a.out0.data() + ((first + image) * g.C + cuts.first_channel(g, block)) * g.H * g.W;
        // Some pixels at a time, whose rows stay in cache.
        constexpr int64_t some = 128;
        for (int64_t p = 0; p < g.H * g.W; p += some) {
          deform::transpose(grad_rows.data() + task * block_rows + p * width, width, to + p,
                            g.H * g.W, std::min(some, g.H * g.W - p), channels);
        }
      }
    });
  }
}

}  // namespace

template <typename T>
void deform_conv2d_backward_input(const opsmith::Context& ctx,
                                  const vision::deform_conv2d_backward_input_args<T>& a) {
  const deform::Geometry g = deform::geometry<T>(ctx, deform::sizes_of(a));
  if (a.out0.numel() == 0 || a.grad.numel() == 0 || g.taps == 0) {  // nothing to sum
    std::fill_n(a.out0.data(), a.out0.numel(), static_cast<T>(0));
    std::fill_n(a.out1.data(), a.out1.numel(), static_cast<T>(0));
    std::fill_n(a.out2.data(), a.out2.numel(), static_cast<T>(0));
    return;
  }
  if (g.channels <= gemm::Vector<deform::compute_t<T>>::lanes) {
    gradients<T, 1>(ctx, a, g);
  } else {
    gradients<T, gemm::Tile<deform::compute_t<T>>::vectors>(ctx, a, g);
  }
}
OPSMITH_KERNEL(vision, deform_conv2d_backward_input, cpu, float, double, opsmith::half,
               opsmith::bfloat16)
