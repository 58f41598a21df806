// The device as a PrivateUse1 backend of PyTorch: its allocator, guard and hooks, the few operators
// that every backend must have, and the CPU's for all others.
#include "runtime.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

namespace {

using c10::DeviceIndex;
constexpr c10::DeviceType kind = c10::DeviceType::PrivateUse1;

c10::Device this_device() { return {kind, static_cast<DeviceIndex>(device::current_device())}; }

// Whether PyTorch is told the streams' native handles, which not every backend does.
bool tells_streams = true;

// Nobody's number is the current one's.
c10::Device numbered(c10::Device device) { return device.has_index() ? device : this_device(); }

device::Queue& queue_of(const c10::Stream& stream) {
  return device::queue(stream.device_index(), stream.id());
}

device::Queue& queue_of(const at::Tensor& tensor) {
  const DeviceIndex index = tensor.device().index();
  return device::queue(index, device::current_stream(index));
}

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* address = bytes == 0 ? nullptr : device::allocate(device::current_device(), bytes);
    return {address, address, &device::release, this_device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &device::release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    device::Queue& queue =
        device::queue(device::device_of(to), device::current_stream(device::device_of(to)));
    queue.launch([=](device::Core core) { std::memcpy(core.at(to), core.at(from), bytes); });
  }
};

Allocator allocator;
REGISTER_ALLOCATOR(kind, &allocator)

struct Recorded {
  device::Queue* queue = nullptr;
  uint64_t number = 0;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kind;

  c10::DeviceType type() const override { return kind; }
  c10::Device exchangeDevice(c10::Device next) const override {
    const c10::Device before = this_device();
    setDevice(next);
    return before;
  }
  c10::Device getDevice() const override { return this_device(); }
  void setDevice(c10::Device next) const override {
    TORCH_CHECK(next.index() >= 0 && next.index() < device::count, "there is no device ", next);
    device::set_current_device(next.index());
  }
  void uncheckedSetDevice(c10::Device next) const noexcept override {
    device::set_current_device(next.index());
  }
  DeviceIndex deviceCount() const noexcept override { return device::count; }

  c10::Stream getStream(c10::Device on) const override {
    return c10::Stream(c10::Stream::UNSAFE, numbered(on),
                       device::current_stream(numbered(on).index()));
  }
  c10::Stream getDefaultStream(c10::Device on) const override {
    return c10::Stream(c10::Stream::DEFAULT, numbered(on));
  }
  c10::Stream getNewStream(c10::Device on, int) const override {
    static std::atomic<int64_t> next{0};
    return c10::Stream(c10::Stream::UNSAFE, numbered(on),
                       1 + next++ % (device::streams_of_each - 1));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device on, bool) const override {
    return getNewStream(on, 0);
  }
  c10::Stream exchangeStream(c10::Stream next) const override {
    const c10::Stream before = getStream(next.device());
    device::set_current_stream(next.device_index(), next.id());
    return before;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    if (!tells_streams) return DeviceGuardImplInterface::getStreamNativeHandle(stream);
    return static_cast<device::Stream*>(&queue_of(stream));
  }
  bool queryStream(const c10::Stream& stream) const override {
    return queue_of(stream).done(queue_of(stream).last());
  }
  void synchronizeStream(const c10::Stream& stream) const override { queue_of(stream).wait(); }
  void synchronizeDevice(const DeviceIndex index) const override {
    for (int64_t stream = 0; stream < device::streams_of_each; ++stream) {
      device::queue(index, stream).wait();
    }
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (data) device::record(data.get(), stream.device_index(), stream.id());
  }

  void record(void** event, const c10::Stream& stream, const DeviceIndex,
              const c10::EventFlag) const override {
    if (*event == nullptr) *event = new Recorded;
    *static_cast<Recorded*>(*event) = {&queue_of(stream), queue_of(stream).push([] {})};
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event == nullptr) return;
    const Recorded recorded = *static_cast<Recorded*>(event);
    if (recorded.queue == &queue_of(stream)) return;  // it comes later anyway
    queue_of(stream).push([recorded] { recorded.queue->wait(recorded.number); });
  }
  bool queryEvent(void* event) const override {
    const auto* recorded = static_cast<Recorded*>(event);
    return recorded == nullptr || recorded->queue->done(recorded->number);
  }
  void synchronizeEvent(void* event) const override {
    const auto* recorded = static_cast<Recorded*>(event);
    if (recorded != nullptr) recorded->queue->wait(recorded->number);
  }
  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<Recorded*>(event);
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

