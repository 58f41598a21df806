// The base of every operator's generated `<op>_check.h`: binds dimensions, compares dtypes, devices
// and shapes, and writes the messages. Adapters of all runtimes share it. The messages are those of
// opsmith/signature/binding.py; a test compares them.
#pragma once

#include <opsmith/detail/args.h>
#include <opsmith/detail/constraints.h>
#include <opsmith/detail/show.h>
#include <opsmith/detail/sizes.h>

#include <functional>
#include <utility>

#define OPSMITH_COLD [[noreturn]] __attribute__((cold, noinline))
#define OPSMITH_INLINE __attribute__((always_inline)) inline

namespace opsmith {

// The error of a call with its complete message, which begins with the operator's name.
struct call_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace detail {

inline constexpr int64_t unbound = -1;

// The origin of a tensor: an argument, or an element of a list argument.
struct Where {
  const char* name;
  int64_t position = -1;

  std::string text() const {
    return position < 0 ? join("'", name, "'") : join("'", name, "[", position, "]'");
  }
};

struct Variadic {
  const int64_t* sizes = nullptr;  // null: not bound yet
  int64_t count = 0;
};

// The dtypes of which each call chooses one, and the rule for the tensors that have it.
struct DtypeVariable {
  uint32_t bits;
  const char* shared;
};

// The sizes, dtypes and device that a call has fixed so far: `N` named dimensions, `V` names that
// stand for any number of dimensions, and `D` dtype variables.
template <int N, int V, int D>
class Binder {
 public:
  Binder(const char* op, const char* const* names, const char* const* variadic_names)
      : op_(op), names_(names), variadic_names_(variadic_names) {
    for (int64_t& dim : dims_) dim = unbound;
  }

  int64_t dim(int index) const { return dims_[index]; }
  const Variadic& variadic(int index) const { return variadics_[index]; }
  DLDataType dtype(int index) const { return dtypes_[index]; }
  const char* op() const { return op_; }
  // The device of the call's tensors, or the CPU without tensors.
  DLDevice device() const { return device_; }

  OPSMITH_INLINE void length(const char* name, int64_t count, int64_t expected) const {
    if (count != expected) [[unlikely]]
      wrong_length(name, count, expected);
  }

  OPSMITH_INLINE void some(const char* name, int64_t count, const char* fixed) const {
    if (count == 0) [[unlikely]]
      no_tensors(name, fixed);
  }

  void choice(const char* name, raw_string value,
              std::initializer_list<std::string_view> choices) const {
    const std::string_view text = to_string(value);
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return;
    std::string all;
    for (const std::string_view choice : choices)
      all += join(all.empty() ? "'" : ", '", choice, "'");
    fail(join("argument '", name, "' is '", text, "', expected one of ", all, "."));
  }

  OPSMITH_INLINE void memory(Where where, const DLTensor& tensor) const {
    if (tensor.data == nullptr) [[unlikely]]
      without_memory(where, tensor);
  }

  OPSMITH_INLINE void same_device(Where where, const DLTensor& tensor) {
    if (device_by_.name == nullptr) {
      device_ = tensor.device;
      device_by_ = where;
    } else if (tensor.device.device_type != device_.device_type ||
               tensor.device.device_id != device_.device_id) [[unlikely]] {
      other_device(where, tensor);
    }
  }

  OPSMITH_INLINE void concrete_dtype(Where where, const DLTensor& tensor, DLDataType expected) {
    if (dtype_key(tensor.dtype) != dtype_key(expected)) [[unlikely]]
      wrong_dtype(where, tensor, dtype_name(expected));
  }

  // Binds dtype variable `index`, or compares the dtype with the bound one. For a complex tensor
  // the variable is the real dtype of its precision.
  OPSMITH_INLINE void chosen_dtype(Where where, const DLTensor& tensor, int index,
                                   const DtypeVariable& variable, const char* expected,
                                   bool is_complex) {
    const DLDataType given = is_complex ? real_dtype(tensor.dtype) : tensor.dtype;
    DLDataType& bound = dtypes_[index];
    if (dtypes_by_[index].name == nullptr) {
      if ((variable.bits >> dtype_bit(given) & 1) == 0) [[unlikely]]
        wrong_dtype(where, tensor, expected, "one of ");
      bound = given;
      dtypes_by_[index] = where;
    } else if (dtype_key(given) != dtype_key(bound)) [[unlikely]] {
      other_dtype(where, tensor, index, is_complex ? complex_dtype(bound) : bound, variable);
    }
  }

