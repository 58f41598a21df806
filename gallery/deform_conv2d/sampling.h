// What the three kernels for the CPU share: the input turned so that the channels of a pixel lie
// side by side, and where each tap of each output pixel samples it.
#pragma once

#include <opsmith/kernel.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>

#include "../gemm.h"
#include "geometry.h"

namespace deform {

// Of the CPU: weight groups may be merged, and `image_rows` of a turned image.
struct Geometry : GroupedGeometry {
  // Weight groups, `merged` of the declared ones taken as one: a group narrower than a vector would
  // fill the rest of it with nothing, so neighbours share it, as a block-diagonal matrix.
  int64_t merged;

  int64_t image_rows() const { return H * W + 1; }  // the last one is zero: see `Corners`
};

template <typename T>
Geometry geometry(const opsmith::Context& ctx, const Sizes& sizes) {
  Geometry g{grouped_geometry(ctx, sizes), 1};
  constexpr int64_t lanes = gemm::Vector<compute_t<T>>::lanes;
  if (g.groups > 0) {
    for (int64_t r = 2; r <= g.groups && r * g.outputs <= lanes; ++r) {
      if (g.groups % r == 0) g.merged = r;
    }
    g.groups /= g.merged;
    g.channels *= g.merged;
    g.outputs *= g.merged;
  }
  return g;
}

// How many threads share a list of work.
inline int64_t worker_count(const opsmith::Context& ctx, int64_t items) {
  return std::clamp<int64_t>(ctx.num_threads(), 1, std::max<int64_t>(items, 1));
}

// body(worker, item) for each item, `worker` < worker_count(ctx, items) being no one else's. Each
// worker has a range of its own, so that one pass finds in its cache what the pass before it left
// there of the same part of the image. Then it helps the others: a thread that the machine slows
// down does not hold up the rest.
template <typename Body>
void share_out(const opsmith::Context& ctx, int64_t items, Body&& body) {
  struct alignas(64) Range {
    std::atomic<int64_t> next;
    int64_t end;
  };
  const int64_t workers = worker_count(ctx, items);
  const auto ranges = ctx.scratch<Range>(workers);
  for (int64_t worker = 0; worker < workers; ++worker) {
    new (&ranges[worker]) Range{worker * items / workers, (worker + 1) * items / workers};
  }
  ctx.parallel_for(0, workers, 1, [&](int64_t begin, int64_t end) {
    for (int64_t worker = begin; worker < end; ++worker) {
      for (int64_t helped = 0; helped < workers; ++helped) {
        Range& range = ranges[(worker + helped) % workers];
        for (int64_t item = range.next++; item < range.end; item = range.next++) body(worker, item);
      }
    }
  });
}

// to[c * to_stride + r] = from[r * from_stride + c]
template <typename From, typename To>
inline void transpose(const From* from, int64_t from_stride, To* to, int64_t to_stride,
                      int64_t rows, int64_t columns) {
  int64_t r = 0;
  if constexpr (std::is_same_v<From, float> && std::is_same_v<To, float>) {
    using V = opsmith::Vec<float, 4>;
    for (; r + 4 <= rows; r += 4) {
      int64_t c = 0;
      for (; c + 4 <= columns; c += 4) {
        V in[4];
        for (int i = 0; i < 4; ++i) in[i] = V::load(from + (r + i) * from_stride + c);
        const V low01 = V::shuffle<0, 4, 1, 5>(in[0], in[1]);
        const V high01 = V::shuffle<2, 6, 3, 7>(in[0], in[1]);
        const V low23 = V::shuffle<0, 4, 1, 5>(in[2], in[3]);
        const V high23 = V::shuffle<2, 6, 3, 7>(in[2], in[3]);
        const V out[4] = {
            V::shuffle<0, 1, 4, 5>(low01, low23), V::shuffle<2, 3, 6, 7>(low01, low23),
            V::shuffle<0, 1, 4, 5>(high01, high23), V::shuffle<2, 3, 6, 7>(high01, high23)};
        for (int i = 0; i < 4; ++i) out[i].store(to + (c + i) * to_stride + r);
      }
      for (; c < columns; ++c) {
        for (int i = 0; i < 4; ++i) to[c * to_stride + r + i] = from[(r + i) * from_stride + c];
      }
    }
  }
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      to[c * to_stride + r] = static_cast<To>(from[r * from_stride + c]);
    }
  }
}