void resize_storage(const c10::Storage& storage, size_t bytes) {
  const c10::DeviceGuard guard(storage.device());
  c10::DataPtr larger = allocator.allocate(bytes);
  const size_t kept = std::min(bytes, storage.nbytes());
  if (kept > 0) allocator.copy_data(larger.get(), storage.data(), kept);
  storage.set_data_ptr(std::move(larger));
  storage.set_nbytes(bytes);
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return device::count; }
  DeviceIndex getCurrentDevice() const override { return this_device().index(); }
  void setCurrentDevice(DeviceIndex next) const override { device::set_current_device(next); }
  DeviceIndex exchangeDevice(DeviceIndex next) const override {
    const DeviceIndex before = getCurrentDevice();
    device::set_current_device(next);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex next) const override {
    return next < 0 ? getCurrentDevice() : exchangeDevice(next);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    return {kind, static_cast<DeviceIndex>(device::device_of(data))};
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

[[maybe_unused]] const bool hooked = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

at::Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> on, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(c10::device_or_default(on));
  return at::detail::empty_generic(size, &allocator,
                                   c10::DispatchKeySet(at::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> on, std::optional<bool>) {
  const c10::DeviceGuard guard(c10::device_or_default(on));
  return at::detail::empty_strided_generic(size, stride, &allocator,
                                           c10::DispatchKeySet(at::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

// A tensor's elements as a queue sees them.
class Seen {
 public:
  explicit Seen(const at::Tensor& tensor)
      : data_(tensor.numel() == 0 ? nullptr : const_cast<void*>(tensor.const_data_ptr())),
        sizes_(tensor.sizes().vec()),
        strides_(tensor.strides().vec()),
        options_(tensor.options().device(at::kCPU)),
        conjugated_(tensor.is_conj()),
        negated_(tensor.is_neg()) {}

  at::Tensor tensor(device::Core core) const {
    at::Tensor seen = at::from_blob(core.at(data_), sizes_, strides_, options_);
    seen._set_conj(conjugated_);
    seen._set_neg(negated_);
    return seen;
  }

 private:
  void* data_;
  std::vector<int64_t> sizes_, strides_;
  at::TensorOptions options_;
  bool conjugated_, negated_;
};

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& to, bool) {
  if (self.numel() == 0) return to;
  if (to.is_cpu()) {
    device::Queue& queue = queue_of(self);
    queue.launch([to, from = Seen(self)](device::Core core) { to.copy_(from.tensor(core)); });
    queue.wait();
  } else if (self.is_cpu()) {
    // What the host does with its memory from now on changes nothing.
    queue_of(to).launch([from = self.detach().clone(), to = Seen(to)](device::Core core) {
      to.tensor(core).copy_(from);
    });
  } else {
    if (self.device() != to.device()) queue_of(self).wait();
    queue_of(to).launch([from = Seen(self), to = Seen(to)](device::Core core) {
      to.tensor(core).copy_(from.tensor(core));
    });
    if (self.device() != to.device()) queue_of(to).wait();
  }
  return to;
}

// PyTorch's own resizing of what is not CUDA's copies on the host.
void resize_to(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  const size_t needed =
      at::detail::computeStorageNbytes(size, stride, self.element_size(), self.storage_offset());
  if (needed > self.storage().nbytes()) resize_storage(self.storage(), needed);
}

const at::Tensor& resized(const at::Tensor& self, at::IntArrayRef size,
                          std::optional<at::MemoryFormat>) {
  if (self.sizes() != size) resize_to(self, size, c10::contiguous_strides(size));
  return self;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& to) {
  resized(to, self.sizes(), std::nullopt);
  return copy_from(self, to, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  at::Tensor value = at::empty({}, self.options().device(at::kCPU));
  copy_from(self, value, false);
  return value.item();
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage storage, int64_t offset,
                               at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, storage, offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  if (stride.data() == nullptr) {
    resize_to(self, size, c10::contiguous_strides(size));
  } else {
    resize_to(self, size, stride);
  }
  return self;
}

void on_the_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("resize_", resized);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_.source_Storage", at::native::set_);
  m.impl("set_.source_Storage_storage_offset", set_storage_offset);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_the_host>());
}

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int npu_current_device() { return device::current_device(); }

__attribute__((visibility("default"))) void npu_set_device(int device) {
  device::set_current_device(device);
}

__attribute__((visibility("default"))) void npu_hold(int device, int64_t stream, bool held) {
  device::queue(device, stream).hold(held);
}

__attribute__((visibility("default"))) uint64_t npu_pushed(int device, int64_t stream) {
  return device::queue(device, stream).last();
}

__attribute__((visibility("default"))) void npu_tell_streams(bool told) { tells_streams = told; }

}  // extern "C"
