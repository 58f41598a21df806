// Converts the plain fields of a `_raw` struct to the typed members of an argument struct.
#pragma once

#include <opsmith/kernel.h>

namespace opsmith::detail {

template <typename Raw>
auto to_span(Raw raw) {
  return std::span(raw.items, static_cast<size_t>(raw.count));
}

template <typename T, size_t N, typename Raw>
std::array<T, N> to_array(Raw raw) {
  std::array<T, N> values;
  for (size_t i = 0; i < N; ++i) values[i] = static_cast<T>(raw.items[i]);
  return values;
}

inline std::string_view to_string(raw_string raw) {
  return {raw.data, static_cast<size_t>(raw.size)};
}

// The enumerator of a string in `choices`; validation ensures that the string is one of them.
template <typename Enum>
Enum to_choice(raw_string raw, std::initializer_list<std::string_view> choices) {
  const auto found = std::find(choices.begin(), choices.end(), to_string(raw));
  if (found == choices.end()) throw std::runtime_error("a string that is not declared");
  return static_cast<Enum>(found - choices.begin());
}
template <typename Enum>
std::optional<Enum> to_optional_choice(raw_string raw,
                                       std::initializer_list<std::string_view> choices) {
  return raw.data != nullptr ? std::optional(to_choice<Enum>(raw, choices)) : std::nullopt;
}

template <typename Raw>
auto to_optional(Raw raw) {
  return raw.present ? std::optional(raw.value) : std::nullopt;
}
inline std::optional<bool> to_optional(raw_optional_bool raw) {
  return raw.present ? std::optional(raw.value != 0) : std::nullopt;
}
inline std::optional<std::string_view> to_optional(raw_string raw) {
  return raw.data != nullptr ? std::optional(to_string(raw)) : std::nullopt;
}
template <typename Raw>
auto to_optional_span(Raw raw) {
  return raw.count >= 0 ? std::optional(to_span(raw)) : std::nullopt;
}
template <typename T, size_t N, typename Raw>
std::optional<std::array<T, N>> to_optional_array(Raw raw) {
  return raw.count >= 0 ? std::optional(to_array<T, N>(raw)) : std::nullopt;
}

}  // namespace opsmith::detail
