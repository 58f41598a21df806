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

// Where the backward puts its sums: those of B and C for each part, of A, D and delta_bias for each
// sequence.
template <typename S>
struct Sums {
  S *of_b, *of_c, *of_decays, *of_past, *of_bias;
};

// What a thread of the backward needs for one block after another.
template <typename T, typename Args>
struct Backward {
  using S = Sum<T>;
  using V = Lanes<T>;

  const Given<T, Args>& given;
  const Args& a = given.a;
  const int64_t size = a.state * kLanes<T>;
  // Elements of the state side by side: how each decays, what flows back, the gradient of the
  // decay, and the state before each tile.
  S *decays, *carried, *of_decays, *starts;
  V bias, past, of_bias, of_past;
  Tile<T> steps, slopes, u, inputs, grads, gates, of_y, y, rates, states, of_inputs, of_steps;
  S b[kSteps], c[kSteps];

  Backward(const opsmith::Context& ctx, const Given<T, Args>& from) : given(from) {
    decays = ctx.scratch<S>((std::max<int64_t>(given.tiles, 1) + 3) * size).data();
    carried = decays + size;
    of_decays = carried + size;
    starts = of_decays + size;
  }

  // Adds to the gradients of B and C at `own_b` and `own_c`, and writes the others.
  void run(const Block& block, S* own_b, S* own_c, const Sums<S>& sums) {
    bias = given.read_channels(data_or_null(a.delta_bias), block);
    past = given.read_channels(data_or_null(a.D), block);
    of_bias = of_past = V{};
    given.read_states(a.A.data(), block.first, block, decays);
    given.read_states(a.grad_out1.data(), given.channel(block), block, carried);
    std::fill_n(of_decays, size, S(0));
    find_starts(block);
    for (int64_t tile = given.tiles - 1; tile >= 0; --tile) {
      read_tile(block, tile);
      for (int64_t n = 0; n < a.state; ++n) {
        const int64_t at = n * a.length + tile * kSteps;
        go_back(block, tile, n, own_b + at, own_c + at);
      }
      write_tile(block, tile);
    }
    given.write_states(of_decays, block, sums.of_decays);
    const int64_t channel = given.channel(block);
    scan::write_lanes<T>(a.D ? of_past : V{}, sums.of_past + channel, 1, block.count);
    scan::write_lanes<T>(a.delta_bias ? of_bias : V{}, sums.of_bias + channel, 1, block.count);
  }

  void find_starts(const Block& block) {
    std::fill_n(starts, size, S(0));
    for (int64_t tile = 0; tile + 1 < given.tiles; ++tile) {
      given.read_steps(block, tile, bias, steps, nullptr);
      given.read(a.u.data(), block, tile, inputs);
      for (int64_t t = 0; t < kSteps; ++t) inputs.set(t, steps[t] * inputs[t]);
      for (int64_t n = 0; n < a.state; ++n) {
        gallery::widen(a.B.data() + given.row(block, n) + tile * kSteps, kSteps, b);
        scan::find_rates(steps, V::load(decays + n * kLanes<T>), kSteps, rates);
        S* start = starts + tile * size + n * kLanes<T>;
        V state = V::load(start);
        for (int64_t t = 0; t < kSteps; ++t) state = rates[t] * state + inputs[t] * b[t];
        state.store(start + size);
      }
    }
  }

  void read_tile(const Block& block, int64_t tile) {
    const int64_t count = given.count(tile);
    given.read_steps(block, tile, bias, steps, &slopes);
    given.read(a.u.data(), block, tile, u);
    given.read(a.grad_out0.data(), block, tile, grads);
    of_y = grads;
    if (a.z) {
      given.read(a.z->data(), block, tile, gates);
      for (int64_t i = 0; i < count * kLanes<T>; ++i) {
        of_y.items[i] *= gates.items[i] / (1 + gallery::exp_of(-gates.items[i]));
      }
    }
    for (int64_t t = 0; t < count; ++t) {
      inputs.set(t, steps[t] * u[t]);
      y.set(t, a.D ? past * u[t] : V{});
      of_inputs.set(t, V{});
      of_steps.set(t, V{});
    }
  }

