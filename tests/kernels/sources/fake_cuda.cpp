// A stand-in for the CUDA driver, libcuda.so.1: it runs nothing, and remembers what it was asked
// for. "Code" is a text that ends with a zero byte. Copies are made, between addresses that the
// host cannot read (on_device.h).
#include "on_device.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

namespace {
std::string log;
int capability = 90;
int refuses = 0;
}  // namespace

extern "C" {

const char* fake_log() { return log.c_str(); }
void fake_clear(int of) {
  log.clear();
  capability = of;
}
void fake_refuse(int error) { refuses = error; }

int cuInit(unsigned) { return 0; }
int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR_INVALID_VALUE", 0; }
int cuGetErrorString(int, const char** text) { return *text = "invalid argument", 0; }
int cuCtxGetCurrent(void** context) { return *context = nullptr, 0; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuCtxPushCurrent_v2(void*) { return 0; }
int cuCtxPopCurrent_v2(void**) { return 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) {
  log += "device " + std::to_string(device) + "\n";
  return *context = &log, 0;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  return *value = attribute == 75 ? capability / 10 : capability % 10, 0;
}
// Each GPU that a test thinks of is another device: what was loaded for one stays loaded.
int cuPointerGetAttribute(void* value, int, uint64_t) {
  return std::memcpy(value, &capability, sizeof(int)), 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  if (refuses != 0) return refuses;
  log += "copy " + std::to_string(bytes) + " bytes, stream " +
         std::to_string(reinterpret_cast<size_t>(stream)) + "\n";
  std::memcpy(on_device(reinterpret_cast<char*>(to)), on_device(reinterpret_cast<char*>(from)),
              bytes);
  return 0;
}
int cuModuleLoadData(void** module, const void* code) {
  log += "load " + std::string(static_cast<const char*>(code)) + "\n";
  return *module = const_cast<void*>(code), 0;
}
int cuModuleGetFunction(void** function, void* module, const char*) {
  return *function = module, 0;
}
int cuFuncSetAttribute(void*, int attribute, int value) {
  log += "attribute " + std::to_string(attribute) + " = " + std::to_string(value) + "\n";
  return 0;
}
// The code begins with a letter for each argument's type.
int cuLaunchKernel(void* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned,
                   unsigned, unsigned shared, void* stream, void** arguments, void**) {
  if (refuses != 0) return refuses;
  char text[256];
  std::snprintf(text, sizeof text, "launch %s (%u, %u, %u) x %u, %u bytes, stream %zx:",
                static_cast<const char*>(function), x, y, z, threads, shared,
                reinterpret_cast<size_t>(stream));
  log += text;
  for (const char* type = static_cast<const char*>(function); *type != ' '; ++type, ++arguments) {
    switch (*type) {
      case 'p':
        std::snprintf(text, sizeof text, " %zx", *static_cast<size_t*>(*arguments));
        break;
      case 'i':
        std::snprintf(text, sizeof text, " %d", *static_cast<int32_t*>(*arguments));
        break;
      case 'l':
        std::snprintf(text, sizeof text, " %lld", *static_cast<long long*>(*arguments));
        break;
      case 'f':
        std::snprintf(text, sizeof text, " %g", *static_cast<float*>(*arguments));
        break;
    }
    log += text;
  }
  log += "\n";
  return 0;
}
}