// How far apart the pixels of a turned image are, in elements: whole vectors.
template <typename A>
int64_t row_stride(const Geometry& g) {
  return gemm::round_up(g.C, gemm::Vector<A>::lanes);
}

// Room for `images` turned images; a vector may be read past the last channel.
template <typename A>
int64_t rows_count(const Geometry& g, int64_t images) {
  return images * g.image_rows() * row_stride<A>(g) + gemm::Vector<A>::lanes;
}

// Images n .. n+images of (N, C, H, W) as (images, H*W + 1, row_stride).
// In the order of the pixels, as whoever samples them takes them.
template <typename T, typename A>
void turn_images(const opsmith::Context& ctx, const Geometry& g, const T* input, int64_t images,
                 A* rows) {
  constexpr int64_t block = 128;
  const int64_t area = g.H * g.W, stride = row_stride<A>(g);
  const int64_t blocks = area / block + 1;  // the last one has the zero row
  share_out(ctx, images * blocks, [&](int64_t, int64_t item) {
    const int64_t n = item / blocks, first = item % blocks * block;
    const int64_t count = std::min(block, area - first);
    A* to = rows + (n * g.image_rows() + first) * stride;
    transpose(input + n * g.C * area + first, area, to, stride, g.C, count);
    if (stride > g.C) {
      for (int64_t p = 0; p < count; ++p) {
        std::fill(to + p * stride + g.C, to + (p + 1) * stride, A(0));
      }
    }
    if (first + count == area) std::fill(to + count * stride, to + (count + 1) * stride, A(0));
  });
  std::fill_n(rows + images * g.image_rows() * stride, gemm::Vector<A>::lanes, A(0));
}

// The output pixels [begin, end) of a run of images, counted through all of them.
struct Pixels {
  static constexpr int64_t most = 256;

  int64_t count;
  std::array<int32_t, most> y, x;  // where tap (0, 0) is, before its offset

  struct Run {  // the part of the tile that lies in one image
    int64_t begin, end, image, pixel;
  };
  std::array<Run, most> runs;
  int64_t run_count;

  void locate(const Geometry& g, int64_t begin, int64_t end) {
    count = end - begin;
    run_count = 0;
    int64_t image = begin / g.pixels, pixel = begin % g.pixels;
    for (int64_t i = 0; i < count; ++image, pixel = 0) {
      const int64_t stop = std::min(count, i + g.pixels - pixel);
      runs[run_count++] = {i, stop, image, pixel};
      int64_t row = pixel / g.out_w, column = pixel % g.out_w;
      for (; i < stop; ++i) {
        y[i] = static_cast<int32_t>(row * g.stride[0] - g.padding[0]);
        x[i] = static_cast<int32_t>(column * g.stride[1] - g.padding[1]);
        if (++column == g.out_w) column = 0, ++row;
      }
    }
  }
};

// The four pixels around each sampled position, for one tap of one offset group: which row of the
// turned images, and its share. A corner outside of the image is the row of zeros.
template <typename A>
struct Corners {
  std::array<int32_t*, 4> row;  // (low, low), (low, high), (high, low), (high, high)
  std::array<A*, 4> share;
  A *y, *x, *mask;  // fractions; filled for gradients only

  // How many elements of A `pixels` take.
  static constexpr int64_t size(int64_t pixels) {
    static_assert(sizeof(int32_t) <= sizeof(A));
    return 11 * pixels;
  }

