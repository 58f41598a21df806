// Calls an operator with values of tvm-ffi: reads the arguments, and gives the results as new
// tensors of the caller's library, or in the memory that follows the arguments.
#include <opsmith/detail/overlap.h>
#include <opsmith/hosted/copy.h>
#include <opsmith/hosted/memory.h>
#include <opsmith/hosted/run.h>

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <memory_resource>
#include <optional>
#include <vector>

#include "module.h"

namespace opsmith::tvm_ffi {
namespace {

namespace ffi = ::tvm::ffi;
using detail::join;
using hosted::Kind;

// tvm-ffi's name of an error is the exception's in Python.
[[noreturn]] void fail(const char* kind, const std::string& message) {
  throw ffi::Error(kind, message, "");
}

// By hosted::Status.
constexpr const char* error_kinds[] = {"", "ValueError", "RuntimeError", "MemoryError"};

// Describes a value as opsmith/signature/wrong_arguments.py does.
std::string shown(ffi::AnyView value) {
  if (const auto tensor = value.try_cast<::DLTensor*>()) {
    return join("a tensor of shape ", detail::show((*tensor)->shape, (*tensor)->ndim));
  }
  if (const auto text = value.try_cast<ffi::String>()) {
    return text->size() > 60 ? join("a str of ", text->size(), " characters")
                             : join("'", std::string_view(text->data(), text->size()), "' (str)");
  }
  switch (value.type_index()) {
    case kTVMFFINone:
      return "None";
    case kTVMFFIInt:
      return join(value.cast<int64_t>(), " (int)");
    case kTVMFFIBool:
      return value.cast<bool>() ? "True (bool)" : "False (bool)";
    case kTVMFFIFloat:
      return detail::show(value.cast<double>()) + " (float)";
    case kTVMFFIArray:
      return "of type list";
    default:
      return join("of type ", value.GetTypeKey());
  }
}

// Memory of results for callers whose library allocates none, as NumPy.
struct OwnMemory {
  void AllocData(::DLTensor* tensor) {
    const auto& dtype = reinterpret_cast<const DLDataType&>(tensor->dtype);
    tensor->data = hosted::memory_for(dtype, tensor->ndim, tensor->shape);
  }
  void FreeData(::DLTensor* tensor) { std::free(tensor->data); }
};

// A result of a call: a new tensor, or the memory that the caller passed.
struct Result {
  Result() {}  // leaves `view` as it is until it is needed

  const DLTensor* allocate(const Operator& op, const char* name, DLDataType dtype,
                           const ffi::ShapeView& shape) {
    const auto ndim = static_cast<int32_t>(shape.size());
    if (memory == nullptr) {
      const ::DLDataType type{dtype.code, dtype.bits, dtype.lanes};
      const ::DLDevice device{kDLCPU, 0};
      made = TVMFFIEnvGetDLPackManagedTensorAllocator() == nullptr
                 ? ffi::Tensor::FromNDAlloc(OwnMemory(), shape, type, device)
                 : ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, shape, type, device);
      return reinterpret_cast<const DLTensor*>(made->GetDLTensorPtr());
    }
    if (ndim == view.ndim && std::equal(shape.begin(), shape.end(), view.shape) &&
        detail::dtype_key(dtype) == detail::dtype_key(view.dtype)) {
      return &view;
    }
    fail("ValueError",
         join(op.name, ": the memory of the result '", name, "' has shape ",
              detail::show(view.shape, view.ndim), " and dtype ", detail::dtype_name(view.dtype),
              ", expected shape ", detail::show(shape.data(), ndim), " and dtype ",
              detail::dtype_name(dtype), "."));
  }

