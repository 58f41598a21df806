// What is to be known of the libraries that arrays are of. package/_arrays.py says it, once for
// each type that comes.
#pragma once

#include <nanobind/nanobind.h>
#include <opsmith/detail/check.h>

#include <utility>

namespace opsmith::python {

namespace nb = nanobind;

// A function of the package's modules, made so that code which torch.compile compiled may call it:
// TorchDynamo would trace it otherwise, with tensors that have no memory.
inline nb::object untraced(nb::object function) {
  const nb::object modules = nb::module_::import_("sys").attr("modules");
  if (!nb::cast<bool>(modules.attr("__contains__")("torch._dynamo"))) return function;
  return modules["torch"].attr("compiler").attr("disable")(function);
}

class Libraries {
 public:
  explicit Libraries(nb::object arrays)
      : arrays_(std::move(arrays)),
        numpy_array_(arrays_.attr("ndarray")),
        empty_(arrays_.attr("empty")),
        dtypes_(arrays_.attr("DTYPES")) {}

  // Whether what `value` holds may change.
  bool writable(nb::handle value) {
    return is_numpy(value) || asked(writable_, "writable", value).is(nb::bool_(true));
  }

  // What nanobind is to read: NumPy's arrays and buffers themselves, of other libraries a capsule,
  // as nanobind goes round what a library says against it. Not valid where it says something, or
  // where memory holds the negative of what is read (PyTorch's DLPack says nothing of that).
  //
  // Calls the library from here: `untraced` would cost every call too much.
  nb::object offered(nb::handle value) const {
    if (is_numpy(value) || !nb::hasattr(value, "__dlpack__")) return nb::borrow(value);
    try {
      if (nb::hasattr(value, "is_neg") && nb::cast<bool>(value.attr("is_neg")())) return {};
      const nb::object offer = value.attr("__dlpack__");
      try {
        return offer(nb::arg("max_version") = version_);
      } catch (const nb::python_error& error) {
        if (!error.matches(PyExc_TypeError)) return {};
        return offer();  // older than DLPack 1.0
      }
    } catch (const std::exception&) {
      return {};
    }
  }

  // An array of a dtype that DLPack knows and NumPy does not: one of the same memory, and DLPack's
  // code. None for others.
  nb::object viewed(nb::handle value) const { return untraced(arrays_.attr("viewed"))(value); }

  // What makes an array of the library that `like` is of from something that offers its memory;
  // None for NumPy, which allocates itself.
  nb::object importer(nb::handle like) {
    if (!like.is_valid() || is_numpy(like)) return nb::none();
    return asked(importers_, "importer", like);
  }

  // An array of NumPy's, and one through which its memory can be reached.
  std::pair<nb::object, nb::object> allocate(const nb::object& shape, DLDataType dtype) const {
    const nb::handle found =
        PyDict_GetItemWithError(dtypes_.ptr(), nb::int_(detail::dtype_key(dtype)).ptr());
    if (found.is_valid()) {
      nb::object array = empty_(shape, found);
      return {array, array};
    }
    const nb::object pair = untraced(arrays_.attr("empty_of"))(shape, detail::dtype_name(dtype));
    return {nb::object(pair[0]), nb::object(pair[1])};
  }

 private:
  bool is_numpy(nb::handle value) const { return value.type().is(numpy_array_); }

  nb::object asked(nb::dict& known, const char* question, nb::handle value) {
    const nb::handle type = value.type();
    if (!known.contains(type)) known[type] = untraced(arrays_.attr(question))(value);
    return known[type];
  }

  nb::object arrays_;
  nb::object numpy_array_;
  nb::object empty_;
  nb::object dtypes_;
  nb::tuple version_ = nb::make_tuple(1, 0);
  nb::dict importers_;
  nb::dict writable_;
};

}  // namespace opsmith::python