  // Goes through the steps of a tile for one element of the state, and back.
  void go_back(const Block& block, int64_t tile, int64_t n, S* own_b, S* own_c) {
    const int64_t count = given.count(tile), at = given.row(block, n) + tile * kSteps;
    const V decay = V::load(decays + n * kLanes<T>);
    const V start = V::load(starts + tile * size + n * kLanes<T>);
    gallery::widen(a.B.data() + at, count, b);
    gallery::widen(a.C.data() + at, count, c);
    scan::find_rates(steps, decay, count, rates);
    V state = start;
    for (int64_t t = 0; t < count; ++t) {
      state = rates[t] * state + inputs[t] * b[t];
      states.set(t, state);
      y.set(t, y[t] + state * c[t]);
    }
    const auto sum = [&block](V lanes) {
      return block.count == kLanes<T> ? lanes.sum() : lanes.first(block.count).sum();
    };
    V back = V::load(carried + n * kLanes<T>), of_decay = V::load(of_decays + n * kLanes<T>);
    for (int64_t t = count - 1; t >= 0; --t) {
      const V slope = of_y[t] * c[t] + back;
      back = slope * rates[t];
      const V lost = back * (t == 0 ? start : states[t - 1]);
      own_b[t] += sum(slope * inputs[t]);
      own_c[t] += sum(of_y[t] * states[t]);
      of_inputs.set(t, of_inputs[t] + slope * b[t]);
      of_steps.set(t, of_steps[t] + lost * decay);
      of_decay += lost * steps[t];
    }
    back.store(carried + n * kLanes<T>);
    of_decay.store(of_decays + n * kLanes<T>);
  }

  void write_tile(const Block& block, int64_t tile) {
    const int64_t count = given.count(tile), items = count * kLanes<T>;
    for (int64_t t = 0; t < count; ++t) {
      of_steps.set(t, of_steps[t] + of_inputs[t] * u[t]);
      if (a.delta_softplus) of_steps.set(t, of_steps[t] * slopes[t]);
      of_bias += of_steps[t];
      of_past += of_y[t] * u[t];
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
};

}  // namespace

template <typename T, typename W>
void selective_scan_backward(const opsmith::Context& ctx,
                             const ssm::selective_scan_backward_args<T, W>& a) {
  using S = Sum<T>;
  using Args = ssm::selective_scan_backward_args<T, W>;
  const Given<T, Args> given{a};
  const int64_t parts = given.parts, table = a.state * a.length;
  const int64_t pairs = a.batch * a.groups, rows = a.batch * a.channels;
  const auto scratch = [&ctx](int64_t count) { return ctx.scratch<S>(count).data(); };
  const Sums<S> sums = {scratch(pairs * parts * table), scratch(pairs * parts * table),
                        scratch(rows * a.state), scratch(rows), scratch(rows)};
  ctx.parallel_for(0, pairs * parts, given.grain(), [&](int64_t begin, int64_t end) {
    Backward<T, Args> backward(ctx, given);
    for (int64_t item = begin; item < end; ++item) {
      const int64_t first = item % parts * kPart, last = std::min(first + kPart, given.blocks);
      S *own_b = sums.of_b + item * table, *own_c = sums.of_c + item * table;
      std::fill_n(own_b, table, S(0));
      std::fill_n(own_c, table, S(0));
      for (int64_t number = first; number < last; ++number) {
        backward.run(given.block(item / parts, number), own_b, own_c, sums);
      }
    }
  });
  add_parts(ctx, sums.of_decays, a.batch, a.channels * a.state, a.out2.data());
  for (int64_t pair = 0; pair < pairs; ++pair) {
    add_parts(ctx, sums.of_b + pair * parts * table, parts, table, a.out3.data() + pair * table);
    add_parts(ctx, sums.of_c + pair * parts * table, parts, table, a.out4.data() + pair * table);
  }
  add_parts(ctx, sums.of_past, a.batch, a.channels, a.out5.data());
  add_parts(ctx, sums.of_bias, a.batch, a.channels, a.out7.data());
}
OPSMITH_KERNEL(ssm, selective_scan_backward, cpu, opsmith::types<float, float>,
               opsmith::types<double, double>, opsmith::types<opsmith::half, float>,
               opsmith::types<opsmith::bfloat16, float>)