  OPSMITH_INLINE void rank(Where where, const DLTensor& tensor, int32_t expected, bool at_least,
                           const char* type) {
    if (at_least ? tensor.ndim < expected : tensor.ndim != expected) [[unlikely]]
      wrong_rank(where, tensor, expected, at_least, type);
  }

  // Binds dimension `index`, or compares the size with the bound one.
  OPSMITH_INLINE void named(Where where, const DLTensor& tensor, int64_t axis, int index,
                            const char* type) {
    const int64_t size = tensor.shape[axis];
    if (dims_[index] == unbound) {
      dims_[index] = size;
      dims_by_[index] = where;
      order_[bound_++] = index;
    } else if (dims_[index] != size) [[unlikely]] {
      wrong_size(where, tensor, axis, index, type);
    }
  }

  OPSMITH_INLINE void variadic(Where where, const DLTensor& tensor, int64_t axis, int64_t count,
                               int index, const char* type) {
    Variadic& bound = variadics_[index];
    if (bound.sizes == nullptr) {
      // Without dimensions there may be no array to point at; any address marks the name as bound.
      static constexpr int64_t none = 0;
      bound = {tensor.shape == nullptr ? &none : tensor.shape + axis, count};
      variadics_by_[index] = where;
      order_[bound_++] = N + index;
    } else if (bound.count != count ||
               !std::equal(bound.sizes, bound.sizes + count, tensor.shape + axis)) [[unlikely]] {
      wrong_sizes(where, tensor, axis, count, index, type);
    }
  }

  // Compares a dimension that is an expression, once every name is bound. `text` is null for an
  // integer.
  OPSMITH_INLINE void expression(Where where, const DLTensor& tensor, int64_t axis,
                                 int64_t expected, const char* text, const char* type) const {
    if (tensor.shape[axis] != expected) [[unlikely]]
      wrong_expression(where, tensor, axis, expected, text, type);
  }

  // Binds dimension `index`, of which a size is `factor` times as large plus `rest`, or compares
  // the size if another argument has bound it. `factor_text` is null for a number.
  OPSMITH_INLINE void solved(Where where, const DLTensor& tensor, int64_t axis, int index,
                             int64_t factor, int64_t rest, const char* factor_text,
                             const char* text, const char* type) {
    if (dims_[index] != unbound) {
      return expression(where, tensor, axis, add(mul(factor, dims_[index]), rest), text, type);
    }
    const int64_t product = sub(tensor.shape[axis], rest);
    if (factor == 0 || mod(product, factor) != 0 || div(product, factor) < 0) [[unlikely]]
      unsolved(where, tensor, axis, index, factor, rest, factor_text, text, type);
    dims_[index] = div(product, factor);
    dims_by_[index] = where;
    order_[bound_++] = index;
  }

  template <typename Value>
  OPSMITH_INLINE void scalar(Where where, Value value, const Range& range) const {
    if (!range.admits(value)) [[unlikely]]
      outside(where, value, range);
  }

  // Compares the two numbers that `sides` returns. `dims` are the dimensions that they depend on.
  template <typename Sides, typename Compare>
  OPSMITH_INLINE void satisfies(const char* text, const char* sign, std::initializer_list<int> dims,
                                Sides&& sides, Compare&& compare) const {
    try {
      const auto [left, right] = sides();
      if (compare(left, right)) [[likely]]
        return;
      unsatisfied(text, join(": ", left, " ", sign, " ", right, " is false."), dims);
    } catch (const zero_division&) {
      unsatisfied(text, ", which divides by zero.", dims);
    }
  }

  // Appends a size of a result.
  OPSMITH_INLINE void result(Sizes& sizes, int64_t size, const char* text, const char* type) const {
    if (size < 0) [[unlikely]]
      negative(size, text, type);
    if (sizes.count == max_dims) [[unlikely]]
      too_many(type);
    sizes.values[sizes.count++] = size;
  }
  void result(Sizes& sizes, const Variadic& more, const char* type) const {
    if (sizes.count + more.count > max_dims) too_many(type);
    for (int64_t i = 0; i < more.count; ++i) sizes.values[sizes.count++] = more.sizes[i];
  }

