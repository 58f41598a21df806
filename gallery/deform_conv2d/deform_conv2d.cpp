// Deformable convolution: sample a tile of output pixels into rows of (tap, channel), multiply the
// rows by the packed weights while they are in cache, go on. Beside inputs and outputs it holds the
// packed weights, a few turned images and one tile for each thread; never all columns.
//
// Each output is summed in an order that the shapes alone decide, so the result is the same, bit
// for bit, for any number of threads.
#include "deform_conv2d.h"

#include "sampling.h"

namespace {

using deform::Geometry;

// How the (channel, tap) products of one weight group are cut into pieces that a tile has room for.
template <typename A>
struct Pieces {
  static constexpr int64_t most = 1024 / sizeof(A);  // (tap, channel) pairs of a piece
  // A tile's rows are this far apart. Not a power of two: they would all fall on the same few sets
  // of the cache.
  static constexpr int64_t stride = most + 64 / sizeof(A);

  struct Piece {
    int64_t first_channel, last_channel, first_tap, last_tap;
    int64_t channels() const { return last_channel - first_channel; }
    int64_t depth() const { return channels() * (last_tap - first_tap); }
  };

  explicit Pieces(const Geometry& g) : geometry(g) {
    const int64_t parts = (g.channels + most - 1) / most;
    // All but the last in whole vectors: what sampling writes behind a piece's last channel is then
    // within the row.
    channels = std::min(g.channels,
                        gemm::round_up((g.channels + parts - 1) / parts, gemm::Vector<A>::lanes));
    channel_parts = (g.channels + channels - 1) / channels;
    const int64_t together = std::max<int64_t>(1, most / channels);
    const int64_t tap_pieces = (g.taps + together - 1) / together;
    taps = (g.taps + tap_pieces - 1) / tap_pieces;
    tap_parts = (g.taps + taps - 1) / taps;
  }

  int64_t count() const { return channel_parts * tap_parts; }

  Piece operator[](int64_t i) const {
    const int64_t channel = i / tap_parts * channels, tap = i % tap_parts * taps;
    return {channel, std::min(channel + channels, geometry.channels), tap,
            std::min(tap + taps, geometry.taps)};
  }

