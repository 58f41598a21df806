// In place of PyTorch's header: there is one device.
#pragma once

#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>
#include <emulated/cuda.h>

namespace c10::cuda {

inline c10::DeviceIndex device_count() noexcept { return 1; }
inline c10::DeviceIndex device_count_ensure_non_zero() { return 1; }
inline c10::DeviceIndex current_device() { return 0; }
inline void set_device(c10::DeviceIndex, bool = false) {}
inline void device_synchronize() {}
inline c10::DeviceIndex ExchangeDevice(c10::DeviceIndex) { return 0; }
inline c10::DeviceIndex MaybeExchangeDevice(c10::DeviceIndex) { return 0; }
inline void SetDevice(c10::DeviceIndex, bool = false) {}
inline void MaybeSetDevice(c10::DeviceIndex) {}
inline int warp_size() { return emulated::warp_size; }

}  // namespace c10::cuda

namespace at::cuda {
using namespace c10::cuda;
}