  // Compares the memory that a kernel allocates for a data-dependent result.
  static void allocated_rank(const char* name, const char* type, int32_t ndim, int64_t expected) {
    if (ndim != expected) {
      throw std::runtime_error(join("the kernel allocated the result '", name, "' with ", ndim,
                                    " dimensions, expected ", expected, " for ", type, "."));
    }
  }
  static void allocated_dtype(const char* name, DLDataType dtype, DLDataType expected) {
    if (dtype_key(dtype) != dtype_key(expected)) {
      throw std::runtime_error(join("the kernel allocated the result '", name, "' with dtype ",
                                    dtype_name(dtype), ", expected ", dtype_name(expected), "."));
    }
  }
  static void allocated(const char* name, const char* type, const int64_t* sizes, int32_t ndim,
                        int64_t axis, int64_t expected) {
    if (sizes[axis] != expected) {
      throw std::runtime_error(join("the kernel allocated the result '", name, "' with shape ",
                                    show(sizes, ndim), ", but dimension ", axis, " of ", type,
                                    " is ", expected, "."));
    }
  }

  // "argument 'x': ", for the message of a kernel without the dtypes that these arguments chose.
  std::string chosen_by() const {
    std::string names;
    for (int i = 0; i < D; ++i) {
      if (dtypes_by_[i].name == nullptr) continue;
      names += join(names.empty() ? "argument " : ", ", dtypes_by_[i].text());
    }
    return names.empty() ? names : names + ": ";
  }

  // "B=1, N=6", in the order in which they were bound.
  std::string bound_text() const {
    std::string text;
    for (int i = 0; i < bound_; ++i) {
      if (i) text += ", ";
      const int index = order_[i];
      if (index >= N) {
        const Variadic& bound = variadics_[index - N];
        text += join("*", variadic_names_[index - N], "=", show(bound.sizes, bound.count));
      } else if constexpr (N > 0) {
        text += join(names_[index], "=", dims_[index]);
      }
    }
    return text;
  }

  OPSMITH_COLD void absent(Where where, const char* type) const {
    fail(join("argument ", where.text(), " is None, expected ", type, "."));
  }

  OPSMITH_COLD void fail(std::string first, const DLTensor* tensor = nullptr,
                         const std::string& reason = "") const {
    std::string text = join(op_, ": ", first);
    if (tensor != nullptr) {
      text += join("\n  got: shape ", show(tensor->shape, tensor->ndim), ", dtype ",
                   dtype_name(tensor->dtype));
    }
    if (bound_ > 0) text += join("\n  bound so far: ", bound_text(), reason);
    throw call_error(text);
  }

 private:
  // The messages. They are kept out of the comparisons, which are inlined into every call.

