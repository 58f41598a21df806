// Values as Python writes them, for messages.
#pragma once

#include <opsmith/abi.h>
#include <opsmith/detail/text.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace opsmith::detail {

// Python's repr of a float.
inline std::string show(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::fabs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}
inline std::string show(int64_t value) { return std::to_string(value); }
inline std::string show(uint64_t value) { return std::to_string(value); }
inline std::string show(bool value) { return value ? "True" : "False"; }

// Sizes as Python writes a tuple.
inline std::string show(const int64_t* sizes, int64_t count) {
  std::string text = "(";
  for (int64_t i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + (count == 1 ? ",)" : ")");
}

inline const char* device_name(int32_t device) {
  switch (device) {
#define OPSMITH_NAME(name, number, key) \
  case number:                          \
    return #name;
    OPSMITH_DEVICES(OPSMITH_NAME)
#undef OPSMITH_NAME
    default:
      return device_extension_name;
  }
}

inline std::string show(DLDevice device) {
  const char* const name = device_name(device.device_type);
  return device.device_type == device_cpu ? name : join(name, ":", device.device_id);
}

}  // namespace opsmith::detail
