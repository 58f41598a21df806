// Lanes of a register are channels: a step of the recurrence waits for the step before it, and the
// channels of a group read the same B and C. The backward computes the states of a tile again from
// the state before it.
#include "selective_scan.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>

#include "selective_scan_backward.h"
#include "tiles.h"

namespace {

using gallery::kLanes, gallery::Lanes, gallery::Sum, scan::Block, scan::kSteps, scan::Tile;

constexpr int64_t kPart = 4;  // blocks, whose gradients of B and C one thread adds up

// The arguments that forward and backward share, and where things stand in them.
template <typename T, typename Args>
struct Given {
  using S = Sum<T>;
  using V = Lanes<T>;

  const Args& a;
  const int64_t each = a.channels / a.groups;  // channels of a group
  const int64_t blocks = (each + kLanes<T> - 1) / kLanes<T>;
  const int64_t parts = (blocks + kPart - 1) / kPart;
  const int64_t tiles = (a.length + kSteps - 1) / kSteps;

  Block block(int64_t pair, int64_t number) const {
    const int64_t first = number * kLanes<T>;
    return {pair / a.groups, pair % a.groups, pair % a.groups * each + first,
            std::min<int64_t>(each - first, kLanes<T>)};
  }
  int64_t channel(const Block& block) const { return block.batch * a.channels + block.first; }
  // The row of B and C of an element of the state.
  int64_t row(const Block& block, int64_t n) const {
    return ((block.batch * a.groups + block.group) * a.state + n) * a.length;
  }
  int64_t count(int64_t tile) const { return std::min(a.length - tile * kSteps, kSteps); }
  // At least so many blocks are worth a thread.
  int64_t grain() const { return (1 << 14) / (a.length * (a.state + 4) * kLanes<T> + 1) + 1; }

  void read(const T* from, const Block& block, int64_t tile, Tile<T>& to) const {
    to.read(from + channel(block) * a.length + tile * kSteps, block, a.length, count(tile));
  }
  void write(const Tile<T>& from, const Block& block, int64_t tile, T* to) const {
    from.write(to + channel(block) * a.length + tile * kSteps, block, a.length, count(tile));
  }
  V read_channels(const S* from, const Block& block) const {
    return scan::read_lanes<T>(from == nullptr ? from : from + block.first, 1, block.count);
  }
  // Elements of the state side by side, each of all lanes.
  void read_states(const S* from, int64_t channel, const Block& block, S* to) const {
    for (int64_t n = 0; n < a.state; ++n) {
      const S* own = from + channel * a.state + n;
      scan::read_lanes<T>(own, a.state, block.count).store(to + n * kLanes<T>);
    }
  }
  void write_states(const S* from, const Block& block, S* to) const {
    for (int64_t n = 0; n < a.state; ++n) {
      S* own = to + channel(block) * a.state + n;
      scan::write_lanes<T>(V::load(from + n * kLanes<T>), own, a.state, block.count);
    }
  }
  // The steps, and the slopes of the softplus unless it is null.
  void read_steps(const Block& block, int64_t tile, V bias, Tile<T>& steps, Tile<T>* slopes) const {
    read(a.delta.data(), block, tile, steps);
    const int64_t items = count(tile) * kLanes<T>;
    for (int64_t t = 0; t < count(tile); ++t) steps.set(t, steps[t] + bias);
    if (!a.delta_softplus) return;
    if (slopes != nullptr) {
      for (int64_t i = 0; i < items; ++i) {
        slopes->items[i] = scan::softplus_slope_of(steps.items[i]);
      }
    }
    for (int64_t i = 0; i < items; ++i) steps.items[i] = scan::softplus_of(steps.items[i]);
  }
};

// What is there, or null.
template <typename Tensor>
auto data_or_null(const Tensor& tensor) -> decltype(tensor->data()) {
  return tensor ? tensor->data() : nullptr;
}

}  // namespace

