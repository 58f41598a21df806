// The emulation of Ascend C in place of CANN's header, with launches that run on the tests' device.
#pragma once

#include <device.h>
#include_next <kernel_operator.h>

namespace on_device {

inline GM_ADDR behind(device::Core core, GM_ADDR address) { return core.at(address); }
template <typename T>
T behind(device::Core, T value) {
  return value;
}

// kernel<<<blocks, nullptr, stream>>>(arguments...)
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), uint32_t blocks, void* stream, Arguments... arguments) {
  device::launch(stream, [=](device::Core core) {
    auto call = [&] { kernel(behind(core, static_cast<Parameters>(arguments))...); };
    emulated::npu::launch({blocks, "kernel", false, true, emulated::here(),
                           [](void* state) { (*static_cast<decltype(call)*>(state))(); }, &call});
  });
}

}  // namespace on_device
