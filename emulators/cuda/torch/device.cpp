// Operators on tensors of the device fall back to the kernels of the CPU, on the same
// memory.
#include "device.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/op_registration.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <emulated/runtime.h>
#include <torch/library.h>

#include "memory.h"

#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace emulated {

namespace {

// --- memory ------------------------------------------------------------------------------------

// As many bytes as CUDA aligns memory to.
constexpr uint64_t kAlignment = 256;

struct Block {
  std::unique_ptr<Guarded> memory;
  std::string name;
  uint64_t element = 1;
  bool named = false;
  bool written = false;
};

// The memory of tensors on the device. It may outlive a call, as that of a static tensor does.
struct DeviceMemory {
  std::map<const void*, Block> live;
  std::vector<std::unique_ptr<Guarded>> freed;  // an access to it is still recognised in this call
  bool open = false;
  uint8_t fill = 0xFF;
  bool vast = false;
  c10::Allocator* usual = nullptr;

  static DeviceMemory& only() {
    // Never destroyed: tensors in static variables are freed when the process ends.
    static auto* memory = new DeviceMemory;
    return *memory;
  }

  static void watch(const Block& block) {
    Region region = block.memory->region(block.name.c_str(), block.element);
    region.written = block.written;
    watch_memory(region);
  }

