// Converts Python's objects to the plain structs that an operator's library accepts. A value that
// does not fit is only detected here; package/_calls.py writes the message.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <opsmith/detail/check.h>
#include <opsmith/hosted/host.h>
#include <opsmith/hosted/memory.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "libraries.h"

namespace opsmith::python {

namespace nb = nanobind;

using hosted::Kind;

struct Parameter {
  nb::object name;
  Kind kind;
  bool optional;
  bool written;
  bool keyword_only;
  nb::object fallback;  // the default; not valid if there is none
};

// A value that does not fit; `item` is its position in a list, -1 for the whole value.
struct Misfit {
  int64_t item;
};

// A Python array that is borrowed for a call.
class Array {
 public:
  // Returns false if the array cannot be used: not an array, not on the CPU, read-only, not
  // aligned, or without memory, such as a tensor of a tracer, or written beyond its storage.
  bool take(Libraries& libraries, nb::handle value, bool written, DLTensor& tensor) {
    nb::dlpack::dtype dtype;
    if (written && !libraries.writable(value)) return false;
    const nb::object source = libraries.offered(value);
    if (source.is_valid() && import(source, written)) {
      dtype = array_.dtype();
    } else {
      // NumPy arrays may have a dtype that NumPy cannot describe to other libraries.
      const nb::object viewed = libraries.viewed(value);
      if (viewed.is_none() || !import(viewed[0], written)) return false;
      dtype = array_.dtype();
      dtype.code = nb::cast<uint8_t>(viewed[1]);
    }
    if (array_.ndim() > detail::max_dims || !hosted::host_reads(array_.device_type())) return false;
    tensor = {array_.data(),
              {device_cpu, 0},
              static_cast<int32_t>(array_.ndim()),
              {dtype.code, dtype.bits, dtype.lanes},
              const_cast<int64_t*>(array_.shape_ptr()),
              const_cast<int64_t*>(array_.stride_ptr()),
              0};
    if (array_.size() == 0) return true;
    if (written && !libraries.holds(value, tensor)) return false;
    return tensor.data != nullptr && hosted::is_aligned(tensor);
  }

 private:
  bool import(nb::handle value, bool written) {
    if (written) return nb::try_cast(value, array_, false);
    nb::ndarray<nb::ro> found;
    if (!nb::try_cast(value, found, false)) return false;
    array_ = nb::ndarray<>(found);
    return true;
  }

  nb::ndarray<> array_;
};

// One argument of a call, and the memory that it points to.
class Argument {
 public:
  // Reads `value`.
  //
  // Raises Misfit.
  opsmith_argument take(Libraries& libraries, const Parameter& parameter, nb::handle value) {
    if (value.is_none() && (parameter.optional || parameter.kind == Kind::tensor)) {
      return {-1, nullptr};  // the check against the declaration reports a missing tensor
    }
    switch (parameter.kind) {
      case Kind::tensor:
        if (!array_.take(libraries, value, parameter.written, tensor_)) throw Misfit{-1};
        return {1, &tensor_};
      case Kind::tensors:
        return take_tensors(libraries, value, parameter.written);
      case Kind::integer:
        return {1, keep(number_.integer, as_integer(value))};
      case Kind::floating:
        return {1, keep(number_.floating, as_float(value))};
      case Kind::boolean:
        return {1, keep(number_.boolean, as_bool(value))};
      case Kind::text:
        return take_text(value);
      case Kind::integers:
        return take_several<int64_t>(value, &as_integer);
      case Kind::floats:
        return take_several<double>(value, &as_float);
      case Kind::booleans:
        return take_several<uint8_t>(value, &as_bool);
    }
    throw Misfit{-1};
  }

 private:
  template <typename T>
  static const T* keep(T& place, T value) {
    place = value;
    return &place;
  }

  static int64_t as_integer(nb::handle value) {
    const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
    if (!index.is_valid()) misfit();
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    if (overflow != 0 || (number == -1 && PyErr_Occurred())) misfit();
    return number;
  }
  static double as_float(nb::handle value) {
    const double number = PyFloat_AsDouble(value.ptr());
    if (number == -1.0 && PyErr_Occurred()) misfit();
    return number;
  }
  static uint8_t as_bool(nb::handle value) {
    if (value.ptr() == Py_True) return 1;
    if (value.ptr() == Py_False) return 0;
    return as_float(value) != 0;
  }
  // Clears the Python error.
  [[noreturn]] static void misfit() {
    PyErr_Clear();
    throw Misfit{-1};
  }

  opsmith_argument take_text(nb::handle value) {
    if (!PyUnicode_Check(value.ptr())) throw Misfit{-1};
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
    if (text == nullptr) misfit();
    return {size, text};
  }

  opsmith_argument take_tensors(Libraries& libraries, nb::handle value, bool written) {
    if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) throw Misfit{-1};
    const nb::tuple items = as_tuple(value);
    arrays_.resize(items.size());
    auto* tensors = allocate<DLTensor>(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      if (items[i].is_none()) {
        tensors[i] = {};
        tensors[i].ndim = -1;
      } else if (!arrays_[i].take(libraries, items[i], written, tensors[i])) {
        throw Misfit{static_cast<int64_t>(i)};
      }
    }
    return {static_cast<int64_t>(items.size()), tensors};
  }

  template <typename T>
  opsmith_argument take_several(nb::handle value, T (*convert)(nb::handle)) {
    if (!PySequence_Check(value.ptr()) || PyUnicode_Check(value.ptr()) ||
        PyBytes_Check(value.ptr())) {
      throw Misfit{-1};
    }
    const nb::tuple items = as_tuple(value);
    T* numbers = allocate<T>(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      try {
        numbers[i] = convert(items[i]);
      } catch (const Misfit&) {
        throw Misfit{static_cast<int64_t>(i)};
      }
    }
    return {static_cast<int64_t>(items.size()), numbers};
  }

  static nb::tuple as_tuple(nb::handle value) {
    PyObject* items = PySequence_Tuple(value.ptr());
    if (items == nullptr) misfit();
    return nb::steal<nb::tuple>(items);
  }

  template <typename T>
  T* allocate(size_t count) {
    // Never null, which would mean None.
    memory_ = std::make_unique<std::byte[]>(std::max<size_t>(count * sizeof(T), 1));
    return reinterpret_cast<T*>(memory_.get());
  }

  Array array_;
  DLTensor tensor_{};
  union {
    int64_t integer;
    double floating;
    uint8_t boolean;
  } number_{};
  std::vector<Array> arrays_;
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace opsmith::python