  Corners(A* memory, int64_t pixels) {
    for (int i = 0; i < 4; ++i) {
      row[i] = static_cast<int32_t*>(static_cast<void*>(memory + i * pixels));
      share[i] = memory + (4 + i) * pixels;
    }
    y = memory + 8 * pixels, x = memory + 9 * pixels, mask = memory + 10 * pixels;
  }

  // `for_gradient`: the mask stays out of the shares, and y, x and mask are filled.
  template <bool for_gradient, typename T>
  void locate(const Geometry& g, const Pixels& at, const T* offset, const T* modulation,
              int64_t first_image, int64_t offset_group, int64_t tap) const {
    const auto down = static_cast<int32_t>(tap / g.kernel_w * g.dilation[0]);
    const auto right = static_cast<int32_t>(tap % g.kernel_w * g.dilation[1]);
    const int64_t channel = offset_group * g.taps + tap, channels = g.offset_groups * g.taps;
    for (int64_t i = 0; i < at.run_count; ++i) {
      const Pixels::Run& run = at.runs[i];
      const int64_t plane = (first_image + run.image) * channels + channel;
      const T* offset_y = offset + 2 * plane * g.pixels + run.pixel - run.begin;
      const T* masks =
          modulation == nullptr ? nullptr : modulation + plane * g.pixels + run.pixel - run.begin;
      const auto zero_row = static_cast<int32_t>((run.image + 1) * g.image_rows() - 1);
      const auto first_row = static_cast<int32_t>(run.image * g.image_rows());
      if (masks == nullptr) {
        part<for_gradient, false>(g, at, run, offset_y, masks, down, right, first_row, zero_row);
      } else {
        part<for_gradient, true>(g, at, run, offset_y, masks, down, right, first_row, zero_row);
      }
    }
  }

 private:
  template <bool for_gradient, bool masked, typename T>
  void part(const Geometry& g, const Pixels& at, const Pixels::Run& run,
            const T* __restrict offset_y, const T* __restrict masks, int32_t down, int32_t right,
            int32_t first_row, int32_t zero_row) const {
    const T* __restrict offset_x = offset_y + g.pixels;
    const auto height = static_cast<uint32_t>(g.H), width = static_cast<uint32_t>(g.W);
#pragma GCC ivdep
    for (int64_t i = run.begin; i < run.end; ++i) {
      A y_part, x_part;
      const int32_t low_y = at.y[i] + down + split_offset(static_cast<A>(offset_y[i]), y_part);
      const int32_t low_x = at.x[i] + right + split_offset(static_cast<A>(offset_x[i]), x_part);
      const bool in_low_y = static_cast<uint32_t>(low_y) < height;
      const bool in_low_x = static_cast<uint32_t>(low_x) < width;
      const bool in_high_y = static_cast<uint32_t>(low_y + 1) < height;
      const bool in_high_x = static_cast<uint32_t>(low_x + 1) < width;
      // Unsigned: far outside of the image these wrap around, and are not used.
      const uint32_t low_low = static_cast<uint32_t>(first_row) +
                               static_cast<uint32_t>(low_y) * width + static_cast<uint32_t>(low_x);
      const uint32_t high_low = low_low + width;
      row[0][i] = (in_low_y & in_low_x) ? static_cast<int32_t>(low_low) : zero_row;
      row[1][i] = (in_low_y & in_high_x) ? static_cast<int32_t>(low_low + 1) : zero_row;
      row[2][i] = (in_high_y & in_low_x) ? static_cast<int32_t>(high_low) : zero_row;
      row[3][i] = (in_high_y & in_high_x) ? static_cast<int32_t>(high_low + 1) : zero_row;
      const A amount = masked ? static_cast<A>(masks[i]) : A(1);
      const A high = for_gradient ? y_part : y_part * amount;
      const A low = for_gradient ? A(1) - y_part : (A(1) - y_part) * amount;
      share[0][i] = low * (A(1) - x_part);
      share[1][i] = low * x_part;
      share[2][i] = high * (A(1) - x_part);
      share[3][i] = high * x_part;
      if constexpr (for_gradient) {
        y[i] = y_part, x[i] = x_part, mask[i] = amount;
      }
    }
  }
};

