// Everything that a kernel author includes, beside the header that opsmith writes from the
// operator's declaration:
//
//     #include <opsmith/kernel.h>
//     #include "scale.h"
//
//     template <typename T>
//     void scale(const opsmith::Context& ctx, const my_ops::scale_args<T>& a) {
//       ctx.parallel_for(0, a.x.numel(), 4096, [&](int64_t begin, int64_t end) {
//         for (int64_t i = begin; i < end; ++i) a.out[i] = a.x[i] * static_cast<T>(a.factor);
//       });
//     }
//     OPSMITH_KERNEL(my_ops, scale, cpu, float, double, opsmith::half)
//
// Arguments arrive validated: shapes, dtypes, devices and value ranges are as declared. They are
// contiguous unless the kernel was registered as strided; results are allocated, contiguous and
// uninitialised. An exception that leaves the kernel becomes the call's error.
#pragma once

#include <torch/headeronly/util/Float8_e4m3fn.h>
#include <torch/headeronly/util/Float8_e5m2.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <concepts>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <opsmith/abi.h>
#include <opsmith/math.h>

#define OPSMITH_EXPORT __attribute__((visibility("default"), used))

namespace opsmith {

using float8_e4m3fn = c10::Float8_e4m3fn;
using float8_e5m2 = c10::Float8_e5m2;

// Division and remainder that round towards negative infinity, as Python's // and % do.
OPSMITH_HOST_DEVICE constexpr int64_t floor_div(int64_t a, int64_t b) {
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
OPSMITH_HOST_DEVICE constexpr int64_t floor_mod(int64_t a, int64_t b) {
  return a - floor_div(a, b) * b;
}

namespace detail {

constexpr uint32_t dtype_key(DLDataType type) {
  return static_cast<uint32_t>(type.code) << 8 | type.bits;
}

template <typename T>
struct dtype_traits;

#define OPSMITH_DTYPE(type, code_, bits_, name_)                  \
  template <>                                                     \
  struct dtype_traits<type> {                                     \
    static constexpr DLDataType value = {code_, bits_, 1};        \
    static constexpr uint32_t key = dtype_key({code_, bits_, 1}); \
    static constexpr const char* name = name_;                    \
  };
OPSMITH_DTYPE(bool, 6, 8, "bool")
OPSMITH_DTYPE(uint8_t, 1, 8, "uint8")
OPSMITH_DTYPE(int8_t, 0, 8, "int8")
OPSMITH_DTYPE(int16_t, 0, 16, "int16")
OPSMITH_DTYPE(int32_t, 0, 32, "int32")
OPSMITH_DTYPE(int64_t, 0, 64, "int64")
OPSMITH_DTYPE(half, 2, 16, "float16")
OPSMITH_DTYPE(bfloat16, 4, 16, "bfloat16")
OPSMITH_DTYPE(float, 2, 32, "float32")
OPSMITH_DTYPE(double, 2, 64, "float64")
OPSMITH_DTYPE(complex64, 5, 64, "complex64")
OPSMITH_DTYPE(complex128, 5, 128, "complex128")
OPSMITH_DTYPE(float8_e4m3fn, 10, 8, "float8_e4m3fn")
OPSMITH_DTYPE(float8_e5m2, 12, 8, "float8_e5m2")
OPSMITH_DTYPE(uint16_t, 1, 16, "uint16")
OPSMITH_DTYPE(uint32_t, 1, 32, "uint32")
OPSMITH_DTYPE(uint64_t, 1, 64, "uint64")
#undef OPSMITH_DTYPE

constexpr const char* dtype_name(DLDataType type) {
  switch (dtype_key(type)) {
    case dtype_traits<bool>::key:
      return "bool";
    case dtype_traits<uint8_t>::key:
      return "uint8";
    case dtype_traits<int8_t>::key:
      return "int8";
    case dtype_traits<int16_t>::key:
      return "int16";
    case dtype_traits<int32_t>::key:
      return "int32";
    case dtype_traits<int64_t>::key:
      return "int64";
    case dtype_traits<half>::key:
      return "float16";
    case dtype_traits<bfloat16>::key:
      return "bfloat16";
    case dtype_traits<float>::key:
      return "float32";
    case dtype_traits<double>::key:
      return "float64";
    case dtype_traits<complex64>::key:
      return "complex64";
    case dtype_traits<complex128>::key:
      return "complex128";
    case dtype_traits<float8_e4m3fn>::key:
      return "float8_e4m3fn";
    case dtype_traits<float8_e5m2>::key:
      return "float8_e5m2";
    case dtype_traits<uint16_t>::key:
      return "uint16";
    case dtype_traits<uint32_t>::key:
      return "uint32";
    case dtype_traits<uint64_t>::key:
      return "uint64";
    // What a runtime may pass though no declaration can name it: only messages see these.
    case 5 << 8 | 32:
      return "complex32";
    case 11 << 8 | 8:
      return "float8_e4m3fnuz";
    case 13 << 8 | 8:
      return "float8_e5m2fnuz";
    default:
      return "unknown";
  }
}

// One part of a message. Whatever the parts are, one function puts them together: messages are
// many, and a function for each would take longer to compile than the kernel.
class Part {
 public:
  template <std::convertible_to<std::string_view> Text>
  Part(const Text& text) : text_(text) {}
  Part(bool value) : text_(value ? "true" : "false") {}
  template <std::integral Value>
  Part(Value value) {
    if constexpr (std::is_signed_v<Value>) {
      write("%lld", static_cast<long long>(value));
    } else {
      write("%llu", static_cast<unsigned long long>(value));
    }
  }
  template <std::floating_point Value>
  Part(Value value) {
    write("%g", static_cast<double>(value));
  }
  Part(const Part&) = delete;  // the text may be its own

  std::string_view text() const { return text_; }

 private:
  template <typename Value>
  __attribute__((cold, noinline)) void write(const char* format, Value value) {
    text_ = {buffer_, static_cast<size_t>(std::snprintf(buffer_, sizeof buffer_, format, value))};
  }

  std::string_view text_;
  char buffer_[32];
};

__attribute__((cold, noinline)) inline std::string join_parts(std::initializer_list<Part> parts) {
  std::string text;
  for (const Part& part : parts) text += part.text();
  return text;
}

template <typename... Parts>
__attribute__((cold)) std::string join(const Parts&... parts) {
  return join_parts({Part(parts)...});
}

}  // namespace detail

// A view of one tensor. `T` is const for an argument that the operator does not write.
template <typename T>
class Tensor {
 public:
  using value_type = std::remove_const_t<T>;

  Tensor() = default;
  explicit Tensor(const DLTensor* tensor) {
    if (tensor == nullptr) return;
    data_ = static_cast<T*>(tensor->data);
    sizes_ = tensor->shape;
    strides_ = tensor->strides;
    dim_ = tensor->ndim;
    present_ = true;
  }

  // False for an optional argument for which None was passed.
  explicit operator bool() const { return present_; }

  T* data() const { return data_; }
  int64_t dim() const { return dim_; }
  int64_t size(int64_t i) const { return sizes_[i]; }
  int64_t stride(int64_t i) const { return strides_[i]; }  // in elements
  std::span<const int64_t> sizes() const { return {sizes_, static_cast<size_t>(dim_)}; }
  std::span<const int64_t> strides() const { return {strides_, static_cast<size_t>(dim_)}; }
  int64_t numel() const {
    int64_t count = present_ ? 1 : 0;
    for (int64_t i = 0; i < dim_; ++i) count *= sizes_[i];
    return count;
  }

  // The i-th element in memory order; what one wants of a contiguous tensor.
  T& operator[](int64_t i) const { return data_[i]; }

  // The element at an index per dimension, by the tensor's strides.
  template <std::integral... Index>
    requires(sizeof...(Index) > 0)
  T& operator()(Index... index) const {
    int64_t offset = 0;
    int64_t dimension = 0;
    ((offset += static_cast<int64_t>(index) * strides_[dimension++]), ...);
    return data_[offset];
  }
  T& operator()() const { return *data_; }

 private:
  T* data_ = nullptr;
  const int64_t* sizes_ = nullptr;
  const int64_t* strides_ = nullptr;
  int64_t dim_ = 0;
  bool present_ = false;
};

// A tensor whose dtype the declaration leaves open (a plain `Tensor`); see `dispatch`.
class AnyTensor {
 public:
  AnyTensor() = default;
  explicit AnyTensor(const DLTensor* tensor) : tensor_(tensor) {}

  explicit operator bool() const { return tensor_ != nullptr; }
  DLDataType dtype() const { return tensor_->dtype; }
  const char* dtype_name() const { return detail::dtype_name(tensor_->dtype); }
  template <typename T>
  bool is() const {
    return detail::dtype_key(tensor_->dtype) == detail::dtype_traits<std::remove_const_t<T>>::key;
  }
  int64_t dim() const { return tensor_->ndim; }
  int64_t size(int64_t i) const { return tensor_->shape[i]; }
  int64_t numel() const { return Tensor<const char>(tensor_).numel(); }

  // The tensor with its element type; throws when it has another one.
  template <typename T>
  Tensor<T> as() const {
    if (!is<T>()) {
      throw std::runtime_error(detail::join("a tensor of dtype ", dtype_name(), " was read as ",
                                            detail::dtype_traits<std::remove_const_t<T>>::name));
    }
    return Tensor<T>(tensor_);
  }

 private:
  const DLTensor* tensor_ = nullptr;
};

// A list of tensors; `View` is Tensor<T> or AnyTensor.
template <typename View>
class List {
 public:
  explicit List(raw_tensors list)
      : items_(list.items), count_(std::max<int64_t>(list.count, 0)), present_(list.count >= 0) {}

  // False for an optional argument for which None was passed.
  explicit operator bool() const { return present_; }
  int64_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  View operator[](int64_t i) const { return View(items_ + i); }

 private:
  const DLTensor* items_;
  int64_t count_;
  bool present_;
};
template <typename T>
using TensorList = List<Tensor<T>>;

// The runtime that this call runs in.
class Context {
 public:
  explicit Context(const opsmith_context* context) : context_(context) {}

  // Calls body(begin, end) on pieces of [begin, end), on the runtime's threads. `grain` is what is
  // worth a thread's while: pieces are about that large or larger, and a result must not depend on
  // where they begin and end. An exception in one piece comes out of parallel_for; pieces not yet
  // begun are then skipped.
  template <typename Body>
  void parallel_for(int64_t begin, int64_t end, int64_t grain, Body&& body) const {
    if (begin >= end) return;
    grain = std::max<int64_t>(grain, 1);
#ifdef OPSMITH_ANY_GRAIN  // the checks cut small loops too
    const bool whole = false;
#else
    const bool whole = end - begin <= grain;
#endif
    if (whole || context_->parallel_for == nullptr) {
      body(begin, end);
      return;
    }
    struct State {
      std::remove_reference_t<Body>* body;
      std::atomic<bool> failed{false};
      std::exception_ptr error;
    } state;
    state.body = &body;
    context_->parallel_for(
        context_->self, begin, end, grain,
        [](int64_t first, int64_t last, void* opaque) {
          State& shared = *static_cast<State*>(opaque);
          if (shared.failed.load(std::memory_order_relaxed)) return;
          try {
            (*shared.body)(first, last);
          } catch (...) {
            if (!shared.failed.exchange(true)) shared.error = std::current_exception();
          }
        },
        &state);
    if (state.error) std::rethrow_exception(state.error);
  }

  int num_threads() const { return context_->num_threads(context_->self); }

  // Uninitialised memory on the call's device, freed after the call.
  template <typename T>
  std::span<T> scratch(int64_t count) const {
    static_assert(std::is_trivially_destructible_v<T>, "scratch memory is freed, not destroyed");
    if (count <= 0) return {};
    void* memory =
        static_cast<uint64_t>(count) > UINT64_MAX / sizeof(T)
            ? nullptr
            : context_->scratch(context_->self, static_cast<uint64_t>(count) * sizeof(T));
    if (memory == nullptr) fail("no memory for ", count, " elements of scratch");
    return {static_cast<T*>(memory), static_cast<size_t>(count)};
  }

  // The device's stream (a cudaStream_t on CUDA); null on the CPU. Fails where opsmith knows none.
  void* stream() const {
    return context_->stream == nullptr ? nullptr : context_->stream(context_->self);
  }

  // Ends the call with an error: "namespace::name: " and the parts, one after the other.
  template <typename... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw std::runtime_error(detail::join(parts...));
  }

  const opsmith_context* raw() const { return context_; }

 private:
  const opsmith_context* context_;
};

// A result whose size the kernel finds out (`data_dependent` in the declaration), or whose shape is
// not declared. Exactly one allocate per call.
class AnyOutput {
 public:
  AnyOutput(const Context& context, int32_t result) : context_(context.raw()), result_(result) {}

