// The extension of every Python module that opsmith exports: it makes Python functions from the
// functions that operators' libraries export. package/__init__ calls it with the declarations.
#include "function.h"

namespace {

using opsmith::python::Entry;
using opsmith::python::Function;
using opsmith::python::Kind;
using opsmith::python::Parameter;

namespace nb = nanobind;

std::vector<Parameter> parameters_of(const nb::sequence& described) {
  std::vector<Parameter> found;
  for (const nb::handle one : described) {
    PyObject* name = nb::str(one.attr("name")).release().ptr();
    PyUnicode_InternInPlace(&name);
    nb::object fallback;
    if (nb::cast<bool>(one.attr("has_default"))) fallback = one.attr("default");
    found.push_back({nb::steal(name), static_cast<Kind>(nb::cast<int>(one.attr("index"))),
                     nb::cast<bool>(one.attr("optional")), nb::cast<bool>(one.attr("written")),
                     nb::cast<bool>(one.attr("keyword_only")), fallback});
  }
  return found;
}

}  // namespace

NB_MODULE(_native, module) {
  module.def(
      "function",
      [](const nb::str& name, const nb::str& in, const nb::str& doc, uintptr_t entry,
         const nb::sequence& parameters, size_t results, const nb::object& refusal,
         const nb::object& arrays) {
        return Function::bound(
            std::make_unique<Function>(name.c_str(), doc.c_str(), reinterpret_cast<Entry>(entry),
                                       parameters_of(parameters), results, refusal, arrays),
            in);
      },
      nb::kw_only(), nb::arg("name"), nb::arg("module"), nb::arg("doc"), nb::arg("entry"),
      nb::arg("parameters"), nb::arg("results"), nb::arg("refusal"), nb::arg("arrays"));
}
