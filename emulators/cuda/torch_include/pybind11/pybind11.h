// In place of pybind11's header: what a module's definitions say to Python, and nothing does with.
#pragma once

namespace pybind11 {

struct arg {
  constexpr explicit arg(const char*) {}
  template <typename T>
  arg operator=(const T&) const {
    return *this;
  }
  arg& noconvert(bool = true) { return *this; }
  arg& none(bool = true) { return *this; }
};
struct kw_only {};
struct pos_only {};
struct doc {
  constexpr explicit doc(const char*) {}
};
struct gil_scoped_release {
  gil_scoped_release() {}
};
template <typename... T>
struct call_guard {};

inline namespace literals {
constexpr arg operator""_a(const char* name, __SIZE_TYPE__) { return arg(name); }
}  // namespace literals

}  // namespace pybind11

namespace py = pybind11;
