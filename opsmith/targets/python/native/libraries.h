// Looks up properties of the libraries that arrays belong to, in package/_arrays.py, once for each
// type of array.
#pragma once

#include <nanobind/nanobind.h>
#include <opsmith/detail/check.h>
#include <opsmith/detail/overlap.h>

#include <utility>

namespace opsmith::python {

namespace nb = nanobind;

// Wraps a function of the package's modules so that code of torch.compile may call it: TorchDynamo
// would otherwise trace it, with tensors that have no memory.
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

  // Returns whether the contents of `value` may be changed.
  bool writable(nb::handle value) {
    return is_numpy(value) || asked(writable_, "writable", value).is(nb::bool_(true));
  }

  // Returns whether the storage of `value` holds all of it: PyTorch's can be resized to less.
  bool holds(nb::handle value, const DLTensor& tensor) const {
    if (is_numpy(value) || !nb::hasattr(value, "untyped_storage")) return true;
    const auto bytes = nb::cast<int64_t>(value.attr("untyped_storage")().attr("nbytes")());
    return detail::is_within(tensor, nb::cast<int64_t>(value.attr("storage_offset")()), bytes);
  }

  // Returns the object for nanobind to read: NumPy's arrays and buffers themselves, and a capsule
  // for other libraries, since nanobind ignores a library's refusal. Not valid if the library
  // refuses, or if the memory holds the negated values (PyTorch's DLPack does not check for that).
  //
  // Calls the library without `untraced`, which would make every call too slow.
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

  // Returns an integer array in the same memory as an array of a dtype that DLPack has and NumPy
  // lacks, with DLPack's code; None for other arrays.
  nb::object viewed(nb::handle value) const { return untraced(arrays_.attr("viewed"))(value); }

  // Returns the function that makes an array of `like`'s library from an object with memory; None
  // for NumPy, which allocates its arrays itself.
  nb::object importer(nb::handle like) {
    if (!like.is_valid() || is_numpy(like)) return nb::none();
    return asked(importers_, "importer", like);
  }

  // Returns a NumPy array, and an array through which its memory can be accessed.
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
