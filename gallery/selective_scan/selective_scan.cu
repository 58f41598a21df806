// A block takes one channel at a time, a chunk of its steps side by side, and one element of the
// state after the other. The backward goes over the chunks twice: to find the state before each,
// then from the last one back.
#include "selective_scan.h"

#include <opsmith/cuda.h>

#include <algorithm>
#include <cstdint>

#include "../reductions.cuh"
#include "selective_scan_backward.h"
#include "steps.cuh"

namespace {

using gallery::Sum, scan::kChunk, scan::kItems, scan::kThreads, scan::kWarps, scan::Steps;

constexpr int64_t kPart = 8;  // channels, whose gradients of B and C one block adds up

// The arguments that forward and backward share; null is what is not there.
template <typename T>
struct Given {
  using S = Sum<T>;

  const T *u, *delta, *B, *C, *z;
  const S *A, *D, *delta_bias;
  int64_t batch, channels, groups, state, length;
  bool softplus;

  // The row of B and C of an element of the state.
  __device__ int64_t row(int64_t batch, int64_t channel, int64_t n) const {
    return ((batch * groups + channel / (channels / groups)) * state + n) * length;
  }
};

template <typename Tensor>
auto data_or_null(const Tensor& tensor) -> decltype(tensor->data()) {
  return tensor ? tensor->data() : nullptr;
}

template <typename T, typename Args>
Given<T> given_of(const Args& a) {
  return {a.u.data(),        a.delta.data(),  a.B.data(),        a.C.data(),
          data_or_null(a.z), a.A.data(),      data_or_null(a.D), data_or_null(a.delta_bias),
          a.batch,           a.channels,      a.groups,          a.state,
          a.length,          a.delta_softplus};
}

// The steps of a thread: kItems neighbours, of which `count` are there.
template <typename T>
struct Own {
  using S = Sum<T>;

  int64_t first;
  int count;
  S raw[kItems], steps[kItems], u[kItems];

  __device__ Own(const Given<T>& a, int64_t chunk, int64_t row, int64_t channel)
      : first(chunk * kChunk + threadIdx.x * kItems) {
    const int64_t left = a.length - first;
    count = left < 0 ? 0 : left < kItems ? static_cast<int>(left) : kItems;
    for (int k = 0; k < count; ++k) {
      const int64_t at = row * a.length + first + k;
      raw[k] = static_cast<S>(a.delta[at]);
      if (a.delta_bias != nullptr) raw[k] += a.delta_bias[channel];
      steps[k] = a.softplus ? scan::softplus_of(raw[k]) : raw[k];
      u[k] = static_cast<S>(a.u[at]);
    }
  }

  // Fills the rates, and the states after each step, of one element of the state, which is `start`
  // before the chunk. Returns what it is before the thread's first step.
  __device__ S run(S decay, const T* b, S start, Steps<S>* sums, S* rates, S* states) const {
    Steps<S> all = {S(1), S(0)};
    S inputs[kItems];
    for (int k = 0; k < count; ++k) {
      rates[k] = opsmith::exp(steps[k] * decay);
      inputs[k] = steps[k] * u[k] * static_cast<S>(b[first + k]);
      all = Steps<S>{rates[k], inputs[k]}.after(all);
    }
    const S before = scan::steps_before<false>(all, sums).of(start);
    S state = before;
    for (int k = 0; k < count; ++k) states[k] = state = rates[k] * state + inputs[k];
    return before;
  }
};

template <typename T>
__global__ void run(Given<T> a, T* out, Sum<T>* last) {
  using S = Sum<T>;
  __shared__ Steps<S> sums[kWarps];
  const int64_t row = blockIdx.x, batch = row / a.channels, channel = row % a.channels;
  S* state = last + row * a.state;
  for (int64_t n = threadIdx.x; n < a.state; n += kThreads) state[n] = S(0);
  for (int64_t chunk = 0; chunk * kChunk < a.length; ++chunk) {
    __syncthreads();  // the states are written
    Own<T> own(a, chunk, row, channel);
    S y[kItems], rates[kItems], states[kItems];
    for (int k = 0; k < own.count; ++k) y[k] = a.D == nullptr ? S(0) : a.D[channel] * own.u[k];
    for (int64_t n = 0; n < a.state; ++n) {
      const int64_t at = a.row(batch, channel, n);
      own.run(a.A[channel * a.state + n], a.B + at, state[n], sums, rates, states);
      for (int k = 0; k < own.count; ++k) {
        y[k] += states[k] * static_cast<S>(a.C[at + own.first + k]);
      }
      // The block's last step; all threads have read the state before it.
      const bool is_last =
          own.count > 0 && (threadIdx.x == kThreads - 1 || own.first + own.count == a.length);
      if (is_last) state[n] = states[own.count - 1];
    }
    for (int k = 0; k < own.count; ++k) {
      const int64_t at = row * a.length + own.first + k;
      if (a.z != nullptr) y[k] *= scan::silu_of(static_cast<S>(a.z[at]));
      out[at] = static_cast<T>(y[k]);
    }
  }
}

// What the backward writes. Gradients of B and C are those of the block's channels, those of A, D
// and delta_bias of one sequence.
template <typename T>
struct Gradients {
  using S = Sum<T>;

