// The results of a call, as arrays of the library that the first tensor argument belongs to.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <opsmith/detail/check.h>
#include <opsmith/hosted/memory.h>

#include <cstdlib>
#include <vector>

#include "libraries.h"

namespace opsmith::python {

namespace nb = nanobind;

class Results {
 public:
  // `like`: the first tensor argument, if there is one.
  Results(Libraries& libraries, size_t count, nb::handle like)
      : libraries_(libraries), importer_(libraries.importer(like)), made_(count) {}

  const DLTensor* allocate(int32_t position, DLDataType dtype, int32_t ndim, const int64_t* sizes) {
    Made& made = made_[static_cast<size_t>(position)];
    if (importer_.is_none()) {
      nb::object shape = nb::steal(PyTuple_New(ndim));
      for (int32_t i = 0; i < ndim; ++i) {
        PyTuple_SetItem(shape.ptr(), i, PyLong_FromLongLong(sizes[i]));
      }
      auto [array, memory] = libraries_.allocate(shape, dtype);
      made.array = std::move(array);
      made.memory = nb::cast<nb::ndarray<>>(memory);
    } else {
      made.memory = own(dtype, ndim, sizes);
    }
    made.tensor = {made.memory.data(),
                   {device_cpu, 0},
                   ndim,
                   dtype,
                   const_cast<int64_t*>(made.memory.shape_ptr()),
                   const_cast<int64_t*>(made.memory.stride_ptr()),
                   0};
    return &made.tensor;
  }

  // Returns the function's value: None, one result, or a tuple.
  nb::object give() {
    for (Made& made : made_) {
      // Convert only now that the results are computed: a library may copy the memory.
      if (!importer_.is_none()) {
        made.array = importer_(nb::cast(nb::ndarray<nb::array_api>(made.memory)));
      }
    }
    if (made_.empty()) return nb::none();
    if (made_.size() == 1) return std::move(made_[0].array);
    nb::object several = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(made_.size())));
    for (size_t i = 0; i < made_.size(); ++i) {
      PyTuple_SetItem(several.ptr(), static_cast<Py_ssize_t>(i), made_[i].array.release().ptr());
    }
    return several;
  }

 private:
  struct Made {
    nb::object array;
    nb::ndarray<> memory;
    DLTensor tensor;
  };

  // Memory that other libraries can use without a copy, which for some of them requires alignment.
  static nb::ndarray<> own(DLDataType dtype, int32_t ndim, const int64_t* sizes) {
    void* memory = hosted::memory_for(dtype, ndim, sizes);
    const std::vector<size_t> shape(sizes, sizes + ndim);
    const nb::capsule owner(memory, [](void* data) noexcept { std::free(data); });
    return nb::ndarray<>(memory, shape.size(), shape.data(), owner, nullptr,
                         {dtype.code, dtype.bits, dtype.lanes}, nb::device::cpu::value);
  }

  Libraries& libraries_;
  nb::object importer_;
  std::vector<Made> made_;
};

}  // namespace opsmith::python
