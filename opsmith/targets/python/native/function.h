// An operator as a Python function.
#pragma once

#include <opsmith/hosted/run.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "arguments.h"
#include "results.h"

namespace opsmith::python {

using namespace hosted;

class Function {
 public:
  // `refusal` is a Refusal of package/_calls.py, which writes the messages for values that do not
  // fit.
  Function(std::string name, std::string doc, Entry entry, std::vector<Parameter> parameters,
           size_t results, nb::object refusal, nb::object arrays)
      : name_(std::move(name)),
        doc_(std::move(doc)),
        entry_(entry),
        parameters_(std::move(parameters)),
        results_(results),
        refusal_(std::move(refusal)),
        libraries_(std::move(arrays)) {}

  // The object that Python calls: a built-in function, which prints, documents and pickles itself
  // as such. It belongs to a module object of its own, whose state is the Function.
  static nb::object bound(std::unique_ptr<Function> function, nb::handle module_name) {
    nb::object module = nb::steal(PyModule_Create(&definition));
    if (!module.is_valid()) throw nb::python_error();
    Function*& state = of(module.ptr());
    state = function.release();
    state->method_ = {state->name_.c_str(),
                      reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(&vectorcall)),
                      METH_FASTCALL | METH_KEYWORDS, state->doc_.c_str()};
    return nb::steal(PyCFunction_NewEx(&state->method_, module.ptr(), module_name.ptr()));
  }

 private:
  static Function*& of(PyObject* module) {
    return *static_cast<Function**>(PyModule_GetState(module));
  }
  static void free(void* module) { delete std::exchange(of(static_cast<PyObject*>(module)), {}); }
  static inline PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                                          "opsmith_function",
                                          nullptr,
                                          sizeof(Function*),
                                          nullptr,
                                          nullptr,
                                          nullptr,
                                          nullptr,
                                          &Function::free};

  static PyObject* vectorcall(PyObject* self, PyObject* const* args, Py_ssize_t count,
                              PyObject* names) noexcept {
    try {
      return of(self)->call(args, static_cast<size_t>(count), names).release().ptr();
    } catch (nb::python_error& error) {
      error.restore();
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
  }

  nb::object call(PyObject* const* args, size_t count, PyObject* names) {
    std::vector<nb::handle> values(parameters_.size());
    if (!arrange(args, count, names, values)) refuse_call(args, count, names);
    std::vector<Argument> taken(parameters_.size());
    std::vector<opsmith_argument> given(parameters_.size());
    for (size_t i = 0; i < given.size(); ++i) {
      try {
        given[i] = taken[i].take(libraries_, parameters_[i], values[i]);
      } catch (const Misfit& misfit) {
        raise(untraced(refusal_.attr("argument"))(i, values[i], misfit.item));
      }
    }
    Results results(libraries_, results_, first_tensor(values));
    const Outcome outcome = [&] {
      const nb::gil_scoped_release unlocked;
      return run(entry_, given.data(), [&](auto... wanted) {
        const nb::gil_scoped_acquire locked;
        return results.allocate(wanted...);
      });
    }();
    if (outcome.error || outcome.status != done) fail(outcome);
    return results.give();
  }

  // Finds the value of each parameter; returns false for too many, missing or unknown arguments.
  bool arrange(PyObject* const* args, size_t count, PyObject* names,
               std::vector<nb::handle>& values) const {
    if (count > parameters_.size()) return false;
    for (size_t i = 0; i < count; ++i) {
      if (parameters_[i].keyword_only) return false;
      values[i] = args[i];
    }
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < named; ++i) {
      const size_t found = index_of(PyTuple_GetItem(names, i));
      if (found == parameters_.size() || values[found].is_valid()) return false;
      values[found] = args[count + static_cast<size_t>(i)];
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (!values[i].is_valid()) values[i] = parameters_[i].fallback;
      if (!values[i].is_valid()) return false;
    }
    return true;
  }

  size_t index_of(PyObject* name) const {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (parameters_[i].name.ptr() == name) return i;  // names are usually interned
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (PyUnicode_Compare(parameters_[i].name.ptr(), name) == 0) return i;
    }
    return parameters_.size();
  }

  // Returns the argument whose library the results belong to; not valid if there is none.
  nb::object first_tensor(const std::vector<nb::handle>& values) const {
    for (size_t i = 0; i < values.size(); ++i) {
      if (values[i].is_none()) continue;
      if (parameters_[i].kind == Kind::tensor) return nb::borrow(values[i]);
      if (parameters_[i].kind == Kind::tensors && nb::len(values[i]) > 0) return values[i][0];
    }
    return {};
  }

  [[noreturn]] static void raise(const nb::object& error) {
    PyErr_SetObject(error.type().ptr(), error.ptr());
    throw nb::python_error();
  }

  [[noreturn]] void refuse_call(PyObject* const* args, size_t count, PyObject* names) const {
    nb::list positional;
    for (size_t i = 0; i < count; ++i) positional.append(nb::handle(args[i]));
    nb::list keywords;
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
    for (Py_ssize_t i = 0; i < named; ++i) {
      keywords.append(nb::handle(PyTuple_GetItem(names, i)));
    }
    raise(untraced(refusal_.attr("call"))(positional, keywords));
  }

  [[noreturn]] void fail(const Outcome& outcome) const {
    const char* message = outcome.message.c_str();
    if (!outcome.error) raise(untraced(refusal_.attr("failed"))(outcome.status, message));
    try {
      std::rethrow_exception(outcome.error);
    } catch (const std::exception& error) {
      raise(untraced(refusal_.attr("no_result"))(message, error.what()));
    }
  }

  const std::string name_;
  const std::string doc_;
  const Entry entry_;
  const std::vector<Parameter> parameters_;
  const size_t results_;
  const nb::object refusal_;
  Libraries libraries_;
  PyMethodDef method_{};
};

}  // namespace opsmith::python
