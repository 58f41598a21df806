// In place of CUDA's runtime: reports each launch of host code that nvcc compiled, and does
// nothing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

struct dim3 {
  unsigned x, y, z;
};

using Report = void (*)(const char* kernel, const unsigned* sizes, size_t shared, void** arguments);

namespace {

Report report = nullptr;

// Kernels are registered before a variable of this file exists.
std::map<const void*, std::string>& kernels() {
  static std::map<const void*, std::string> all;
  return all;
}

struct Configuration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};
std::vector<Configuration> configurations;

struct Room {
  std::string name;
  char* start;
  size_t bytes;
};
std::vector<Room> rooms;

int launched(const void* kernel, dim3 grid, dim3 block, size_t shared, void** arguments) {
  const unsigned sizes[] = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
  report(kernels()[kernel].c_str(), sizes, shared, arguments);
  return 0;
}

}  // namespace

namespace opsmith {

// Memory of the device, as far as the host may name it; faults make pointers beside its ends.
void* recorded_room(const char* name, size_t bytes) {
  char* const start = static_cast<char*>(std::calloc(bytes + 512, 1)) + 256;
  rooms.push_back({name, start, bytes});
  return start;
}

}  // namespace opsmith

extern "C" {

void recorder_begin(Report to) {
  report = to;
  rooms.clear();
}

// The name of the memory that a pointer is in, with the offset; "" where it is in none.
const char* recorder_room(const char* pointer, int64_t* offset) {
  for (const Room& room : rooms) {
    if (pointer >= room.start - 256 && pointer < room.start + room.bytes + 256) {
      *offset = pointer - room.start;
      return room.name.c_str();
    }
  }
  return "";
}

void** __cudaRegisterFatBinary(void* binary) {
  static void* handle;
  handle = binary;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*,
                            void*, void*, int*) {
  kernels()[host] = name;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
unsigned __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void** stream) {
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid, *block = last.block, *shared = last.shared, *stream = last.stream;
  return 0;
}
int __cudaGetKernel(const void** kernel, const void* host) {
  *kernel = host;
  return 0;
}
int __cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                       void*) {
  return launched(kernel, grid, block, shared, arguments);
}
int __cudaLaunchKernel_ptsz(const void* kernel, dim3 grid, dim3 block, void** arguments,
                            size_t shared, void*) {
  return launched(kernel, grid, block, shared, arguments);
}
int cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                     void*) {
  return launched(kernel, grid, block, shared, arguments);
}
int cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                size_t shared, void*) {
  return launched(kernel, grid, block, shared, arguments);
}
int cudaMemcpyAsync(void*, const void*, size_t, int, void*) { return 0; }
int cudaMemcpyToSymbolAsync(const void*, const void*, size_t, size_t, int, void*) { return 0; }
int cudaMemsetAsync(void*, int, size_t, void*) { return 0; }
int cudaFuncSetAttribute(const void*, int, int) { return 0; }
int cudaGetLastError() { return 0; }
int cudaPeekAtLastError() { return 0; }

}  // extern "C"