  const Geometry& geometry;
  int64_t channels, taps, channel_parts, tap_parts;
};

// The weights, in the order in which the product reads them: group, piece, panel, then (tap,
// channel), then the outputs of the panel.
template <typename T, typename A>
void pack_weights(const opsmith::Context& ctx, const Geometry& g, const Pieces<A>& pieces,
                  const T* weight, int64_t width, A* packed) {
  constexpr int64_t block = 32;  // channels
  const int64_t panels = (g.outputs + width - 1) / width;
  const int64_t blocks = (pieces.channels + block - 1) / block;
  const int64_t channels = g.channels / g.merged, outputs = g.outputs / g.merged;
  const int64_t items = g.groups * panels * pieces.channel_parts * blocks;
  const int64_t row = g.taps * block;
  const auto memory = ctx.scratch<A>(deform::worker_count(ctx, items) * width * row);
  deform::share_out(ctx, items, [&](int64_t worker, int64_t item) {
    const int64_t part = item / blocks % pieces.channel_parts;
    const int64_t panel = item / blocks / pieces.channel_parts % panels;
    const int64_t group = item / blocks / pieces.channel_parts / panels;
    const int64_t first_channel = part * pieces.channels;
    const int64_t part_channels = std::min(pieces.channels, g.channels - first_channel);
    const int64_t low = item % blocks * block, high = std::min(low + block, part_channels);
    // First each output's weights as (tap, channel), then the whole turned: both are quick where a
    // strided walk through all weights is not.
    A* turned = memory.data() + worker * width * row;
    const int64_t first_output = panel * width;
    const int64_t count = std::min(width, g.outputs - first_output);
    if (g.merged > 1 || count < width) std::fill_n(turned, width * row, A(0));
    for (int64_t m = 0; m < count; ++m) {
      // Of a merged group, the block on the diagonal that output m is in.
      const int64_t diagonal = g.merged > 1 ? (first_output + m) / outputs * channels : 0;
      const int64_t begin = std::max(diagonal, first_channel + low);
      const int64_t end = std::min(diagonal + channels, first_channel + high);
      const T* from = weight + (group * g.outputs + first_output + m) * channels * g.taps;
      deform::transpose(from + (begin - diagonal) * g.taps, g.taps,
                        turned + m * row + begin - first_channel - low, block, end - begin, g.taps);
    }
    for (int64_t tap = 0; tap < g.taps && low < high; ++tap) {
      const int64_t first_tap = tap / pieces.taps * pieces.taps;
      const int64_t depth = part_channels * (std::min(first_tap + pieces.taps, g.taps) - first_tap);
      // Pieces before this one hold all the (tap, channel) pairs below its own.
      const int64_t done =
          (group * g.channels + first_channel) * g.taps + part_channels * first_tap;
      A* to = packed +
              (done * panels + panel * depth + (tap - first_tap) * part_channels + low) * width;
      deform::transpose(turned + tap * block, row, to, width, width, high - low);
    }
  });
}

template <typename T, int vectors>
void convolve(const opsmith::Context& ctx, const vision::deform_conv2d_args<T>& a,
              const Geometry& g) {
  using A = deform::compute_t<T>;
  constexpr int64_t height = gemm::Tile<A>::rows, width = vectors * gemm::Vector<A>::lanes;
  constexpr int64_t tile_bytes = 128 << 10, images_bytes = 8 << 20;
  const Pieces<A> pieces(g);
  const int64_t panels = (g.outputs + width - 1) / width;
  const int64_t stride = deform::row_stride<A>(g);

  const auto packed = ctx.scratch<A>(g.groups * g.channels * g.taps * panels * width);
  pack_weights(ctx, g, pieces, a.weight.data(), width, packed.data());

  const int64_t image_bytes = g.image_rows() * stride * static_cast<int64_t>(sizeof(A));
  const int64_t images = std::clamp<int64_t>(images_bytes / image_bytes, 1, g.N);
  const auto rows = ctx.scratch<A>(deform::rows_count<A>(g, images));

  // Tiles of about tile_bytes, in a number that comes out even for the threads.
  const int64_t all = images * g.pixels;
  const int64_t limit = std::clamp<int64_t>(tile_bytes / static_cast<int64_t>(sizeof(A)) /
                                                (pieces.stride + panels * width) / height * height,
                                            height, deform::Pixels::most / height * height);
  const int64_t threads = ctx.num_threads();
  const int64_t tiles = gemm::round_up((all + limit - 1) / limit, threads);
  const int64_t tile = gemm::round_up((all + tiles - 1) / tiles, height);

  const deform::CornerTable<A> table(g, tile);
  const int64_t workers = deform::worker_count(ctx, (all + tile - 1) / tile);
  const auto state = ctx.scratch<deform::Pixels>(workers);
  const auto corners_memory = ctx.scratch<A>(workers * table.size());
  const int64_t column_count = tile * pieces.stride, sum_count = tile * panels * width;
  const auto tiles_memory = ctx.scratch<A>(workers * (column_count + sum_count));
  // Rows of a tile that stand for no pixel are multiplied too: not with denormals.
  std::fill(tiles_memory.begin(), tiles_memory.end(), A(0));

  for (int64_t first = 0; first < g.N; first += images) {
    const int64_t here = std::min(images, g.N - first);
    deform::turn_images(ctx, g, a.input.data() + first * g.C * g.H * g.W, here, rows.data());
    const int64_t count = here * g.pixels;
    deform::share_out(ctx, (count + tile - 1) / tile, [&](int64_t worker, int64_t item) {
      deform::Pixels& pixels = state[worker];
      A* corners_of_tile = corners_memory.data() + worker * table.size();
      A* columns = tiles_memory.data() + worker * (column_count + sum_count);
      A* sums = columns + column_count;
      pixels.locate(g, item * tile, std::min(count, (item + 1) * tile));
      table.template start<false>(corners_of_tile, g, pixels, a.offset.data(), a.mask.data(),
                                  first);
      for (int64_t group = 0; group < g.groups; ++group) {
        const A* panel_data = packed.data() + group * g.channels * g.taps * panels * width;
        for (int64_t p = 0; p < pieces.count(); ++p) {
          const auto piece = pieces[p];
          for (int64_t tap = piece.first_tap; tap < piece.last_tap; ++tap) {
            A* place = columns + (tap - piece.first_tap) * piece.channels();
            const int64_t channel = group * g.channels + piece.first_channel;
            deform::by_offset_group(
                g, channel, channel + piece.channels(),
                [&](int64_t offset_group, int64_t begin, int64_t end) {
                  const auto corners =
                      table.template get<false>(corners_of_tile, g, pixels, a.offset.data(),
                                                a.mask.data(), first, offset_group, tap);
                  deform::sample<false>(corners, pixels.count, rows.data() + begin, stride,
                                        end - begin, place + begin - channel, pieces.stride);
                });
          }
          for (int64_t i = 0; i < pixels.count; i += height) {
            for (int64_t j = 0; j < panels; ++j) {
              gemm::multiply<A, vectors, Pieces<A>::stride, 1>(
                  piece.depth(), columns + i * pieces.stride,
                  panel_data + j * piece.depth() * width, sums + (j * tile + i) * width, width,
                  p > 0);
            }
          }
          panel_data += piece.depth() * panels * width;
        }
        for (int64_t r = 0; r < pixels.run_count; ++r) {
          const auto& run = pixels.runs[r];
          const int64_t output = group * g.outputs;
          T* out = a.out.data() + ((first + run.image) * g.M + output) * g.pixels + run.pixel;
          for (int64_t j = 0; j < panels; ++j) {
            A* from = sums + (j * tile + run.begin) * width;
            const int64_t outputs = std::min(width, g.outputs - j * width);
            if (a.bias) {
              for (int64_t i = 0; i < run.end - run.begin; ++i) {
                for (int64_t m = 0; m < outputs; ++m) {
                  from[i * width + m] += static_cast<A>(a.bias[output + j * width + m]);
                }
              }
            }
            // Few outputs at a time: their planes may all fall on one set of the cache.
            for (int64_t m = 0; m < outputs; m += 8) {
              deform::transpose(from + m, width, out + (j * width + m) * g.pixels, g.pixels,
                                run.end - run.begin, std::min<int64_t>(8, outputs - m));
            }
          }
        }
      }
    });
  }
}

}  // namespace

template <typename T>
void deform_conv2d(const opsmith::Context& ctx, const vision::deform_conv2d_args<T>& a) {
  const deform::Geometry g = deform::geometry<T>(ctx, deform::sizes_of(a));
  if (a.out.numel() == 0) return;
  if (g.C == 0 || g.taps == 0) {  // nothing to sum
    for (int64_t i = 0; i < a.out.numel(); ++i) {
      a.out[i] = a.bias ? a.bias[i / g.pixels % g.M] : static_cast<T>(0);
    }
    return;
  }
  if (g.outputs <= gemm::Vector<deform::compute_t<T>>::lanes) {
    convolve<T, 1>(ctx, a, g);
  } else {
    convolve<T, gemm::Tile<deform::compute_t<T>>::vectors>(ctx, a, g);
  }
}
OPSMITH_KERNEL(vision, deform_conv2d, cpu, float, double, opsmith::half, opsmith::bfloat16)
