// In place of PyTorch's header: the one device has the stream of the call.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/core/Stream.h>
#include <c10/cuda/CUDAMacros.h>
#include <c10/util/Exception.h>
#include <emulated/cuda.h>

namespace c10::cuda {

// 0 is the default stream; the call's own is none.
inline constexpr c10::StreamId kStreamOfCall = 3;

class CUDAStream {
 public:
  enum Unchecked { UNCHECKED };

  explicit CUDAStream(c10::Stream stream) : stream_(stream) {
    TORCH_CHECK(stream.device_type() == c10::DeviceType::CUDA);
  }
  explicit CUDAStream(Unchecked, c10::Stream stream) : stream_(stream) {}

  bool operator==(const CUDAStream& other) const { return unwrap() == other.unwrap(); }
  bool operator!=(const CUDAStream& other) const { return unwrap() != other.unwrap(); }
  operator cudaStream_t() const { return stream(); }
  operator c10::Stream() const { return unwrap(); }

  c10::DeviceType device_type() const { return c10::DeviceType::CUDA; }
  c10::DeviceIndex device_index() const { return stream_.device_index(); }
  c10::Device device() const { return {c10::DeviceType::CUDA, device_index()}; }
  c10::StreamId id() const { return stream_.id(); }
  c10::Stream unwrap() const { return stream_; }
  bool query() const { return true; }
  void synchronize() const {}
  int priority() const { return 0; }
  cudaStream_t stream() const { return reinterpret_cast<cudaStream_t>(stream_.id()); }

 private:
  c10::Stream stream_;
};

inline CUDAStream stream_of(c10::StreamId id) {
  return CUDAStream(c10::Stream(c10::Stream::UNSAFE, {c10::DeviceType::CUDA, 0}, id));
}
inline CUDAStream getCurrentCUDAStream(c10::DeviceIndex = -1) { return stream_of(kStreamOfCall); }
inline CUDAStream getDefaultCUDAStream(c10::DeviceIndex = -1) { return stream_of(0); }
inline CUDAStream getStreamFromPool(bool = false, c10::DeviceIndex = -1) {
  return stream_of(kStreamOfCall);
}
inline CUDAStream getStreamFromPool(int, c10::DeviceIndex = -1) { return stream_of(kStreamOfCall); }
inline void setCurrentCUDAStream(CUDAStream) {}

}  // namespace c10::cuda

namespace at::cuda {
using namespace c10::cuda;
}