  std::optional<ffi::Tensor> made;
  const DLTensor* memory = nullptr;
  DLTensor view;  // of the memory, or of a copy
  hosted::Copy copy;
};

class Call {
 public:
  Call(const Operator& op, const TVMFFIAny* args, int32_t count) : op_(op), count_(count) {
    if (count != op.arguments && count != op.arguments + op.results) {
      fail("TypeError",
           join(op.name, ": takes ", op.arguments, " arguments, or ", op.arguments + op.results,
                " with the memory of its results, got ", count, "."));
    }
    given_ = room<opsmith_argument>(count);
    results_.reserve(static_cast<size_t>(op.results));
    for (int32_t i = 0; i < op.results; ++i) results_.emplace_back();
    for (int32_t i = 0; i < count; ++i) {
      parameter_ = &op.parameters[i];
      given_[i] = take(args[i]);
      if (i >= op.arguments) write_to(results_[static_cast<size_t>(i - op.arguments)], i);
    }
  }

  ffi::Any run() {
    const hosted::Outcome outcome =
        hosted::run(op_.entry, given_,
                    [&](int32_t position, DLDataType dtype, int32_t ndim, const int64_t* sizes) {
                      return results_[static_cast<size_t>(position)].allocate(
                          op_, op_.parameters[op_.arguments + position].name, dtype,
                          {sizes, static_cast<size_t>(ndim)});
                    });
    if (outcome.error) std::rethrow_exception(outcome.error);
    if (outcome.status != hosted::done) fail(error_kinds[outcome.status], outcome.message);
    if (count_ > op_.arguments) {
      for (const Result& result : results_) result.copy.give(*result.memory);
      return nullptr;
    }
    if (results_.size() < 2)
      return results_.empty() ? ffi::Any() : ffi::Any(std::move(*results_[0].made));
    ffi::Array<ffi::Tensor> several;
    for (const Result& result : results_) several.push_back(*result.made);
    return several;
  }

 private:
  // Memory until the end of the call; never null, which would mean None.
  template <typename T>
  T* room(int64_t count) {
    return static_cast<T*>(memory_.allocate(static_cast<size_t>(count + 1) * sizeof(T), 8));
  }

  std::string named(int64_t item) const {
    return join(op_.name, ": argument '", detail::item_name(parameter_->name, item), "' ");
  }
  [[noreturn]] void refuse(ffi::AnyView value, int64_t item) const {
    const char* expected = item < 0 ? parameter_->type : parameter_->item;
    fail("TypeError", join(named(item), "is ", shown(value), ", expected ", expected, "."));
  }

  // Reads the argument of `parameter_`.
  opsmith_argument take(const TVMFFIAny& any) {
    const ffi::AnyView value = ffi::AnyView::CopyFromTVMFFIAny(any);
    const Kind kind = parameter_->kind;
    if (any.type_index == kTVMFFINone && (parameter_->optional || kind == Kind::tensor)) {
      return {-1, nullptr};  // the check against the declaration reports a missing tensor
    }
    if (kind == Kind::text) {
      if (!value.try_cast<ffi::String>()) refuse(value, -1);
      if (any.type_index == kTVMFFIRawStr) {
        return {static_cast<int64_t>(std::strlen(any.v_c_str)), any.v_c_str};
      }
      const TVMFFIByteArray text = any.type_index == kTVMFFISmallStr
                                       ? TVMFFISmallBytesGetContentByteArray(&any)
                                       : *TVMFFIBytesGetByteArrayPtr(any.v_obj);
      return {static_cast<int64_t>(text.size), text.data};
    }
    if (parameter_->item[0] == '\0') {
      return read(1, [&](int64_t) { return value; });
    }
    if (any.type_index == kTVMFFIShape && kind == Kind::integers) {
      const TVMFFIShapeCell& shape = *TVMFFIShapeGetCellPtr(any.v_obj);
      return {static_cast<int64_t>(shape.size), shape.data};
    }
    const auto items = value.try_cast<ffi::Array<ffi::Any>>();
    if (!items) refuse(value, -1);
    const auto& several = *items;
    return read(static_cast<int64_t>(several.size()),
                [&](int64_t i) { return ffi::AnyView(several[i]); });
  }

  template <typename Get>
  opsmith_argument read(int64_t count, Get get) {
    switch (parameter_->kind) {
      case Kind::tensor:
      case Kind::tensors:
        return each<DLTensor>(count, get);
      case Kind::integer:
      case Kind::integers:
        return each<int64_t>(count, get);
      case Kind::floating:
      case Kind::floats:
        return each<double>(count, get);
      default:
        return each<uint8_t>(count, get);
    }
  }

