// In place of PyTorch's header: the one device is current, and so is the stream of the call.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <optional>

namespace c10::cuda {

struct CUDAGuard {
  explicit CUDAGuard(c10::DeviceIndex index) { set_index(index); }
  explicit CUDAGuard(c10::Device device) { set_device(device); }
  CUDAGuard(const CUDAGuard&) = delete;
  CUDAGuard& operator=(const CUDAGuard&) = delete;

  void set_device(c10::Device device) {
    TORCH_CHECK(device.is_cuda(), "CUDAGuard of ", device, ", which is no CUDA device");
    set_index(device.index());
  }
  void reset_device(c10::Device device) { set_device(device); }
  void set_index(c10::DeviceIndex index) {
    TORCH_CHECK(index <= 0, "there is one CUDA device, and CUDAGuard sets number ", int{index});
  }
  c10::Device original_device() const { return {c10::DeviceType::CUDA, 0}; }
  c10::Device current_device() const { return {c10::DeviceType::CUDA, 0}; }
};

struct OptionalCUDAGuard {
  OptionalCUDAGuard() = default;
  explicit OptionalCUDAGuard(std::optional<c10::Device> device) {
    if (device.has_value()) set_device(*device);
  }
  explicit OptionalCUDAGuard(std::optional<c10::DeviceIndex>) {}
  OptionalCUDAGuard(const OptionalCUDAGuard&) = delete;
  OptionalCUDAGuard& operator=(const OptionalCUDAGuard&) = delete;

  void set_device(c10::Device device) {
    TORCH_CHECK(device.is_cuda(), "OptionalCUDAGuard of ", device, ", which is no CUDA device");
  }
  void reset_device(c10::Device device) { set_device(device); }
  void set_index(c10::DeviceIndex) {}
  std::optional<c10::Device> original_device() const { return c10::Device(c10::kCUDA, 0); }
  std::optional<c10::Device> current_device() const { return c10::Device(c10::kCUDA, 0); }
  void reset() {}
};

struct CUDAStreamGuard {
  explicit CUDAStreamGuard(c10::Stream) {}
  CUDAStreamGuard(const CUDAStreamGuard&) = delete;
  CUDAStreamGuard& operator=(const CUDAStreamGuard&) = delete;

  void reset_stream(c10::Stream) {}
  CUDAStream original_stream() const { return getCurrentCUDAStream(); }
  CUDAStream current_stream() const { return getCurrentCUDAStream(); }
};

struct OptionalCUDAStreamGuard {
  OptionalCUDAStreamGuard() = default;
  explicit OptionalCUDAStreamGuard(std::optional<c10::Stream>) {}
  void reset_stream(c10::Stream) {}
  void reset() {}
};

}  // namespace c10::cuda
