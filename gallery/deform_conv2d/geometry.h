// The sizes of a call, for kernels of every device.
#pragma once

#include <opsmith/kernel.h>
#include <opsmith/math.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

namespace deform {

// float16 and bfloat16 are computed in float32 from the first load to the last store.
template <typename T>
using compute_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

struct GroupedGeometry {
  int64_t N, C, H, W;  // input
  int64_t M;           // output channels
  int64_t kernel_h, kernel_w, taps;
  int64_t out_h, out_w, pixels;  // pixels of one output image
  int64_t offset_groups, channels_per_offset_group;
  std::array<int64_t, 2> stride, padding, dilation;
  int64_t groups, channels, outputs;  // weight groups, and what each has
};

struct Sizes {
  std::span<const int64_t> input;   // N C H W
  std::array<int64_t, 4> weight;    // M C/groups kH kW
  std::span<const int64_t> offset;  // N 2*offset_groups*kH*kW Ho Wo
  std::array<int64_t, 2> stride, padding, dilation;
};

// Of a call of any of the three operators; one is given the shape of the weight in its place.
template <typename Args>
Sizes sizes_of(const Args& a) {
  std::array<int64_t, 4> weight;
  if constexpr (requires { a.weight_shape; }) {
    weight = a.weight_shape;
  } else {
    std::copy_n(a.weight.sizes().begin(), 4, weight.begin());
  }
  return {a.input.sizes(), weight, a.offset.sizes(), a.stride, a.padding, a.dilation};
}

inline GroupedGeometry grouped_geometry(const opsmith::Context& ctx, const Sizes& sizes) {
  GroupedGeometry g{};
  g.N = sizes.input[0], g.C = sizes.input[1], g.H = sizes.input[2], g.W = sizes.input[3];
  g.M = sizes.weight[0], g.kernel_h = sizes.weight[2], g.kernel_w = sizes.weight[3];
  g.taps = g.kernel_h * g.kernel_w;
  g.out_h = sizes.offset[2], g.out_w = sizes.offset[3], g.pixels = g.out_h * g.out_w;
  g.stride = sizes.stride, g.padding = sizes.padding, g.dilation = sizes.dilation;

  g.groups = g.C / sizes.weight[1];
  g.offset_groups = sizes.offset[1] / (2 * g.taps);
  g.channels_per_offset_group = g.C / g.offset_groups;
  // Positions are 32-bit, the farthest sampled one being at most 2^30 away from its tap.
  if (g.H * g.W >= (int64_t{1} << 29) ||
      (g.out_h + 1) * g.stride[0] + g.kernel_h * g.dilation[0] >= (int64_t{1} << 29) ||
      (g.out_w + 1) * g.stride[1] + g.kernel_w * g.dilation[1] >= (int64_t{1} << 29)) {
    ctx.fail("an image of ", g.H, " x ", g.W, " is more than this kernel can index.");
  }
  g.channels = g.C / g.groups;
  g.outputs = g.M / g.groups;
  return g;
}

// The whole pixels of an offset, and through `fraction` the rest. The offset is split, not the
// position: adding it to the tap's place first would round away what it says about the side of a
// pixel's border it is on, and with that the gradient.
template <typename A>
OPSMITH_HOST_DEVICE inline int32_t split_offset(A offset, A& fraction) {
  constexpr A limit = 1 << 30;
  A near = offset > -limit ? offset : -limit;  // a NaN also
  near = near < limit ? near : limit;
  auto whole = static_cast<int32_t>(near);
  whole -= near < static_cast<A>(whole) ? 1 : 0;
  // A NaN offset gives a NaN; infinite ones sample nothing.
  const A rest = near - static_cast<A>(whole);
  fraction = offset == offset ? rest : offset;
  return whole;
}

}  // namespace deform