  const T* grad;
  const S* grad_last;
  T *of_u, *of_delta, *of_z;
  S *of_a, *of_b, *of_c, *of_d, *of_bias;
  S *starts, *carried;  // of each block: the states before each chunk, and what flows back
};

template <typename T>
__global__ void run_backward(Given<T> a, Gradients<T> g) {
  using S = Sum<T>;
  __shared__ Steps<S> sums[kWarps];
  const int64_t each = a.channels / a.groups, parts = (each + kPart - 1) / kPart;
  const int64_t pair = blockIdx.x / parts, part = blockIdx.x % parts;
  const int64_t batch = pair / a.groups, chunks = (a.length + kChunk - 1) / kChunk;
  const int64_t begin = pair % a.groups * each + part * kPart;
  const int64_t end = part == parts - 1 ? (pair % a.groups + 1) * each : begin + kPart;
  S *starts = g.starts + blockIdx.x * chunks * a.state, *carried = g.carried + blockIdx.x * a.state;
  S *of_b = g.of_b + blockIdx.x * a.state * a.length,
    *of_c = g.of_c + blockIdx.x * a.state * a.length;
  for (int64_t channel = begin; channel < end; ++channel) {
    const int64_t row = batch * a.channels + channel;
    S rates[kItems], states[kItems];
    __syncthreads();  // the states of the channel before are read
    for (int64_t n = threadIdx.x; n < a.state; n += kThreads) {
      carried[n] = g.grad_last[row * a.state + n];
      g.of_a[row * a.state + n] = S(0);
      if (chunks > 0) starts[n] = S(0);
    }
    for (int64_t chunk = 0; chunk + 1 < chunks; ++chunk) {
      __syncthreads();  // the states are written
      Own<T> own(a, chunk, row, channel);
      for (int64_t n = 0; n < a.state; ++n) {
        S* start = starts + chunk * a.state + n;
        own.run(a.A[channel * a.state + n], a.B + a.row(batch, channel, n), *start, sums, rates,
                states);
        if (threadIdx.x == kThreads - 1) start[a.state] = states[kItems - 1];
      }
    }
    S of_d = S(0), of_bias = S(0);
    for (int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
      __syncthreads();  // what flows back is written
      Own<T> own(a, chunk, row, channel);
      S y[kItems], of_y[kItems], of_inputs[kItems], of_steps[kItems];
      for (int k = 0; k < own.count; ++k) {
        const int64_t at = row * a.length + own.first + k;
        of_y[k] = static_cast<S>(g.grad[at]);
        if (a.z != nullptr) of_y[k] *= scan::silu_of(static_cast<S>(a.z[at]));
        y[k] = a.D == nullptr ? S(0) : a.D[channel] * own.u[k];
        of_inputs[k] = of_steps[k] = S(0);
      }
      for (int64_t n = 0; n < a.state; ++n) {
        const S decay = a.A[channel * a.state + n];
        const int64_t at = a.row(batch, channel, n) + own.first, to = n * a.length + own.first;
        const S start = starts[chunk * a.state + n], behind = carried[n];
        const S before = own.run(decay, a.B + at - own.first, start, sums, rates, states);
        Steps<S> all = {S(1), S(0)};
        for (int k = own.count - 1; k >= 0; --k) {
          const S slope = of_y[k] * static_cast<S>(a.C[at + k]);
          all = Steps<S>{rates[k], rates[k] * slope}.after(all);
        }
        S back = scan::steps_before<true>(all, sums).of(behind), of_decay = S(0);
        for (int k = own.count - 1; k >= 0; --k) {
          const S b = static_cast<S>(a.B[at + k]);
          const S slope = of_y[k] * static_cast<S>(a.C[at + k]) + back;
          back = rates[k] * slope;
          const S lost = back * (k == 0 ? before : states[k - 1]);
          const S more_b = slope * (own.steps[k] * own.u[k]), more_c = of_y[k] * states[k];
          of_b[to + k] = channel == begin ? more_b : of_b[to + k] + more_b;
          of_c[to + k] = channel == begin ? more_c : of_c[to + k] + more_c;
          of_inputs[k] += slope * b;
          of_steps[k] += lost * decay;
          of_decay += lost * own.steps[k];
          y[k] += states[k] * static_cast<S>(a.C[at + k]);
        }
        const S all_decay = gallery::block_sum(of_decay);
        if (threadIdx.x == 0) {
          carried[n] = back;
          g.of_a[row * a.state + n] += all_decay;
        }
      }
      for (int k = 0; k < own.count; ++k) {
        const int64_t at = row * a.length + own.first + k;
        S of_step = of_steps[k] + of_inputs[k] * own.u[k];
        if (a.softplus) of_step *= scan::softplus_slope_of(own.raw[k]);
        of_bias += of_step;
        of_d += of_y[k] * own.u[k];
        S of_u = of_inputs[k] * own.steps[k];
        if (a.D != nullptr) of_u += a.D[channel] * of_y[k];
        S of_z = S(0);
        if (a.z != nullptr) {
          const S gate = static_cast<S>(a.z[at]), open = 1 / (1 + opsmith::exp(-gate));
          of_z = static_cast<S>(g.grad[at]) * y[k] * (open * (1 + gate * (1 - open)));
        }
        g.of_u[at] = static_cast<T>(of_u);
        g.of_delta[at] = static_cast<T>(of_step);
        g.of_z[at] = static_cast<T>(of_z);
      }
    }
    const S all_d = gallery::block_sum(of_d), all_bias = gallery::block_sum(of_bias);
    if (threadIdx.x == 0) {
      g.of_d[row] = a.D == nullptr ? S(0) : all_d;
      g.of_bias[row] = a.delta_bias == nullptr ? S(0) : all_bias;
    }
  }
}

// out[pair, i] = the sum of what the parts of a pair have at i, part after part.
template <typename S, typename T>
__global__ void add_parts(const S* parts, int64_t pairs, int64_t count, int64_t size, T* out) {
  const int64_t item = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (item >= pairs * size) return;
  const S* own = parts + item / size * count * size + item % size;
  S sum = S(0);
  for (int64_t part = 0; part < count; ++part) sum += own[part * size];
  out[item] = static_cast<T>(sum);
}

template <typename S, typename T>
void launch_add_parts(const opsmith::Context& ctx, const S* parts, int64_t pairs, int64_t count,
                      int64_t size, T* out) {
  if (pairs * size == 0) return;
  opsmith::launch(ctx, add_parts<S, T>, opsmith::blocks_for(pairs * size, gallery::kBlock),
                  gallery::kBlock, 0, parts, pairs, count, size, out);
}

}  // namespace

