// In place of opsmith's header: the host code of a planted fault runs without a GPU, and `record.h`
// writes down what it launches. The device code that nvcc makes of the file is as ever.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace opsmith {

void* recorded_room(const char* name, size_t bytes);

template <typename T>
struct Room {
  T* start;
  int64_t count[1];
  T* data() const { return start; }
  int64_t numel() const { return count[0]; }
  struct Sizes {
    const int64_t* start;
    const int64_t* data() const { return start; }
  };
  Sizes sizes() const { return {count}; }
  T& operator[](int64_t i) const { return start[i]; }
};

struct Context {
  template <typename T>
  Room<T> scratch(int64_t count) const {
    return {static_cast<T*>(recorded_room("scratch", count * sizeof(T))), {count}};
  }
};

inline cudaStream_t cuda_stream(const Context&) { return reinterpret_cast<cudaStream_t>(16); }

inline unsigned blocks_for(int64_t count, int64_t threads) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

inline void check_cuda(const Context&, cudaError_t, std::string_view) {}

template <typename... Parameters, typename... Arguments>
void launch(const Context& ctx, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            size_t shared_bytes, const Arguments&... arguments) {
  kernel<<<grid, block, shared_bytes, cuda_stream(ctx)>>>(
      static_cast<std::decay_t<Parameters>>(arguments)...);
}

template <typename T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char opsmith_dynamic_shared_memory[];
  return reinterpret_cast<T*>(opsmith_dynamic_shared_memory);
}

// The arguments of every planted fault.
struct FaultArguments {
  Room<const float> x;
  Room<float> out;
  std::string_view fault, kernel;
  bool wrong;
  int64_t N;
};

}  // namespace opsmith

#define OPSMITH_KERNEL(ns, op, device)                                                        \
  extern "C" void record_fault(const char* name, bool wrong, int64_t n) {                     \
    const size_t bytes = n * sizeof(float);                                                   \
    op(opsmith::Context(), {{static_cast<float*>(opsmith::recorded_room("x", bytes)), {n}},   \
                            {static_cast<float*>(opsmith::recorded_room("out", bytes)), {n}}, \
                            name,                                                             \
                            name,                                                             \
                            wrong,                                                            \
                            n});                                                              \
  }