template <typename T, typename W>
void selective_scan(const opsmith::Context& ctx, const ssm::selective_scan_args<T, W>& a) {
  using S = Sum<T>;
  using V = Lanes<T>;
  const Given<T, ssm::selective_scan_args<T, W>> given{a};
  const int64_t blocks = given.blocks, size = a.state * kLanes<T>;
  ctx.parallel_for(0, a.batch * a.groups * blocks, given.grain(), [&](int64_t begin, int64_t end) {
    S *decays = ctx.scratch<S>(2 * size).data(), *states = decays + size;
    Tile<T> steps, inputs, y, rates, gates;
    S b[kSteps], c[kSteps];
    for (int64_t item = begin; item < end; ++item) {
      const Block block = given.block(item / blocks, item % blocks);
      const V bias = given.read_channels(data_or_null(a.delta_bias), block);
      const V past = given.read_channels(data_or_null(a.D), block);
      given.read_states(a.A.data(), block.first, block, decays);
      std::fill_n(states, size, S(0));
      for (int64_t tile = 0; tile < given.tiles; ++tile) {
        const int64_t count = given.count(tile);
        given.read_steps(block, tile, bias, steps, nullptr);
        given.read(a.u.data(), block, tile, inputs);
        for (int64_t t = 0; t < count; ++t) {
          y.set(t, a.D ? past * inputs[t] : V{});
          inputs.set(t, steps[t] * inputs[t]);
        }
        for (int64_t n = 0; n < a.state; ++n) {
          const int64_t at = given.row(block, n) + tile * kSteps;
          gallery::widen(a.B.data() + at, count, b);
          gallery::widen(a.C.data() + at, count, c);
          scan::find_rates(steps, V::load(decays + n * kLanes<T>), count, rates);
          V state = V::load(states + n * kLanes<T>);
          for (int64_t t = 0; t < count; ++t) {
            state = rates[t] * state + inputs[t] * b[t];
            y.set(t, y[t] + state * c[t]);
          }
          state.store(states + n * kLanes<T>);
        }
        if (a.z) {
          given.read(a.z->data(), block, tile, gates);
          for (int64_t i = 0; i < count * kLanes<T>; ++i) {
            y.items[i] *= gates.items[i] / (1 + gallery::exp_of(-gates.items[i]));
          }
        }
        given.write(y, block, tile, a.out0.data());
      }
      given.write_states(states, block, a.out1.data());
    }
  });
}
OPSMITH_KERNEL(ssm, selective_scan, cpu, opsmith::types<float, float>,
               opsmith::types<double, double>, opsmith::types<opsmith::half, float>,
               opsmith::types<opsmith::bfloat16, float>)

namespace {

// out[i] = the sum of what `count` parts of `size` numbers have at i, part after part.
template <typename S, typename T>
void add_parts(const opsmith::Context& ctx, const S* parts, int64_t count, int64_t size, T* out) {
  const int64_t grain = (1 << 14) / (count + 1) + 1;
  ctx.parallel_for(0, size, grain, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += gallery::kTile) {
      const int64_t some = std::min(end - first, gallery::kTile);
      gallery::Tile<S> sums;
      std::fill_n(sums.items, some, S(0));
      for (int64_t part = 0; part < count; ++part) {
        const S* own = parts + part * size + first;
        for (int64_t i = 0; i < some; ++i) sums[i] += own[i];
      }
      gallery::narrow(sums.items, some, out + first);
    }
  });
}

}  // namespace