  static void free(void* data) {
    DeviceMemory& all = only();
    const auto found = all.live.find(data);
    if (found == all.live.end()) return;
    if (all.open) {
      forget_memory(data);
      all.freed.push_back(std::move(found->second.memory));
    }
    all.live.erase(found);
  }
};

// How many operators on the device are running: what they allocate is memory of the device.
thread_local int operators_running = 0;

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    DeviceMemory& all = DeviceMemory::only();
    if (operators_running == 0 || bytes == 0) return all.usual->allocate(bytes);
    Block block;
    block.memory = std::make_unique<Guarded>(bytes, kAlignment, all.fill, all.vast);
    block.name = "memory of a PyTorch operator";
    char* data = block.memory->data();
    DeviceMemory::watch(block);
    all.live[data] = std::move(block);
    return {data, data, &DeviceMemory::free, c10::Device(c10::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

// --- tensors -----------------------------------------------------------------------------------

using Keys = c10::DispatchKeySet;
constexpr auto kDevice = c10::toBackendComponent(kDeviceKey);
constexpr auto kHost = c10::BackendComponent::CPUBit;

void take_layout(c10::TensorImpl& to, const c10::TensorImpl& from) {
  to.set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
}

// The storage stays the host's, so that both tensors have the same.
class DeviceTensor final : public c10::TensorImpl {
 public:
  DeviceTensor(const at::Tensor& host, Keys keys)
      : TensorImpl(c10::Storage(host.storage()), keys, host.dtype()) {
    device_opt_ = c10::Device(kDeviceType, 0);
    take_layout(*this, *host.unsafeGetTensorImpl());
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(const c10::VariableVersion& version,
                                                         bool allow) const override {
    return copy(version, allow);
  }
  c10::intrusive_ptr<TensorImpl> shallow_copy_and_detach(c10::VariableVersion&& version,
                                                         bool allow) const override {
    return copy(version, allow);
  }
  void keep(const at::Tensor& host) {
    if (!storage().is_alias_of(host.storage())) set_storage_keep_dtype(host.storage());
    take_layout(*this, *host.unsafeGetTensorImpl());
  }

 private:
  explicit DeviceTensor(const DeviceTensor& other)
      : TensorImpl(c10::Storage(other.storage()), other.key_set(), other.dtype()) {}
  c10::intrusive_ptr<TensorImpl> copy(const c10::VariableVersion& version, bool allow) const {
    auto made = c10::intrusive_ptr<DeviceTensor>::unsafe_steal_from_new(new DeviceTensor(*this));
    copy_tensor_metadata(this, made.get(), version, allow);
    return made;
  }
};

bool is_of_device(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kDeviceType;
}

std::string name_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << "a tensor of sizes " << tensor.sizes() << ", made by the host code";
  return text.str();
}

// --- operators ---------------------------------------------------------------------------------

// These make no values.
const std::set<std::string>& without_values() {
  static const std::set<std::string> names{
      "aten::empty",   "aten::empty_strided", "aten::empty_like", "aten::new_empty",
      "aten::resize_", "aten::set_",          "aten::resize_as_", "aten::as_strided_"};
  return names;
}
// PyTorch takes tensors of the host beside those of the device here.
const std::set<std::string>& of_both() {
  static const std::set<std::string> names{"aten::copy_",      "aten::index",
                                           "aten::index_put_", "aten::_index_put_impl_",
                                           "aten::_copy_from", "aten::_unsafe_index",
                                           "aten::index_put",  "aten::record_stream",
                                           "aten::set_",       "aten::_pin_memory",
                                           "aten::is_set_to",  "aten::_has_same_storage_numel"};
  return names;
}
// The host waits for values, or for sizes that depend on them.
const std::set<std::string>& waits() {
  static const std::set<std::string> names{
      "aten::_local_scalar_dense", "aten::nonzero", "aten::equal",   "aten::masked_select",
      "aten::unique_dim",          "aten::_unique", "aten::_unique2"};
  return names;
}

// The arguments of an operator, with tensors of the host in place of the device's.
class Arguments {
 public:
  Arguments(const c10::OperatorHandle& op, torch::jit::Stack& stack) : op_(op) {
    const size_t count = op.schema().arguments().size();
    for (size_t i = stack.size() - count; i < stack.size(); ++i) stack[i] = convert(stack[i]);
    TORCH_CHECK(of_host_ == 0 || pairs_.empty() || of_both().count(op.schema().name()) != 0,
                "Expected all tensors to be on the same device, but found at least two devices, ",
                kDeviceName, ":0 and cpu! (in ", op.schema().name(), ")");
  }

  // Takes back sizes that the operator changed, and notes what it wrote.
  void done() {
    for (auto& [device, host] : pairs_) {
      static_cast<DeviceTensor*>(device.unsafeGetTensorImpl())->keep(host);
    }
    const auto& arguments = op_.schema().arguments();
    if (without_values().count(op_.schema().name()) != 0) return;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto* alias = arguments[i].alias_info();
      if (alias == nullptr || !alias->isWrite()) continue;
      for (const auto& [position, tensor] : by_position_) {
        if (position == i) written(tensor);
      }
    }
  }

  c10::IValue result(const c10::IValue& value) {
    if (value.isTensor()) return result(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> made;
      for (const at::Tensor& tensor : value.toTensorVector()) made.push_back(result(tensor));
      return made;
    }
    return value;
  }

 private:
  c10::IValue convert(const c10::IValue& value) {
    const size_t position = position_++;
    if (value.isTensor()) return host(value.toTensor(), position);
    if (value.isTensorList()) {
      c10::List<at::Tensor> made;
      for (const at::Tensor& one : value.toTensorVector()) made.push_back(host(one, position));
      return made;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> made;
      for (const std::optional<at::Tensor>& one : value.toOptionalTensorVector()) {
        made.push_back(one.has_value() ? std::optional(host(*one, position)) : std::nullopt);
      }
      return made;
    }
    if (value.isDevice()) {
      to_host_ = value.toDevice().type() != kDeviceType;
      return c10::Device(c10::kCPU);
    }
    return value;
  }

  at::Tensor host(const at::Tensor& tensor, size_t position) {
    if (!is_of_device(tensor)) {
      of_host_ += tensor.defined() && tensor.dim() > 0;
      return tensor;
    }
    for (const auto& [device, made] : pairs_) {
      if (device.is_same(tensor)) return made;
    }
    at::Tensor made = on_host(tensor);
    pairs_.emplace_back(tensor, made);
    by_position_.emplace_back(position, made);
    return made;
  }

  at::Tensor result(const at::Tensor& tensor) {
    if (!tensor.defined() || to_host_ || is_of_device(tensor)) return tensor;
    bool is_view = false;
    for (const auto& [device, host] : pairs_) {
      if (host.is_same(tensor)) return device;
      is_view |= host.has_storage() && host.storage().is_alias_of(tensor.storage());
    }
    if (!is_view) name(tensor);
    if (!is_view && without_values().count(op_.schema().name()) == 0) written(tensor);
    return on_device(tensor);
  }

  static void name(const at::Tensor& tensor) {
    auto& live = DeviceMemory::only().live;
    const auto found = live.find(tensor.storage().data());
    if (found == live.end() || found->second.named) return;
    Block& block = found->second;
    block.name = name_of(tensor);
    block.element = std::max<uint64_t>(tensor.element_size(), 1);
    block.named = true;
    DeviceMemory::watch(block);
  }

  static void written(const at::Tensor& tensor) {
    if (tensor.numel() == 0) return;
    uint64_t last = 0;
    for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
      last += static_cast<uint64_t>((tensor.size(dim) - 1) * tensor.stride(dim));
    }
    const uint64_t bytes = (last + 1) * tensor.element_size();
    const auto found = DeviceMemory::only().live.find(tensor.storage().data());
    if (found != DeviceMemory::only().live.end()) found->second.written = true;
    memory_is_written(tensor.const_data_ptr(), bytes);
  }

  const c10::OperatorHandle& op_;
  std::vector<std::pair<at::Tensor, at::Tensor>> pairs_;  // of the device, and of the host
  std::vector<std::pair<size_t, at::Tensor>> by_position_;
  size_t position_ = 0;
  int of_host_ = 0;
  bool to_host_ = false;
};

struct Running {
  Running() { ++operators_running; }
  ~Running() { --operators_running; }
};

void run_on_host(const c10::OperatorHandle& op, Keys, torch::jit::Stack* stack) {
  if (waits().count(op.schema().name()) != 0) host_reads_results();
  if (op.schema().name() == "aten::copy_" &&
      !is_of_device((*stack)[stack->size() - 3].toTensor())) {
    host_reads_results();
  }
  const Unwatched unwatched;
  Arguments arguments(op, *stack);
  {
    const Running running;
    op.callBoxed(stack);
  }
  arguments.done();
  const size_t count = op.schema().returns().size();
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    (*stack)[i] = arguments.result((*stack)[i]);
  }
}

