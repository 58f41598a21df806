// The header for kernel authors, besides the header that opsmith generates from the operator's
// declaration:
//
//     #include <opsmith/kernel.h>
//     #include "scale.h"
//
//     template <typename T>
//     void scale(const opsmith::Context& ctx, const my_ops::scale_args<T>& a) {
//       ctx.parallel_for(0, a.x.numel(), 4096, [&](int64_t begin, int64_t end) {
//         for (int64_t i = begin; i < end; ++i) a.out[i] = a.x[i] * static_cast<T>(a.factor);
//       });
//     }
//     OPSMITH_KERNEL(my_ops, scale, cpu, float, double, opsmith::half)
//
// Arguments arrive validated: shapes, dtypes, devices and value ranges are as declared. They are
// contiguous unless the kernel was registered as strided; results are allocated, contiguous and
// uninitialised. An exception that leaves the kernel becomes the call's error.
#pragma once

#include <opsmith/context.h>
#include <opsmith/detail/entry.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#define OPSMITH_EXPORT __attribute__((visibility("default"), used))

namespace opsmith {

// Calls body.operator()<T>() with the type of Types that `type` names; with the first of Types if
// no argument of the call fixed a dtype.
template <typename... Types, typename Body>
void dispatch(DLDataType type, const char* device, Body&& body) {
  constexpr uint32_t keys[] = {detail::dtype_traits<Types>::key...};
  const uint32_t key = type.lanes == 0 ? keys[0] : detail::dtype_key(type);
  const bool found =
      ((key == detail::dtype_traits<Types>::key ? (body.template operator()<Types>(), true)
                                                : false) ||
       ...);
  if (!found) {
    throw std::runtime_error(detail::join("the ", device, " kernel has no ",
                                          detail::dtype_name(type), "; it has ",
                                          detail::dtype_names<Types...>()));
  }
}

}  // namespace opsmith

#define OPSMITH_JOIN_(prefix, ns, op, device) prefix##__##ns##__##op##__##device
#define OPSMITH_JOIN(prefix, ns, op, device) OPSMITH_JOIN_(prefix, ns, op, device)

// Makes the function `op` the kernel of ns::op on `device`, for the element types that follow (none
// where the declaration has no generic dtype). Exports, with C linkage:
//   opsmith_kernel__ns__op__device   the entry point
//   opsmith_dtypes__ns__op__device   the element types' names, separated by ", "
//   opsmith_calls__ns__op__device    how often the entry point was called
#define OPSMITH_KERNEL(ns, op, device, ...)                                                     \
  extern "C" {                                                                                  \
  OPSMITH_EXPORT std::atomic<uint64_t> OPSMITH_JOIN(opsmith_calls, ns, op, device){0};          \
  OPSMITH_EXPORT const char* OPSMITH_JOIN(opsmith_dtypes, ns, op, device)() {                   \
    static const std::string names = opsmith::detail::dtype_names<__VA_ARGS__>();               \
    return names.c_str();                                                                       \
  }                                                                                             \
  OPSMITH_EXPORT int32_t OPSMITH_JOIN(opsmith_kernel, ns, op,                                   \
                                      device)(const ns##__##op##_raw* raw,                      \
                                              const opsmith::opsmith_context* context) {        \
    OPSMITH_JOIN(opsmith_calls, ns, op, device).fetch_add(1, std::memory_order_relaxed);        \
    return opsmith::detail::enter(raw, context, [given = raw](const auto& ctx) {                \
      opsmith::detail::Guarded<ns##__##op##_raw> guard(*given, ctx);                            \
      const ns##__##op##_raw* const raw = &guard.raw();                                         \
      OPSMITH_RUN_##__VA_OPT__(GENERIC)(ns, op, device __VA_OPT__(, ) __VA_ARGS__) guard.end(); \
    });                                                                                         \
  }                                                                                             \
  }

#define OPSMITH_RUN_(ns, op, device) op(ctx, ns::op##_args(*raw, ctx));
#define OPSMITH_RUN_GENERIC(ns, op, device, ...)                                     \
  opsmith::dispatch<__VA_ARGS__>(raw->opsmith_dtype, #device, [&]<typename Type>() { \
    op<Type>(ctx, ns::op##_args<Type>(*raw, ctx));                                   \
  });