template <typename T, typename W>
void selective_scan(const opsmith::Context& ctx, const ssm::selective_scan_args<T, W>& a) {
  const int64_t rows = a.batch * a.channels;
  if (rows == 0) return;
  opsmith::launch(ctx, run<T>, static_cast<unsigned>(rows), kThreads, 0, given_of<T>(a),
                  a.out0.data(), a.out1.data());
}
OPSMITH_KERNEL(ssm, selective_scan, cuda, opsmith::types<float, float>,
               opsmith::types<double, double>, opsmith::types<opsmith::half, float>,
               opsmith::types<opsmith::bfloat16, float>)

template <typename T, typename W>
void selective_scan_backward(const opsmith::Context& ctx,
                             const ssm::selective_scan_backward_args<T, W>& a) {
  using S = Sum<T>;
  const int64_t pairs = a.batch * a.groups, rows = a.batch * a.channels;
  const int64_t parts = (a.channels / a.groups + kPart - 1) / kPart, blocks = pairs * parts;
  const int64_t chunks = (a.length + kChunk - 1) / kChunk, table = a.state * a.length;
  const auto scratch = [&ctx](int64_t count) { return ctx.scratch<S>(count).data(); };
  const Gradients<T> g = {a.grad_out0.data(),
                          a.grad_out1.data(),
                          a.out0.data(),
                          a.out1.data(),
                          a.out6.data(),
                          scratch(rows * a.state),
                          scratch(blocks * table),
                          scratch(blocks * table),
                          scratch(rows),
                          scratch(rows),
                          scratch(blocks * chunks * a.state),
                          scratch(blocks * a.state)};
  if (blocks > 0) {
    opsmith::launch(ctx, run_backward<T>, static_cast<unsigned>(blocks), kThreads, 0,
                    given_of<T>(a), g);
  }
  launch_add_parts(ctx, g.of_a, 1, a.batch, a.channels * a.state, a.out2.data());
  launch_add_parts(ctx, g.of_b, pairs, parts, table, a.out3.data());
  launch_add_parts(ctx, g.of_c, pairs, parts, table, a.out4.data());
  launch_add_parts(ctx, g.of_d, 1, a.batch, a.channels, a.out5.data());
  launch_add_parts(ctx, g.of_bias, 1, a.batch, a.channels, a.out7.data());
}
OPSMITH_KERNEL(ssm, selective_scan_backward, cuda, opsmith::types<float, float>,
               opsmith::types<double, double>, opsmith::types<opsmith::half, float>,
               opsmith::types<opsmith::bfloat16, float>)