template <typename T, typename W>
void selective_scan_backward(const opsmith::Context& ctx,
                             const ssm::selective_scan_backward_args<T, W>& a) {
  using S = Sum<T>;
  using V = Lanes<T>;
  const Given<T, ssm::selective_scan_backward_args<T, W>> given{a};
  const int64_t parts = given.parts, size = a.state * kLanes<T>, table = a.state * a.length;
  const int64_t pairs = a.batch * a.groups;
  // Each part's gradients of B and C, and each sequence's of A, D and delta_bias.
  S* of_b = ctx.scratch<S>(2 * pairs * parts * table).data();
  S* of_c = of_b + pairs * parts * table;
  S* of_decays = ctx.scratch<S>(a.batch * a.channels * (a.state + 2)).data();
  S* of_past = of_decays + a.batch * a.channels * a.state;
  S* of_bias = of_past + a.batch * a.channels;
  ctx.parallel_for(0, pairs * parts, given.grain(), [&](int64_t begin, int64_t end) {
    const int64_t starts = std::max<int64_t>(given.tiles, 1);
    S *decays = ctx.scratch<S>((starts + 3) * size).data(), *carried = decays + size,
      *own_decays = carried + size, *marks = own_decays + size;
    Tile<T> steps, slopes, u, inputs, grads, gates, of_y, y, rates, states, of_inputs, of_steps;
    S b[kSteps], c[kSteps];
    for (int64_t item = begin; item < end; ++item) {
      const int64_t pair = item / parts, first = item % parts * kPart;
      S *own_b = of_b + item * table, *own_c = of_c + item * table;
      std::fill_n(own_b, table, S(0));
      std::fill_n(own_c, table, S(0));
      for (int64_t number = first; number < std::min(first + kPart, given.blocks); ++number) {
        const Block block = given.block(pair, number);
        const V bias = given.read_channels(data_or_null(a.delta_bias), block);
        const V past = given.read_channels(data_or_null(a.D), block);
        const auto sum = [&block](V lanes) {
          return block.count == kLanes<T> ? lanes.sum() : lanes.first(block.count).sum();
        };
        given.read_states(a.A.data(), block.first, block, decays);
        given.read_states(a.grad_out1.data(), given.channel(block), block, carried);
        std::fill_n(own_decays, size, S(0));
        std::fill_n(marks, size, S(0));
        for (int64_t tile = 0; tile + 1 < given.tiles; ++tile) {
          given.read_steps(block, tile, bias, steps, nullptr);
          given.read(a.u.data(), block, tile, inputs);
          for (int64_t t = 0; t < kSteps; ++t) inputs.set(t, steps[t] * inputs[t]);
          for (int64_t n = 0; n < a.state; ++n) {
            gallery::widen(a.B.data() + given.row(block, n) + tile * kSteps, kSteps, b);
            scan::find_rates(steps, V::load(decays + n * kLanes<T>), kSteps, rates);
            S* mark = marks + tile * size + n * kLanes<T>;
            V state = V::load(mark);
            for (int64_t t = 0; t < kSteps; ++t) state = rates[t] * state + inputs[t] * b[t];
            state.store(mark + size);
          }
        }
        V own_past = {}, own_bias = {};
        for (int64_t tile = given.tiles - 1; tile >= 0; --tile) {
          const int64_t count = given.count(tile), items = count * kLanes<T>;
          given.read_steps(block, tile, bias, steps, &slopes);
          given.read(a.u.data(), block, tile, u);
          given.read(a.grad_out0.data(), block, tile, grads);
          of_y = grads;
          if (a.z) {
            given.read(a.z->data(), block, tile, gates);
            for (int64_t i = 0; i < items; ++i) {
              of_y.items[i] *= gates.items[i] / (1 + gallery::exp_of(-gates.items[i]));
            }
          }
          for (int64_t t = 0; t < count; ++t) {
            inputs.set(t, steps[t] * u[t]);
            y.set(t, a.D ? past * u[t] : V{});
            of_inputs.set(t, V{});
            of_steps.set(t, V{});
          }
          for (int64_t n = 0; n < a.state; ++n) {
            const int64_t at = given.row(block, n) + tile * kSteps;
            const V decay = V::load(decays + n * kLanes<T>);
            gallery::widen(a.B.data() + at, count, b);
            gallery::widen(a.C.data() + at, count, c);
            scan::find_rates(steps, decay, count, rates);
            const V start = V::load(marks + tile * size + n * kLanes<T>);
            V state = start;
            for (int64_t t = 0; t < count; ++t) {
              state = rates[t] * state + inputs[t] * b[t];
              states.set(t, state);
              y.set(t, y[t] + state * c[t]);
            }
            V back = V::load(carried + n * kLanes<T>),
              of_decay = V::load(own_decays + n * kLanes<T>);
            S *to_b = own_b + n * a.length + tile * kSteps,
              *to_c = own_c + n * a.length + tile * kSteps;
            for (int64_t t = count - 1; t >= 0; --t) {
              const V slope = of_y[t] * c[t] + back;
              back = slope * rates[t];
              const V lost = back * (t == 0 ? start : states[t - 1]);
              to_b[t] += sum(slope * inputs[t]);
              to_c[t] += sum(of_y[t] * states[t]);
              of_inputs.set(t, of_inputs[t] + slope * b[t]);
              of_steps.set(t, of_steps[t] + lost * decay);
              of_decay += lost * steps[t];
            }
            back.store(carried + n * kLanes<T>);
            of_decay.store(own_decays + n * kLanes<T>);
          }
          for (int64_t t = 0; t < count; ++t) {
            of_steps.set(t, of_steps[t] + of_inputs[t] * u[t]);
            if (a.delta_softplus) of_steps.set(t, of_steps[t] * slopes[t]);
            own_bias += of_steps[t];
            own_past += of_y[t] * u[t];
            const V through = of_inputs[t] * steps[t];
            of_inputs.set(t, a.D ? through + past * of_y[t] : through);
          }
          given.write(of_inputs, block, tile, a.out0.data());
          given.write(of_steps, block, tile, a.out1.data());
          if (a.z) {
            for (int64_t i = 0; i < items; ++i) {
              const S gate = gates.items[i], open = 1 / (1 + gallery::exp_of(-gate));
              y.items[i] *= grads.items[i] * (open * (1 + gate * (1 - open)));
            }
          } else {
            std::fill_n(y.items, items, S(0));
          }
          given.write(y, block, tile, a.out6.data());
        }
        given.write_states(own_decays, block, of_decays);
        const int64_t channel = given.channel(block);
        scan::write_lanes<T>(a.D ? own_past : V{}, of_past + channel, 1, block.count);
        scan::write_lanes<T>(a.delta_bias ? own_bias : V{}, of_bias + channel, 1, block.count);
      }
    }
  });
  add_parts(ctx, of_decays, a.batch, a.channels * a.state, a.out2.data());
  for (int64_t pair = 0; pair < pairs; ++pair) {
    add_parts(ctx, of_b + pair * parts * table, parts, table, a.out3.data() + pair * table);
    add_parts(ctx, of_c + pair * parts * table, parts, table, a.out4.data() + pair * table);
  }
  add_parts(ctx, of_past, a.batch, a.channels, a.out5.data());
  add_parts(ctx, of_bias, a.batch, a.channels, a.out7.data());
}
OPSMITH_KERNEL(ssm, selective_scan_backward, cpu, opsmith::types<float, float>,
               opsmith::types<double, double>, opsmith::types<opsmith::half, float>,
               opsmith::types<opsmith::bfloat16, float>)