  template <typename T>
  Tensor<T> allocate(std::span<const int64_t> sizes) const {
    DLTensor tensor;
    if (context_->allocate(context_->self, result_, detail::dtype_traits<T>::value,
                           static_cast<int32_t>(sizes.size()), sizes.data(), &tensor) != 0) {
      throw allocation_failed();
    }
    return Tensor<T>(&tensor);
  }
  template <typename T>
  Tensor<T> allocate(std::initializer_list<int64_t> sizes) const {
    return allocate<T>(std::span<const int64_t>(sizes.begin(), sizes.size()));
  }

  // The runtime already knows why.
  struct allocation_failed {};

 private:
  const opsmith_context* context_;
  int32_t result_;
};

template <typename T>
class Output {
 public:
  Output(const Context& context, int32_t result) : output_(context, result) {}

  Tensor<T> allocate(std::span<const int64_t> sizes) const {
    return output_.template allocate<T>(sizes);
  }
  Tensor<T> allocate(std::initializer_list<int64_t> sizes) const {
    return output_.template allocate<T>(sizes);
  }

 private:
  AnyOutput output_;
};

namespace detail {

template <typename... Types>
std::string dtype_names() {
  std::string names;
  ((names += names.empty() ? "" : ", ", names += dtype_traits<Types>::name), ...);
  return names;
}

}  // namespace detail

// Calls body.operator()<T>() with the one of Types that `type` names; with the first of them where
// no argument of the call fixed a dtype.
template <typename... Types, typename Body>
void dispatch(DLDataType type, const char* device, Body&& body) {
  constexpr uint32_t keys[] = {detail::dtype_traits<Types>::key...};
  const uint32_t key = type.lanes == 0 ? keys[0] : detail::dtype_key(type);
  const bool found =
      ((key == detail::dtype_traits<Types>::key ? (body.template operator()<Types>(), true)
                                                : false) ||
       ...);
  if (!found) {
    throw std::runtime_error(detail::join("the ", device, " kernel has no ",
                                          detail::dtype_name(type), "; it has ",
                                          detail::dtype_names<Types...>()));
  }
}

namespace detail {

inline void fail(const opsmith_context* context, std::string_view message) {
  context->fail(context->self, message.data(), message.size());
}

// Throws where the caller's structs are not those that this kernel was compiled with. `Raw` is the
// operator's; only the heads of both structs are read.
template <typename Raw>
void require_same_interface(const raw_head& caller, const opsmith_context& context) {
  // A caller of a later release may have more fields at the end of the context.
  const bool same = caller.version == interface_version && context.version == interface_version;
  if (same && context.size >= sizeof(opsmith_context) && caller.size == sizeof(Raw)) [[likely]] {
    return;
  }
  const std::string_view kernel = Raw::opsmith_release;
  if (same && context.size >= sizeof(opsmith_context)) {
    throw std::runtime_error(
        join("the kernel was compiled for arguments that take ", sizeof(Raw),
             " bytes, and is called with ", caller.size,
             ": the operator's declaration has changed since. Build the kernel's library "
             "again."));
  }
  const std::string_view release = caller.opsmith;
  throw std::runtime_error(join("the kernel's library was built by opsmith ", kernel,
                                " (kernel interface ", interface_version, ", a context of ",
                                sizeof(opsmith_context), " bytes), and is called by opsmith ",
                                release, " (kernel interface ", caller.version, ", a context of ",
                                context.size, " bytes). Build the library again with opsmith ",
                                release, ", or call it by opsmith ", kernel, "."));
}

// Runs a kernel for the C interface, which no exception may cross.
template <typename Raw, typename Body>
int32_t enter(const Raw* raw, const opsmith_context* context, Body&& body) noexcept {
  try {
    require_same_interface<Raw>(raw->opsmith_head, *context);
    body(Context(context));
    return 0;
  } catch (const AnyOutput::allocation_failed&) {
  } catch (const std::bad_alloc&) {
    fail(context, "out of memory");
  } catch (const std::exception& error) {
    fail(context, error.what());
  } catch (...) {
    fail(context, "the kernel threw something that is not a std::exception");
  }
  return 1;
}

}  // namespace detail

}  // namespace opsmith

