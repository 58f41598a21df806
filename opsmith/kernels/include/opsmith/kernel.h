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
#include <opsmith/detail/combinations.h>
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
  detail::dispatch(detail::of_types<Types...>(), &type, device, body);
}

}  // namespace opsmith

#define OPSMITH_JOIN_(prefix, ns, op, device) prefix##__##ns##__##op##__##device
#define OPSMITH_JOIN(prefix, ns, op, device) OPSMITH_JOIN_(prefix, ns, op, device)

// Makes the function `op` the kernel of ns::op on `device`, for the element types that follow:
//   none                              where the declaration fixes every dtype
//   float, double                     where it has one dtype variable
//   (float, double), (int, int64_t)   where it has several: the types of each, in the order in
//                                     which the declaration names them, in every combination
//   types<float, int>, …              or these combinations alone
// Exports, with C linkage:
//   opsmith_kernel__ns__op__device   the entry point
//   opsmith_dtypes__ns__op__device   the combinations' names, separated by ", "
//   opsmith_calls__ns__op__device    how often the entry point was called
#define OPSMITH_KERNEL(ns, op, device, ...)                                                     \
  extern "C" {                                                                                  \
  OPSMITH_EXPORT std::atomic<uint64_t> OPSMITH_JOIN(opsmith_calls, ns, op, device){0};          \
  OPSMITH_EXPORT const char* OPSMITH_JOIN(opsmith_dtypes, ns, op, device)() {                   \
    static const std::string names =                                                            \
        opsmith::detail::names_of(OPSMITH_COMBINATIONS(__VA_ARGS__)());                         \
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
#define OPSMITH_RUN_GENERIC(ns, op, device, ...)                         \
  opsmith::detail::dispatch(                                             \
      OPSMITH_COMBINATIONS(__VA_ARGS__)(), raw->opsmith_dtypes, #device, \
      [&]<typename... Type>() { op<Type...>(ctx, ns::op##_args<Type...>(*raw, ctx)); });

// The combinations as a type. A group in parentheses becomes the parameters of a function type.
#define OPSMITH_COMBINATIONS(...) OPSMITH_IF_GROUP(OPSMITH_FIRST(__VA_ARGS__, ))(__VA_ARGS__)
#define OPSMITH_OF_TYPES(...) opsmith::detail::of_types<__VA_ARGS__>
#define OPSMITH_OF_GROUPS(...) opsmith::detail::of_groups<OPSMITH_GROUPS_1(__VA_ARGS__)>
#define OPSMITH_GROUPS_1(group, ...) void group __VA_OPT__(, OPSMITH_GROUPS_2(__VA_ARGS__))
#define OPSMITH_GROUPS_2(group, ...) void group __VA_OPT__(, OPSMITH_GROUPS_3(__VA_ARGS__))
#define OPSMITH_GROUPS_3(group, ...) void group __VA_OPT__(, OPSMITH_GROUPS_4(__VA_ARGS__))
#define OPSMITH_GROUPS_4(group, ...) void group __VA_OPT__(, OPSMITH_GROUPS_5(__VA_ARGS__))
#define OPSMITH_GROUPS_5(group, ...) void group __VA_OPT__(, OPSMITH_GROUPS_6(__VA_ARGS__))
#define OPSMITH_GROUPS_6(group) void group

// OPSMITH_OF_GROUPS if `first` is in parentheses, else OPSMITH_OF_TYPES.
#define OPSMITH_IF_GROUP(first) OPSMITH_SECOND(OPSMITH_PROBE first, OPSMITH_OF_TYPES)
#define OPSMITH_PROBE(...) , OPSMITH_OF_GROUPS
#define OPSMITH_FIRST(first, ...) first
#define OPSMITH_SECOND(...) OPSMITH_SECOND_(__VA_ARGS__, )
#define OPSMITH_SECOND_(first, second, ...) second
