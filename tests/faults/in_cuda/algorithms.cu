// Faults with the algorithms of the whole device in CUB and Thrust; see faults.cu for the form.
#include "algorithms.h"

#include <opsmith/cuda.h>
#include <thrust/copy.h>
#include <thrust/device_ptr.h>
#include <thrust/execution_policy.h>
#include <thrust/extrema.h>
#include <thrust/fill.h>
#include <thrust/for_each.h>
#include <thrust/functional.h>
#include <thrust/iterator/constant_iterator.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform.h>
#include <thrust/unique.h>
#include <cub/cub.cuh>
#include <cuda/functional>

#include <cstdint>
#include <string>
#include <vector>

namespace {

struct Call {
  const opsmith::Context& ctx;
  cudaStream_t stream;
  const float* x;
  float* out;
  int n;

  template <typename T>
  T* room(int64_t count) const {
    return ctx.scratch<T>(count).data();
  }
  void* bytes(size_t count) const { return room<char>(static_cast<int64_t>(count)); }
  auto policy() const { return thrust::cuda::par.on(stream); }
};

#define ALGORITHM(name)  \
  template <bool kWrong> \
  void name(const Call& c)

__global__ void spread(const float* one, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = *one;
}
void give_all(const Call& c, const float* one) {
  spread<<<(c.n + 63) / 64, 64, 0, c.stream>>>(one, c.out, c.n);
}
void give_all(const Call& c, float one) { thrust::fill(c.policy(), c.out, c.out + c.n, one); }

// --- CUB -----------------------------------------------------------------------------------------

ALGORITHM(storage_too_small) {
  size_t bytes = 0;
  cub::DeviceReduce::Sum(nullptr, bytes, c.x, c.out, c.n, c.stream);
  if (kWrong) bytes /= 2;
  auto* sum = c.room<float>(1);
  cub::DeviceReduce::Sum(c.bytes(bytes), bytes, c.x, sum, c.n, c.stream);  // FAULT
  give_all(c, sum);
}

ALGORITHM(storage_shorter_than_said) {
  size_t bytes = 0;
  cub::DeviceScan::InclusiveSum(nullptr, bytes, c.x, c.out, c.n, c.stream);
  void* const storage = c.bytes(kWrong ? bytes / 2 : bytes);
  cub::DeviceScan::InclusiveSum(storage, bytes, c.x, c.out, c.n, c.stream);  // FAULT
}

ALGORITHM(storage_missing) {
  void* storage = nullptr;
  size_t bytes = 0;
  cub::DeviceScan::InclusiveSum(storage, bytes, c.x, c.out, c.n, c.stream);
  if (!kWrong) storage = c.bytes(bytes);
  cub::DeviceScan::InclusiveSum(storage, bytes, c.x, c.out, c.n, c.stream);  // FAULT
}

ALGORITHM(storage_of_the_host) {
  size_t bytes = 0;
  cub::DeviceReduce::Max(nullptr, bytes, c.x, c.out, c.n, c.stream);
  std::vector<char> of_host(bytes);
  void* const storage = kWrong ? of_host.data() : c.bytes(bytes);
  auto* most = c.room<float>(1);
  cub::DeviceReduce::Max(storage, bytes, c.x, most, c.n, c.stream);  // FAULT
  give_all(c, most);
}

ALGORITHM(storage_in_use) {
  size_t bytes = 0;
  cub::DeviceReduce::Sum(nullptr, bytes, c.x, c.out, c.n, c.stream);
  auto* storage = static_cast<float*>(c.bytes(bytes + c.n * sizeof(float)));
  float* const copy = kWrong ? storage : storage + bytes / sizeof(float);
  thrust::copy(c.policy(), c.x, c.x + c.n, copy);
  auto* sum = c.room<float>(1);
  cub::DeviceReduce::Sum(storage, bytes, copy, sum, c.n, c.stream);
  give_all(c, sum);
}

ALGORITHM(reduction_past_the_end) {
  const int n = kWrong ? c.n + 1 : c.n;
  size_t bytes = 0;
  cub::DeviceReduce::Reduce(nullptr, bytes, c.x, c.out, n, cuda::maximum<>(), 0.0f, c.stream);
  auto* most = c.room<float>(1);
  cub::DeviceReduce::Reduce(c.bytes(bytes), bytes, c.x, most, n,  // FAULT
                            cuda::maximum<>(), 0.0f, c.stream);   // FAULT
  give_all(c, most);
}

// nvcc takes no type that is local to a function where a kernel is a template of it.
template <bool kWrong>
struct Difference {
  __device__ float operator()(float a, float b) const { return kWrong ? a - b : a + b; }
};

ALGORITHM(reduction_without_order) {
  using Operator = Difference<kWrong>;
  size_t bytes = 0;
  auto* sum = c.room<float>(1);
  const float begin = 0;
  cub::DeviceReduce::Reduce(nullptr, bytes, c.x, sum, c.n, Operator(), begin, c.stream);
  cub::DeviceReduce::Reduce(c.bytes(bytes), bytes, c.x, sum, c.n, Operator(), begin, c.stream);
  give_all(c, sum);
}

ALGORITHM(scan_into_too_little) {
  auto* places = c.room<int>(kWrong ? c.n - 1 : c.n);
  const auto one = thrust::make_constant_iterator(1);
  size_t bytes = 0;
  cub::DeviceScan::ExclusiveSum(nullptr, bytes, one, places, c.n, c.stream);
  cub::DeviceScan::ExclusiveSum(c.bytes(bytes), bytes, one, places, c.n, c.stream);  // FAULT
  thrust::scatter(c.policy(), c.x, c.x + c.n, places, c.out);
}

ALGORITHM(scan_over_its_input) {
  auto* copy = c.room<float>(c.n + 1);
  thrust::copy(c.policy(), c.x, c.x + c.n, copy);
  float* const to = copy + (kWrong ? 1 : 0);
  size_t bytes = 0;
  cub::DeviceScan::InclusiveSum(nullptr, bytes, copy, to, c.n, c.stream);
  cub::DeviceScan::InclusiveSum(c.bytes(bytes), bytes, copy, to, c.n, c.stream);  // FAULT
  thrust::copy(c.policy(), to, to + c.n, c.out);
}

ALGORITHM(sort_in_place) {
  auto* keys = c.room<float>(c.n);
  thrust::copy(c.policy(), c.x, c.x + c.n, keys);
  float* const to = kWrong ? keys : c.out;
  size_t bytes = 0;
  cub::DeviceRadixSort::SortKeys(nullptr, bytes, keys, to, c.n, 0, 32, c.stream);
  cub::DeviceRadixSort::SortKeys(c.bytes(bytes), bytes, keys, to, c.n, 0, 32, c.stream);  // FAULT
}

ALGORITHM(sort_by_too_few_bits) {
  auto *numbers = c.room<int>(c.n), *keys = c.room<int>(c.n);
  const int n = c.n, bits = kWrong ? 6 : 8;
  thrust::transform(c.policy(), thrust::make_counting_iterator(0),
                    thrust::make_counting_iterator(n), numbers,
                    [=] __device__(int i) { return n - 1 - i; });
  size_t bytes = 0;
  cub::DeviceRadixSort::SortPairs(nullptr, bytes, numbers, keys, c.x, c.out, n, 0, bits, c.stream);
  cub::DeviceRadixSort::SortPairs(c.bytes(bytes), bytes, numbers, keys, c.x, c.out, n, 0, bits,
                                  c.stream);
}

ALGORITHM(current_buffer_forgotten) {
  auto* keys = c.room<float>(c.n);
  thrust::copy(c.policy(), c.x, c.x + c.n, keys);
  cub::DoubleBuffer<float> buffers(keys, c.room<float>(c.n));
  size_t bytes = 0;
  cub::DeviceRadixSort::SortKeysDescending(nullptr, bytes, buffers, c.n, 0, 32, c.stream);
  cub::DeviceRadixSort::SortKeysDescending(c.bytes(bytes), bytes, buffers, c.n, 0, 32, c.stream);
  const float* const sorted = kWrong ? keys : buffers.Current();
  thrust::copy(c.policy(), sorted, sorted + c.n, c.out);
}

ALGORITHM(too_few_flags) {
  auto* flags = c.room<uint8_t>(kWrong ? c.n - 1 : c.n);
  thrust::fill(c.policy(), flags, flags + c.n - 1, uint8_t{1});
  if (!kWrong) thrust::fill_n(c.policy(), flags + c.n - 1, 1, uint8_t{1});
  auto* count = c.room<int>(1);
  size_t bytes = 0;
  cub::DeviceSelect::Flagged(nullptr, bytes, c.x, flags, c.out, count, c.n, c.stream);
  cub::DeviceSelect::Flagged(c.bytes(bytes), bytes, c.x, flags, c.out, count, c.n,  // FAULT
                             c.stream);                                             // FAULT
}

ALGORITHM(offsets_without_the_last) {
  auto* offsets = c.room<int>(kWrong ? c.n : c.n + 1);
  thrust::sequence(c.policy(), offsets, offsets + (kWrong ? c.n : c.n + 1));
  size_t bytes = 0;
  cub::DeviceSegmentedReduce::Sum(nullptr, bytes, c.x, c.out, c.n, offsets, offsets + 1, c.stream);
  cub::DeviceSegmentedReduce::Sum(c.bytes(bytes), bytes, c.x, c.out, c.n, offsets,  // FAULT
                                  offsets + 1, c.stream);                           // FAULT
}

ALGORITHM(cub_on_the_default_stream) {
  size_t bytes = 0;
  cub::DeviceScan::InclusiveSum(nullptr, bytes, c.x, c.out, c.n);
  const cudaStream_t stream = kWrong ? nullptr : c.stream;
  cub::DeviceScan::InclusiveSum(c.bytes(bytes), bytes, c.x, c.out, c.n, stream);  // FAULT
}

// --- Thrust --------------------------------------------------------------------------------------

ALGORITHM(thrust_on_the_default_stream) {
  if constexpr (kWrong) {
    thrust::copy(thrust::device, c.x, c.x + c.n, c.out);  // FAULT
  } else {
    thrust::copy(thrust::cuda::par_nosync.on(c.stream), c.x, c.x + c.n, c.out);
  }
}

ALGORITHM(device_pointer_on_the_default_stream) {
  const auto from = thrust::device_pointer_cast(c.x);
  const thrust::device_ptr<float> to(c.out);
  if constexpr (kWrong) {
    thrust::copy(from, from + c.n, to);  // FAULT
  } else {
    thrust::copy(c.policy(), from, from + c.n, to);
  }
}

ALGORITHM(thrust_on_the_host) {
  std::vector<int> of_host = {3, 1, 2};
  thrust::sort(of_host.data(), of_host.data() + of_host.size());
  if (of_host[0] != 1) return;
  if constexpr (kWrong) {
    thrust::copy(c.x, c.x + c.n, c.out);  // FAULT
  } else {
    thrust::copy(c.policy(), c.x, c.x + c.n, c.out);
  }
}

ALGORITHM(copy_past_its_room) {
  const auto policy = c.policy();
  const float* const most = thrust::max_element(policy, c.x, c.x + c.n);
  auto* one = c.room<float>(1);
  thrust::copy_n(policy, most, kWrong ? 2 : 1, one);  // FAULT
  give_all(c, one);
}

ALGORITHM(shifted_in_place) {
  auto* copy = c.room<float>(c.n + 1);
  thrust::copy(c.policy(), c.x, c.x + c.n, copy);
  float* const to = kWrong ? copy + 1 : copy;
  thrust::transform(c.policy(), copy, copy + c.n, to, thrust::negate<float>());  // FAULT
  thrust::transform(c.policy(), to, to + c.n, c.out, thrust::negate<float>());
}

ALGORITHM(two_items_to_one_place) {
  auto* places = c.room<int>(c.n);
  thrust::sequence(c.policy(), places, places + c.n);
  if constexpr (kWrong) thrust::fill_n(c.policy(), places + c.n - 1, 1, c.n - 2);
  thrust::scatter(c.policy(), c.x, c.x + c.n, places, c.out);  // FAULT
}

ALGORITHM(functor_past_the_end) {
  const float* const x = c.x;
  float* const out = c.out;
  const int n = c.n;
  const auto first = thrust::make_counting_iterator(0);
  thrust::for_each(c.policy(), first, first + n, [=] __device__(int i) {
    out[i] = x[kWrong ? i + 1 : i];  // FAULT
  });
}

#ifndef OfHost  // nvcc refuses this fault: for a GPU, a macro takes its place
struct OfHost {
  float operator()(float x) const { return x; }  // FAULT functor_of_the_host
};
#endif
struct OfDevice {
  __device__ float operator()(float x) const { return x; }
};

ALGORITHM(functor_of_the_host) {
  using Same = std::conditional_t<kWrong, OfHost, OfDevice>;
  thrust::transform(c.policy(), c.x, c.x + c.n, c.out, Same());
}

ALGORITHM(total_as_int) {
  const auto begin = std::conditional_t<kWrong, int, float>(0);
  give_all(c, static_cast<float>(thrust::reduce(c.policy(), c.x, c.x + c.n, begin)));
}

ALGORITHM(equal_keys_in_order) {
  auto* keys = c.room<int>(c.n);
  thrust::fill(c.policy(), keys, keys + c.n, 7);
  thrust::copy(c.policy(), c.x, c.x + c.n, c.out);
  if constexpr (kWrong) {
    thrust::sort_by_key(c.policy(), keys, keys + c.n, c.out);
  } else {
    thrust::stable_sort_by_key(c.policy(), keys, keys + c.n, c.out);
  }
}

ALGORITHM(kept_in_too_little) {
  auto* kept = c.room<float>(kWrong ? c.n - 1 : c.n);
  thrust::copy_if(c.policy(), c.x, c.x + c.n, kept,  // FAULT
                  [] __device__(float x) { return x > 0; });
  thrust::copy(c.policy(), kept, kept + c.n, c.out);
}

template <bool kWrong>
void keep(const Call& c, bool over_its_input) {
  auto* copy = c.room<float>(c.n);
  thrust::copy(c.policy(), c.x, c.x + c.n, copy);
  const float* from = over_its_input ? copy : c.x;
  const float* stencil = over_its_input ? c.x : copy;
  thrust::copy_if(c.policy(), from, from + c.n, stencil, kWrong ? copy : c.out,  // FAULT keep
                  [] __device__(float x) { return x > 0; });
  if constexpr (kWrong) thrust::copy(c.policy(), copy, copy + c.n, c.out);
}
ALGORITHM(kept_over_its_input) { keep<kWrong>(c, true); }
ALGORITHM(kept_over_its_stencil) { keep<kWrong>(c, false); }

ALGORITHM(different_ones_unsorted) {
  auto* numbers = c.room<int>(c.n);
  thrust::transform(c.policy(), thrust::make_counting_iterator(0),
                    thrust::make_counting_iterator(c.n), numbers,
                    [] __device__(int i) { return i % 7; });
  if constexpr (!kWrong) thrust::sort(c.policy(), numbers, numbers + c.n);
  int* const end = thrust::unique(c.policy(), numbers, numbers + c.n);
  give_all(c, static_cast<float>(end - numbers));
}

ALGORITHM(scan_of_what_nothing_wrote) {
  auto* copy = c.room<float>(c.n);
  thrust::copy(c.policy(), c.x, c.x + c.n - (kWrong ? 1 : 0), copy);
  thrust::inclusive_scan(c.policy(), copy, copy + c.n, c.out);  // FAULT
}

template <bool kWrong>
void run(const std::string& name, const Call& c) {
  const struct {
    const char* name;
    void (*algorithm)(const Call&);
  } table[] = {
#define ROW(name) {#name, name<kWrong>}
      ROW(storage_too_small),
      ROW(storage_shorter_than_said),
      ROW(storage_missing),
      ROW(storage_of_the_host),
      ROW(storage_in_use),
      ROW(reduction_past_the_end),
      ROW(reduction_without_order),
      ROW(scan_into_too_little),
      ROW(scan_over_its_input),
      ROW(sort_in_place),
      ROW(sort_by_too_few_bits),
      ROW(current_buffer_forgotten),
      ROW(too_few_flags),
      ROW(offsets_without_the_last),
      ROW(cub_on_the_default_stream),
      ROW(thrust_on_the_default_stream),
      ROW(device_pointer_on_the_default_stream),
      ROW(thrust_on_the_host),
      ROW(copy_past_its_room),
      ROW(shifted_in_place),
      ROW(two_items_to_one_place),
      ROW(functor_past_the_end),
      ROW(functor_of_the_host),
      ROW(total_as_int),
      ROW(equal_keys_in_order),
      ROW(kept_in_too_little),
      ROW(kept_over_its_input),
      ROW(kept_over_its_stencil),
      ROW(different_ones_unsorted),
      ROW(scan_of_what_nothing_wrote),
  };
  for (const auto& row : table) {
    if (name == row.name) row.algorithm(c);
  }
}

}  // namespace

void algorithms(const opsmith::Context& ctx, const cuda_faults::algorithms_args& a) {
  const Call call{ctx, opsmith::cuda_stream(ctx), a.x.data(), a.out.data(), static_cast<int>(a.N)};
  (a.wrong ? run<true> : run<false>)(std::string(a.fault), call);
}
OPSMITH_KERNEL(cuda_faults, algorithms, cuda)
