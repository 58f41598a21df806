// The header for the host code of a kernel in Ascend C, besides CANN's kernel_operator.h:
//
//     template <typename T>
//     void add_custom(const opsmith::Context& ctx, const npu::add_custom_args<T>& a) {
//       add<opsmith::device_type<T>><<<blocks, nullptr, opsmith::npu_stream(ctx)>>>(
//           opsmith::gm(a.x), opsmith::gm(a.y), opsmith::gm(a.out), a.out.numel());
//     }
//     OPSMITH_KERNEL(npu, add_custom, npu, float, opsmith::half)
#pragma once

#include <acl/acl.h>
#include <kernel_operator.h>
#include <opsmith/kernel.h>

#include <type_traits>

namespace opsmith {

// The call's stream: c10_npu::getCurrentNPUStream().stream().
inline aclrtStream npu_stream(const Context& ctx) { return static_cast<aclrtStream>(ctx.stream()); }

// The element type in device code.
template <typename T>
using device_type = std::conditional_t<std::is_same_v<T, opsmith::half>, ::half, T>;

// The global memory of a tensor, in the type of a kernel's parameter.
template <typename T>
GM_ADDR gm(const Tensor<T>& tensor) {
  return reinterpret_cast<GM_ADDR>(const_cast<std::remove_const_t<T>*>(tensor.data()));
}

}  // namespace opsmith
