// What the CUDA sources here include; see narrow.h.
#pragma once

#include "narrow.h"

#include <opsmith/cuda.h>

#undef FAULT_REGISTER
#define FAULT_REGISTER(name, ...) OPSMITH_KERNEL(faults, name, cuda __VA_OPT__(, ) __VA_ARGS__)

constexpr int kThreads = 256;

inline unsigned blocks_for(int64_t threads) {
  return static_cast<unsigned>((threads + kThreads - 1) / kThreads);
}