  // A tensor without elements needs no memory.
  __attribute__((cold, noinline)) void without_memory(Where where, const DLTensor& tensor) const {
    if (std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim)
      return;
    fail(join("argument ", where.text(),
              " has a storage that was resized to less than the tensor takes."));
  }
  OPSMITH_COLD void wrong_length(const char* name, int64_t count, int64_t expected) const {
    fail(join("argument '", name, "' has ", count, " elements, expected ", expected, "."));
  }
  OPSMITH_COLD void no_tensors(const char* name, const char* fixed) const {
    fail(join("argument '", name, "' has no tensors, expected at least one: nothing else fixes ",
              fixed, "."));
  }
  OPSMITH_COLD void other_device(Where where, const DLTensor& tensor) const {
    fail(join("argument ", where.text(), " is on ", show(tensor.device), ", expected ",
              show(device_), ": every tensor of a call is on one device, and ", device_by_.text(),
              " fixed it."));
  }
  OPSMITH_COLD void wrong_dtype(Where where, const DLTensor& tensor, const char* expected,
                                const char* one_of = "") const {
    fail(join("argument ", where.text(), " has dtype ", dtype_name(tensor.dtype), ", expected ",
              one_of, expected, "."),
         &tensor);
  }
  OPSMITH_COLD void other_dtype(Where where, const DLTensor& tensor, int index, DLDataType expected,
                                const DtypeVariable& variable) const {
    fail(join("argument ", where.text(), " has dtype ", dtype_name(tensor.dtype), ", expected ",
              dtype_name(expected), ": ", variable.shared, ", and ", dtypes_by_[index].text(),
              " fixed it."),
         &tensor);
  }
  OPSMITH_COLD void wrong_rank(Where where, const DLTensor& tensor, int32_t expected, bool at_least,
                               const char* type) const {
    fail(join("argument ", where.text(), " has ", tensor.ndim, " dimensions, expected ",
              at_least ? "at least " : "", expected, " for ", type, "."),
         &tensor);
  }
  OPSMITH_COLD void wrong_size(Where where, const DLTensor& tensor, int64_t axis, int index,
                               const char* type) const {
    fail(join("argument ", where.text(), " does not fit ", type, ": dimension ", axis, " (",
              names_[index], ") is ", tensor.shape[axis], ", expected ", dims_[index], "."),
         &tensor, join(" (", names_[index], " by ", dims_by_[index].text(), ")"));
  }
  OPSMITH_COLD void wrong_sizes(Where where, const DLTensor& tensor, int64_t axis, int64_t count,
                                int index, const char* type) const {
    const Variadic& bound = variadics_[index];
    fail(join("argument ", where.text(), " does not fit ", type, ": dimensions from ", axis, " (*",
              variadic_names_[index], ") are ", show(tensor.shape + axis, count), ", expected ",
              show(bound.sizes, bound.count), "."),
         &tensor, join(" (*", variadic_names_[index], " by ", variadics_by_[index].text(), ")"));
  }
  OPSMITH_COLD void wrong_expression(Where where, const DLTensor& tensor, int64_t axis,
                                     int64_t expected, const char* text, const char* type) const {
    fail(join("argument ", where.text(), " does not fit ", type, ": dimension ", axis,
              text == nullptr ? "" : " (", text == nullptr ? "" : text, text == nullptr ? "" : ")",
              " is ", tensor.shape[axis], ", expected ", expected, "."),
         &tensor);
  }
  OPSMITH_COLD void unsolved(Where where, const DLTensor& tensor, int64_t axis, int index,
                             int64_t factor, int64_t rest, const char* factor_text,
                             const char* text, const char* type) const {
    const int64_t size = tensor.shape[axis];
    std::string why;
    if (factor == 0) {
      why = join(", and ", size == rest ? "any " : "no ", names_[index], " fits, since ",
                 factor_text, " is 0.");
    } else {
      why = join(", expected ", text, " for some ", names_[index], ": ");
      const int64_t least = factor < 0 ? sub(0, factor) : factor;
      if (mod(sub(size, rest), factor) != 0) {
        const int64_t more = mod(rest, least);
        if (more != 0) why += join(more, " more than ");
        why += join("a multiple of ", least, ".");
      } else {
        why += join(factor > 0 ? "at least " : "at most ", rest, ".");
      }
    }
    fail(join("argument ", where.text(), " does not fit ", type, ": dimension ", axis, " (", text,
              ") is ", size, why),
         &tensor);
  }
  OPSMITH_COLD void unsatisfied(const char* text, const std::string& why,
                                std::initializer_list<int> dims) const {
    std::string reason;
    for (const int dim : dims) {
      reason += join(reason.empty() ? " (" : ", ", names_[dim], " by ", dims_by_[dim].text());
    }
    if (!reason.empty()) reason += ")";
    fail(join("the arguments do not satisfy ", text, why), nullptr, reason);
  }
  template <typename Value>
  OPSMITH_COLD void outside(Where where, Value value, const Range& range) const {
    fail(join("argument ", where.text(), " is ", show(value), ", expected ", range.text(), "."));
  }
  OPSMITH_COLD void negative(int64_t size, const char* text, const char* type) const {
    throw call_error(join(op_, ": the result ", type, " would have ", size, " as its dimension '",
                          text, "'.\n  bound so far: ", bound_text()));
  }
  OPSMITH_COLD void too_many(const char* type) const {
    throw call_error(join(op_, ": the result ", type, " would have more than ", int64_t{max_dims},
                          " dimensions."));
  }

  const char* op_;
  const char* const* names_;
  const char* const* variadic_names_;
  int bound_ = 0;
  int order_[N + V + 1];
  int64_t dims_[N + 1];
  Where dims_by_[N + 1];
  Variadic variadics_[V + 1];
  Where variadics_by_[V + 1];
  DLDataType dtypes_[D + 1]{};
  DLDevice device_{device_cpu, 0};
  Where dtypes_by_[D + 1]{};
  Where device_by_{nullptr};
};

}  // namespace detail
}  // namespace opsmith
