// A stand-in for ONNX Runtime's CUDA provider, over the one for the CPU: it hands an operator
// addresses that the host cannot read, a stream, and scratch memory, and says that it is a GPU.
// What it can it has ONNX Runtime do as well, which shows that each function is where it is looked
// for.
#include <dlfcn.h>
#include <on_device.h>
#include <opsmith/detail/onnxruntime_api.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

using namespace opsmith::ort;

namespace {

std::string file;
std::string domain_name;
std::string said;
int64_t pieces = 0;
int32_t gpu = 1;
const void* table[300];

const void* const* table_of(uint32_t) { return table; }
const char* version() { return "stand-in"; }
const ApiBase stand_in = {table_of, version};

template <typename Function>
const void* address(Function* function) {
  return reinterpret_cast<const void*>(function);
}

Status* data_of(Value* value, void** data) {
  Status* status = api().GetTensorMutableData(value, data);
  *data = to_device(*data);
  return status;
}
void device_type(const MemoryInfo* info, int32_t* type) {
  api().MemoryInfoGetDeviceType(info, type);
  if (*type != 0) std::abort();  // it is the CPU's
  *type = gpu;
}
Status* device_id(const MemoryInfo* info, int32_t* id) {
  Status* status = api().MemoryInfoGetId(info, id);
  if (*id != 0) std::abort();
  *id = 3;
  return status;
}
Status* stream(const KernelContext* kernel, void** stream) {
  Status* status = api().KernelContext_GetGPUComputeStream(kernel, stream);
  *stream = reinterpret_cast<void*>(77);
  return status;
}
Status* scratch(const KernelContext*, const MemoryInfo* info, size_t bytes, void** memory) {
  int32_t type = -1;
  api().MemoryInfoGetDeviceType(info, &type);
  if (type != 0) std::abort();
  *memory = to_device(std::malloc(bytes));
  ++pieces;
  return nullptr;
}
Status* free_scratch(Allocator* allocator, void* memory) {
  const MemoryInfo* info = nullptr;
  if (Status* status = api().AllocatorGetInfo(allocator, &info)) return status;
  std::free(on_device(memory));
  --pieces;
  return nullptr;
}

}  // namespace

// Which operator library is registered, and in which domain.
extern "C" OPSMITH_EXPORT void use(const char* path, const char* domain) {
  file = path;
  domain_name = domain;
}
extern "C" OPSMITH_EXPORT void on_gpu(int32_t is) { gpu = is; }
extern "C" OPSMITH_EXPORT int64_t scratch_left() { return pieces; }
extern "C" OPSMITH_EXPORT const char* provider_said() { return said.c_str(); }

extern "C" OPSMITH_EXPORT Status* RegisterCustomOps(SessionOptions* options, const ApiBase* base) {
  if (Status* problem = begin(base, "stand-in")) return problem;
  const void* const* real = base->GetApi(api_version);
  std::copy(real, real + std::size(table), table);
  table[51] = address(data_of);
  table[72] = address(device_id);
  table[76] = address(free_scratch);
  table[193] = address(stream);
  table[225] = address(device_type);
  table[277] = address(scratch);

  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return api().CreateStatus(1, dlerror());
  const auto get = reinterpret_cast<const CustomOp* (*)(const ApiBase*, Status**)>(
      dlsym(library, "opsmith_onnxruntime_operator"));
  Status* problem = nullptr;
  const CustomOp* op = get(&stand_in, &problem);
  if (op == nullptr) return problem;
  said = op->GetExecutionProviderType(op);
  auto* here = new CustomOp(*op);  // sessions use it for as long as they live
  here->GetExecutionProviderType = [](const CustomOp*) -> const char* { return nullptr; };
  Domain* domain = nullptr;
  if (Status* status = api().CreateCustomOpDomain(domain_name.c_str(), &domain)) return status;
  if (Status* status = api().CustomOpDomain_Add(domain, here)) return status;
  return api().AddCustomOpDomain(options, domain);
}
