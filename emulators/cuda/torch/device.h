// PyTorch's device "cuda", or another that EMULATED_DEVICE names, in a process without one: its
// tensors lie in the memory that kernels are emulated in, and PyTorch's operators on them run on
// the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#ifndef EMULATED_DEVICE
#define EMULATED_DEVICE CUDA
#endif

namespace emulated {

inline constexpr c10::DeviceType kDeviceType = c10::DeviceType::EMULATED_DEVICE;
inline constexpr c10::DispatchKey kDeviceKey = c10::DispatchKey::EMULATED_DEVICE;
inline constexpr const char* kDeviceName = kDeviceType == c10::kCUDA ? "cuda" : "npu";

// A tensor of the device, and one of the host: both are the same memory.
at::Tensor on_device(const at::Tensor& host);
at::Tensor on_host(const at::Tensor& device);

// Opens the device for a call: operators may allocate memory on it, which begins as bytes `fill`;
// with `vast`, large memory is mapped again and again.
class DeviceCall {
 public:
  DeviceCall(uint8_t fill, bool vast);
  ~DeviceCall();
  DeviceCall(const DeviceCall&) = delete;
  DeviceCall& operator=(const DeviceCall&) = delete;
};

}  // namespace emulated