// The corners of all taps and offset groups for one tile, where there is room to keep them: blocks
// of channels then share them. Else they are found again each time.
template <typename A>
class CornerTable {
 public:
  CornerTable(const Geometry& g, int64_t tile)
      : tile_(tile), taps_(g.taps), entries_(g.offset_groups * g.taps) {
    constexpr int64_t most_bytes = 256 << 10;
    kept_ = entries_ * Corners<A>::size(tile) * static_cast<int64_t>(sizeof(A)) <= most_bytes;
  }

  // How many elements of A a thread's table takes.
  int64_t size() const { return (kept_ ? entries_ : 1) * Corners<A>::size(tile_); }

  // What there is to do at the start of a tile.
  template <bool for_gradient, typename T>
  void start(A* memory, const Geometry& g, const Pixels& at, const T* offset, const T* modulation,
             int64_t first_image) const {
    if (!kept_) return;
    for (int64_t entry = 0; entry < entries_; ++entry) {
      Corners<A>(memory + entry * Corners<A>::size(tile_), tile_)
          .template locate<for_gradient>(g, at, offset, modulation, first_image, entry / taps_,
                                         entry % taps_);
    }
  }

  template <bool for_gradient, typename T>
  Corners<A> get(A* memory, const Geometry& g, const Pixels& at, const T* offset,
                 const T* modulation, int64_t first_image, int64_t offset_group,
                 int64_t tap) const {
    const int64_t entry = kept_ ? offset_group * taps_ + tap : 0;
    const Corners<A> corners(memory + entry * Corners<A>::size(tile_), tile_);
    if (!kept_) {
      corners.template locate<for_gradient>(g, at, offset, modulation, first_image, offset_group,
                                            tap);
    }
    return corners;
  }

 private:
  int64_t tile_, taps_, entries_;
  bool kept_;
};

// columns[i * column_stride + c] = the sampled value of channel c at pixel i. Unless `exact`, whole
// vectors are written: behind the last channel, up to a vector's length is overwritten with what is
// no value.
template <bool exact, typename A>
inline void sample(const Corners<A>& at, int64_t count, const A* rows, int64_t stride,
                   int64_t channels, A* columns, int64_t column_stride) {
  using V = gemm::Vector<A>;
  for (int64_t i = 0; i < count; ++i) {
    const A* p0 = rows + at.row[0][i] * stride;
    const A* p1 = rows + at.row[1][i] * stride;
    const A* p2 = rows + at.row[2][i] * stride;
    const A* p3 = rows + at.row[3][i] * stride;
    const auto s0 = V::fill(at.share[0][i]), s1 = V::fill(at.share[1][i]);
    const auto s2 = V::fill(at.share[2][i]), s3 = V::fill(at.share[3][i]);
    A* to = columns + i * column_stride;
    int64_t c = 0;
    for (; c < (exact ? channels - V::lanes + 1 : channels); c += V::lanes) {
      const V value =
          s0 * V::load(p0 + c) + s1 * V::load(p1 + c) + s2 * V::load(p2 + c) + s3 * V::load(p3 + c);
      value.store(to + c);
    }
    for (; c < channels; ++c) {
      to[c] = s0[0] * p0[c] + s1[0] * p1[c] + s2[0] * p2[c] + s3[0] * p3[c];
    }
  }
}

// Calls body(offset_group, begin, end) for the parts of the channels [begin, end) that share
// offsets.
template <typename Body>
inline void by_offset_group(const Geometry& g, int64_t begin, int64_t end, Body&& body) {
  while (begin < end) {
    const int64_t group = begin / g.channels_per_offset_group;
    const int64_t stop = std::min(end, (group + 1) * g.channels_per_offset_group);
    body(group, begin, stop);
    begin = stop;
  }
}

}  // namespace deform
