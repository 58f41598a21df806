// Reads the arguments of a call as PyTorch's values, and writes its results.
#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>
#include <emulated/runtime.h>
#include <emulated/vast.h>
#include <opsmith/detail/torch/adapter.h>
#include <opsmith/harness_torch.h>
#include <torch/library.h>

#include "device.h"

#include <cstring>
#include <deque>
#include <exception>
#include <string>
#include <vector>

namespace opsmith::harness {

namespace {

at::ScalarType dtype_of(DLDataType dtype) {
  return static_cast<at::ScalarType>(aten::numbers().torch_dtype(dtype));
}

DLDataType dtype_of(at::ScalarType type) {
  const DLDataType dtype = aten::numbers().dtypes[static_cast<size_t>(type)];
  TORCH_CHECK(detail::dtype_bit(dtype) < 31, "a result of dtype ", type,
              ", which the checks do not read");
  return dtype;
}

at::Tensor tensor_of(const DLTensor& given) {
  const at::IntArrayRef sizes(given.shape, static_cast<size_t>(given.ndim));
  const at::IntArrayRef strides(given.strides, static_cast<size_t>(given.ndim));
  const at::Tensor host =
      at::from_blob(given.data, sizes, strides, at::TensorOptions().dtype(dtype_of(given.dtype)));
  return emulated::on_device(host);
}

template <typename Raw>
Raw read(Runtime& runtime) {
  Raw raw;
  runtime.read(raw);
  return raw;
}

template <typename Value, typename Raw>
c10::List<Value> read_values(Runtime& runtime, bool& present) {
  const auto raw = read<Raw>(runtime);
  present = raw.count >= 0;
  c10::List<Value> values;
  for (int64_t i = 0; i < raw.count; ++i) values.push_back(static_cast<Value>(raw.items[i]));
  return values;
}

c10::IValue read_list(Runtime& runtime, const c10::Type& element, bool& present) {
  present = true;
  switch (element.kind()) {
    case c10::TypeKind::TensorType: {
      const auto raw = read<raw_tensors>(runtime);
      present = raw.count >= 0;
      c10::List<at::Tensor> tensors;
      for (int64_t i = 0; i < raw.count; ++i) tensors.push_back(tensor_of(raw.items[i]));
      return tensors;
    }
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::IntType:
      return read_values<int64_t, raw_ints>(runtime, present);
    case c10::TypeKind::FloatType:
      return read_values<double, raw_floats>(runtime, present);
    case c10::TypeKind::BoolType:
      return read_values<bool, raw_bools>(runtime, present);
    default:
      TORCH_CHECK(false, "a list of ", element.str(), ", which the checks do not pass");
  }
}

template <typename Value, typename Raw, typename RawOptional>
c10::IValue read_scalar(Runtime& runtime, bool optional) {
  if (!optional) return static_cast<Value>(read<Raw>(runtime));
  const auto raw = read<RawOptional>(runtime);
  return raw.present != 0 ? c10::IValue(static_cast<Value>(raw.value)) : c10::IValue();
}

c10::IValue read_value(Runtime& runtime, const c10::Type& type, bool optional) {
  switch (type.kind()) {
    case c10::TypeKind::OptionalType:
      return read_value(runtime, *type.castRaw<c10::OptionalType>()->getElementType(), true);
    case c10::TypeKind::TensorType: {
      const auto* raw = read<const DLTensor*>(runtime);
      return raw == nullptr ? c10::IValue() : c10::IValue(tensor_of(*raw));
    }
    case c10::TypeKind::ListType: {
      bool present = true;
      const c10::IValue list =
          read_list(runtime, *type.castRaw<c10::ListType>()->getElementType(), present);
      return present ? list : c10::IValue();
    }
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::IntType:
      return read_scalar<int64_t, int64_t, raw_optional_int>(runtime, optional);
    case c10::TypeKind::FloatType:
      return read_scalar<double, double, raw_optional_float>(runtime, optional);
    case c10::TypeKind::BoolType:
      return read_scalar<bool, uint8_t, raw_optional_bool>(runtime, optional);
    case c10::TypeKind::StringType: {
      const auto raw = read<raw_string>(runtime);
      if (raw.data == nullptr) return {};
      return std::string(raw.data, static_cast<size_t>(raw.size));
    }
    default:
      TORCH_CHECK(false, "an argument of type ", type.str(), ", which the checks do not pass");
  }
}

void write_result(Runtime& runtime, int32_t position, const at::Tensor& result) {
  TORCH_CHECK(result.defined(), "the kernel returned an undefined tensor");
  TORCH_CHECK(result.device().type() == emulated::kDeviceType, "the kernel returned a tensor on ",
              result.device(), " for tensors on ", emulated::kDeviceName);
  const at::Tensor host = emulated::on_host(result).contiguous();
  const DLTensor* place = runtime.result(position, dtype_of(host.scalar_type()),
                                         static_cast<int32_t>(host.dim()), host.sizes().data());
  // The results of a vast call are not read.
  if (host.nbytes() == 0 || runtime.seed() == vast::ends_only) return;
  std::memcpy(place->data, host.const_data_ptr(), host.nbytes());
}

void call(Runtime& runtime, const TorchOperator& named) {
  for (const char* problem :
       {named.problem != nullptr ? named.problem() : nullptr,
        named.become_kernel != nullptr ? named.become_kernel(named.ns, named.name) : nullptr}) {
    TORCH_CHECK(problem == nullptr, problem);
  }
  const std::string name = std::string(named.ns) + "::" + named.name;
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
  TORCH_CHECK(op.hasKernelForDispatchKey(emulated::kDeviceKey),
              "the source registers no kernel of ", name, " for ", emulated::kDeviceKey);
  torch::jit::Stack stack;
  for (const c10::Argument& argument : op.schema().arguments()) {
    stack.push_back(read_value(runtime, *argument.type(), false));
  }
  op.callBoxed(&stack);
  const emulated::Unwatched unwatched;
  int32_t position = 0;
  for (const c10::IValue& result : stack) write_result(runtime, position++, result.toTensor());
}

}  // namespace

void define_operator(const TorchOperator& op) {
  static std::deque<torch::Library> definitions;
  const std::string name = std::string(op.ns) + "::" + op.name;
  if (c10::Dispatcher::singleton().findSchema({name, ""}).has_value()) return;
  definitions.emplace_back(torch::Library::FRAGMENT, op.ns, std::nullopt, __FILE__, __LINE__);
  definitions.back().def(op.schema);
}

std::string call_operator(Runtime& runtime, const TorchOperator& op) {
  at::set_num_threads(1);
  const emulated::DeviceCall device(runtime.fill(), runtime.seed() == vast::ends_only);
  const at::AutoDispatchBelowADInplaceOrView below;
  try {
    call(runtime, op);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

}  // namespace opsmith::harness