  template <typename T, typename Get>
  opsmith_argument each(int64_t count, Get get) {
    T* const found = room<T>(count);
    for (int64_t i = 0; i < count; ++i) {
      const int64_t item = parameter_->item[0] == '\0' ? -1 : i;
      const ffi::AnyView value = get(i);
      if constexpr (std::is_same_v<T, DLTensor>) {
        found[i] = tensor(value, item);
      } else {
        const auto number =
            value.try_cast<std::conditional_t<std::is_same_v<T, uint8_t>, double, T>>();
        if (!number) refuse(value, item);
        found[i] = std::is_same_v<T, uint8_t> ? *number != 0 : static_cast<T>(*number);
      }
    }
    return {count, found};
  }

  DLTensor tensor(ffi::AnyView value, int64_t item) {
    const auto found = value.try_cast<::DLTensor*>();
    if (!found && (item < 0 || value != nullptr)) refuse(value, item);
    DLTensor tensor{};
    tensor.ndim = -1;  // None in a list, which the check against the declaration reports
    if (!found) return tensor;
    tensor = reinterpret_cast<const DLTensor&>(**found);
    if (tensor.ndim > detail::max_dims) {
      fail("ValueError", named(item) + "has more than 64 dimensions.");
    }
    if (!hosted::host_reads(tensor.device.device_type)) {
      fail("ValueError", join(named(item), "is on ", detail::show(tensor.device),
                              ", and this function runs on the CPU."));
    }
    tensor.device = {device_cpu, 0};
    tensor.data = static_cast<char*>(tensor.data) + std::exchange(tensor.byte_offset, 0);
    if (tensor.strides == nullptr) {
      tensor = detail::contiguous(tensor.data, tensor.device, tensor.dtype, tensor.shape,
                                  tensor.ndim, room<int64_t>(tensor.ndim));
    }
    if (!hosted::is_aligned(tensor) && detail::numel(tensor) > 0) {
      fail("ValueError", named(item) +
                             "does not begin at a multiple of its element's size in "
                             "memory. Pass a copy.");
    }
    return tensor;
  }

  // Makes the argument at `position` the memory of a result. The kernel writes into a copy if it
  // could otherwise read what it has written, or if the tensor is not contiguous.
  void write_to(Result& result, int32_t position) {
    if (given_[position].count < 0) {
      fail("TypeError",
           join(op_.name, ": the memory of the result '", parameter_->name, "' is None."));
    }
    result.memory = static_cast<const DLTensor*>(given_[position].items);
    result.view = *result.memory;
    detail::require_own_elements(op_.name, parameter_->name, -1, result.view);
    bool apart = detail::is_contiguous(result.view);
    for (int32_t i = 0; i < position; ++i) {
      if (op_.parameters[i].kind > Kind::tensors) continue;
      for (int64_t item = 0; item < given_[i].count; ++item) {
        const DLTensor& other = static_cast<const DLTensor*>(given_[i].items)[item];
        apart &= other.ndim < 0 || !detail::spans_meet(result.view, other);
      }
    }
    if (!apart) result.copy.take(result.view, parameter_->name);
  }

  const Operator& op_;
  const int32_t count_;
  const Parameter* parameter_ = nullptr;
  std::byte stack_[2048];
  std::pmr::monotonic_buffer_resource memory_{stack_, sizeof stack_};
  opsmith_argument* given_ = nullptr;
  std::pmr::vector<Result> results_{&memory_};
};

}  // namespace

int call(const Operator& op, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) noexcept {
  TVM_FFI_SAFE_CALL_BEGIN();
  try {
    *reinterpret_cast<ffi::Any*>(result) = Call(op, args, count).run();
  } catch (const call_error& error) {
    fail("ValueError", error.what());
  } catch (const std::bad_alloc&) {
    fail("MemoryError", join(op.name, ": there is no memory left"));
  }
  TVM_FFI_SAFE_CALL_END();
}

}  // namespace opsmith::tvm_ffi
