// Memory of a host: which tensors a kernel for the CPU can use, and new memory for results.
#pragma once

#include <opsmith/abi.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace opsmith::hosted {

// Whether the CPU reads the memory of a device, by DLPack's numbers: its own, pinned, managed.
inline bool host_reads(int32_t device) {
  return device == device_cpu || device == 3 || device == 11 || device == 13;
}

// Whether a tensor begins at a multiple of its element's size. A complex number is aligned like its
// parts.
inline bool is_aligned(const DLTensor& tensor) {
  const uintptr_t size = std::max<uintptr_t>(tensor.dtype.bits / 8, 1);
  return reinterpret_cast<uintptr_t>(tensor.data) % (tensor.dtype.code == 5 ? size / 2 : size) == 0;
}

// Allocates the elements of a contiguous tensor, aligned to 64 bytes, to be freed by std::free.
//
// Throws std::bad_alloc, too, if their number of bytes overflows.
inline void* memory_for(DLDataType dtype, int32_t ndim, const int64_t* sizes) {
  size_t bytes = dtype.bits / 8;
  for (int32_t i = 0; i < ndim; ++i) {
    if (__builtin_mul_overflow(bytes, sizes[i], &bytes) || bytes > SIZE_MAX / 2) {
      throw std::bad_alloc();
    }
  }
  void* memory = std::aligned_alloc(64, std::max<size_t>((bytes + 63) / 64 * 64, 64));
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace opsmith::hosted
