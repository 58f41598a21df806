// Launches, and the words of Ascend C that C++ does not have: Kernel-Tiling, 资源管理/workspace.
#pragma once

#include <ascendc/machine.h>

#include <tuple>

#define __aicore__
#define __gm__
#define __ubuf__
#ifndef OPSMITH_KEEPS_WORDS_OF_CUDA
#define __global__
#endif
#define __CCE_AICORE__ 220
#define __inline__ inline
#define KERNEL_TASK_TYPE_DEFAULT(type) \
  (::emulated::npu::registers().scheduler = ::AscendC::type == ::AscendC::KERNEL_TYPE_MIX_AIV_1_0)
#define KERNEL_TASK_TYPE(key, type) \
  (TILING_KEY_IS(key) ? void(KERNEL_TASK_TYPE_DEFAULT(type)) : void())
#define ASSERT(holds) ((void)0)
#define likely(holds) (holds)
#define unlikely(holds) (holds)
// The tiling of an operator project: whoever includes its kernel defines the struct and the key.
#define GET_TILING_DATA_WITH_STRUCT(Type, name, at) Type name = *reinterpret_cast<const Type*>(at)
#define GET_TILING_DATA(name, at) GET_TILING_DATA_WITH_STRUCT(OPSMITH_TILING, name, at)
#define TILING_KEY_IS(key) (OPSMITH_TILING_KEY == (key))

// Whether the compiler orders instructions that the scalar or the vector unit takes part in
// (--cce-auto-sync).
#ifndef OPSMITH_NPU_ORDERS
#define OPSMITH_NPU_ORDERS true
#endif

using GM_ADDR = uint8_t*;

namespace AscendC {

// Those without cube cores. The first type does not start what orders blocks in hardware.
enum KernelMetaType { KERNEL_TYPE_AIV_ONLY, KERNEL_TYPE_MIX_AIV_1_0 };

// The launch passes the memory that the host has set aside, and nothing of the system's before it.
inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }
inline void SetSysWorkspace(GM_ADDR) {}
inline GM_ADDR GetSysWorkSpacePtr() {
  static uint8_t none;
  return &none;
}

}  // namespace AscendC

namespace emulated {

// kernel<<<blocks, nullptr, stream>>>(arguments...)
class Configured {
 public:
  Configured(uint32_t blocks, void*, void* stream = nullptr, Place place = here())
      : blocks_(blocks), stream_(stream), place_(place) {}

  template <typename Function, typename Kernel, typename... Arguments>
  void run(const char* name, Function, Kernel kernel, const Arguments&... arguments) const {
    auto call = [&] { kernel(arguments...); };
    npu::launch({blocks_, name, stream_ == nullptr, OPSMITH_NPU_ORDERS, place_,
                 [](void* state) { (*static_cast<decltype(call)*>(state))(); }, &call});
  }

 private:
  uint32_t blocks_;
  void* stream_;
  Place place_;
};

}  // namespace emulated

// After 编程指南/附录/基于样例工程完成Kernel直调: a project's build declares each kernel so, in a
// header of its own. The line is that of the macro.
#define ACLRT_LAUNCH_KERNEL(kernel)                                               \
  [](uint32_t blocks, aclrtStream stream, auto... arguments) {                    \
    ::emulated::Configured(blocks, nullptr, stream)                               \
        .run(#kernel, kernel, [](auto... own) { kernel(own...); }, arguments...); \
    return uint32_t{0};                                                           \
  }