TORCH_LIBRARY_IMPL(_, EMULATED_DEVICE, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

// PyTorch has a kernel of these for all devices, which looks for a device's own part.
TORCH_LIBRARY_IMPL(aten, EMULATED_DEVICE, m) {
  for (const char* name : {"copy_", "_local_scalar_dense", "record_stream"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
  }
}

// A process that emulates an NPU and calls from Python moves tensors by these.
at::Tensor known_on_host(const at::Tensor& tensor) {
  return is_of_device(tensor) ? on_host(tensor) : tensor;
}
TORCH_LIBRARY(opsmith_emulated, m) {
  m.def("on_device(Tensor(a) tensor) -> Tensor(a)", on_device);
  m.def("on_host(Tensor(a) tensor) -> Tensor(a)", known_on_host);
}

struct Guard final : c10::impl::NoOpDeviceGuardImpl<kDeviceType> {
  c10::Device exchangeDevice(c10::Device) const override { return {kDeviceType, 0}; }
  c10::Device getDevice() const override { return {kDeviceType, 0}; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
C10_REGISTER_GUARD_IMPL(EMULATED_DEVICE, Guard)

}  // namespace

at::Tensor on_device(const at::Tensor& host) {
  const Keys keys = host.key_set().remove_backend(kHost) | Keys(kDevice);
  return at::Tensor(c10::make_intrusive<DeviceTensor>(host, keys));
}

at::Tensor on_host(const at::Tensor& device) {
  TORCH_CHECK(device.layout() == at::kStrided, "a tensor on the device with the layout ",
              device.layout(), ", which opsmith does not emulate");
  const Keys keys = device.key_set().remove_backend(kDevice) | Keys(kHost);
  at::Tensor host = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(device.storage()), keys,
                                                             device.dtype());
  take_layout(*host.unsafeGetTensorImpl(), *device.unsafeGetTensorImpl());
  return host;
}

DeviceCall::DeviceCall(uint8_t fill, bool vast) {
  DeviceMemory& all = DeviceMemory::only();
  if (all.usual == nullptr) {
    all.usual = c10::GetCPUAllocator();
    static Allocator allocator;
    c10::SetCPUAllocator(&allocator, 255);
  }
  all.open = true;
  all.fill = fill;
  all.vast = vast;
  for (const auto& [data, block] : all.live) DeviceMemory::watch(block);
}

DeviceCall::~DeviceCall() {
  DeviceMemory& all = DeviceMemory::only();
  all.open = false;
  all.freed.clear();
}

}  // namespace emulated