#define OPSMITH_JOIN_(prefix, ns, op, device) prefix##__##ns##__##op##__##device
#define OPSMITH_JOIN(prefix, ns, op, device) OPSMITH_JOIN_(prefix, ns, op, device)

// Makes the function `op` the kernel of ns::op on `device`, for the element types that follow (none
// where the declaration has no generic dtype). Exports, with C linkage:
//   opsmith_kernel__ns__op__device   the entry point
//   opsmith_dtypes__ns__op__device   the element types' names, separated by ", "
//   opsmith_calls__ns__op__device    how often the entry point was called
#define OPSMITH_KERNEL(ns, op, device, ...)                                              \
  extern "C" {                                                                           \
  OPSMITH_EXPORT std::atomic<uint64_t> OPSMITH_JOIN(opsmith_calls, ns, op, device){0};   \
  OPSMITH_EXPORT const char* OPSMITH_JOIN(opsmith_dtypes, ns, op, device)() {            \
    static const std::string names = opsmith::detail::dtype_names<__VA_ARGS__>();        \
    return names.c_str();                                                                \
  }                                                                                      \
  OPSMITH_EXPORT int32_t OPSMITH_JOIN(opsmith_kernel, ns, op,                            \
                                      device)(const ns##__##op##_raw* raw,               \
                                              const opsmith::opsmith_context* context) { \
    OPSMITH_JOIN(opsmith_calls, ns, op, device).fetch_add(1, std::memory_order_relaxed); \
    return opsmith::detail::enter(raw, context, [raw](const opsmith::Context& ctx) {     \
      OPSMITH_RUN_##__VA_OPT__(GENERIC)(ns, op, device __VA_OPT__(, ) __VA_ARGS__)       \
    });                                                                                  \
  }                                                                                      \
  }

#define OPSMITH_RUN_(ns, op, device) op(ctx, ns::op##_args(*raw, ctx));
#define OPSMITH_RUN_GENERIC(ns, op, device, ...)                                     \
  opsmith::dispatch<__VA_ARGS__>(raw->opsmith_dtype, #device, [&]<typename Type>() { \
    op<Type>(ctx, ns::op##_args<Type>(*raw, ctx));                                   \
  });
