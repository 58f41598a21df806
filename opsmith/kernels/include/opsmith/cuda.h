// The header for the host code of a CUDA kernel, besides <opsmith/kernel.h>:
//
//     template <typename T>
//     __global__ void scale_elements(const T* x, T* out, int64_t count, T factor) { … }
//
//     template <typename T>
//     void scale(const opsmith::Context& ctx, const my_ops::scale_args<T>& a) {
//       const int64_t count = a.x.numel();
//       if (count == 0) return;  // a grid has at least one block
//       opsmith::launch(ctx, scale_elements<T>, opsmith::blocks_for(count, 256), 256, 0,
//                       a.x.data(), a.out.data(), count, static_cast<T>(a.factor));
//     }
//     OPSMITH_KERNEL(my_ops, scale, cuda, float, double, opsmith::half)
//
// Without a GPU, `opsmith check` compiles the same source for the CPU.
#pragma once

#include <cuda_runtime.h>
#include <opsmith/kernel.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>

#ifndef OPSMITH_CUDA_ON_CPU
#include <cxxabi.h>
#endif

namespace opsmith {

// The call's stream.
inline cudaStream_t cuda_stream(const Context& ctx) {
  return static_cast<cudaStream_t>(ctx.stream());
}

// Ends the call with an error if a function of CUDA's runtime failed.
inline void check_cuda(const Context& ctx, cudaError_t error, std::string_view what) {
  if (error != cudaSuccess) {
    ctx.fail(what, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  }
}

// The number of blocks of `threads` that gives each of `count` items a thread. With items for more
// than 2^31 - 1 blocks, let each thread compute several.
inline unsigned blocks_for(int64_t count, int64_t threads) {
  return static_cast<unsigned>(std::min<int64_t>((count + threads - 1) / threads, 0x7fffffff));
}

#ifdef OPSMITH_CUDA_ON_CPU

// Not inlined: its return address identifies the user's line.
template <typename... Parameters, typename... Arguments>
__attribute__((noinline)) void launch(const Context& ctx, void (*kernel)(Parameters...), dim3 grid,
                                      dim3 block, size_t shared_bytes,
                                      const Arguments&... arguments) {
  if (shared_bytes > (size_t{48} << 10)) {
    emulated::allow_shared_bytes(emulated::address_of(kernel), shared_bytes);
  }
  emulated::Configured(grid, block, shared_bytes, cuda_stream(ctx),
                       emulated::Place{nullptr, 0, __builtin_return_address(0)})
      .run("a kernel", kernel, kernel, static_cast<std::decay_t<Parameters>>(arguments)...);
}

template <typename T>
__attribute__((noinline)) T* dynamic_shared() {
  return emulated::dynamic_shared<T>("dynamic_shared", {nullptr, 0, __builtin_return_address(0)});
}

#else

namespace detail {

inline std::string kernel_name([[maybe_unused]] const void* kernel) {
#if CUDART_VERSION >= 12030
  const char* mangled = nullptr;
  if (cudaFuncGetName(&mangled, kernel) == cudaSuccess && mangled != nullptr) {
    int status = 0;
    char* text = abi::__cxa_demangle(mangled, nullptr, nullptr, &status);
    const std::string name = status == 0 ? text : mangled;
    std::free(text);
    return name;
  }
#endif
  return "a kernel";
}

inline std::string triple(dim3 size) { return join("(", size.x, ", ", size.y, ", ", size.z, ")"); }

}  // namespace detail

// kernel<<<grid, block, shared_bytes>>>(arguments...) on the call's stream. If CUDA refuses the
// launch, the call fails with the kernel's name.
template <typename... Parameters, typename... Arguments>
void launch(const Context& ctx, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            size_t shared_bytes, const Arguments&... arguments) {
  if (shared_bytes > (size_t{48} << 10)) {
    check_cuda(ctx,
               cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "cudaFuncSetAttribute");
  }
  kernel<<<grid, block, shared_bytes, cuda_stream(ctx)>>>(
      static_cast<std::decay_t<Parameters>>(arguments)...);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    ctx.fail("the launch of ", detail::kernel_name(reinterpret_cast<const void*>(kernel)),
             " with grid ", detail::triple(grid), ", block ", detail::triple(block), " and ",
             shared_bytes, " bytes of dynamic shared memory failed: ", cudaGetErrorName(error),
             ", ", cudaGetErrorString(error));
  }
}

// The dynamic shared memory of the block, aligned to 16 bytes.
template <typename T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char opsmith_dynamic_shared_memory[];
  return reinterpret_cast<T*>(opsmith_dynamic_shared_memory);
}

#endif

}  // namespace opsmith
