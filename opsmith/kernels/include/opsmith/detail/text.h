// Messages, put together from parts.
#pragma once

#include <concepts>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace opsmith::detail {

// One part of a message. A single function joins parts of all types: there are many messages, and a
// function for each would take longer to compile than the kernel.
class Part {
 public:
  template <std::convertible_to<std::string_view> Text>
  Part(const Text& text) : text_(text) {}
  Part(bool value) : text_(value ? "true" : "false") {}
  template <std::integral Value>
  Part(Value value) {
    if constexpr (std::is_signed_v<Value>) {
      write("%lld", static_cast<long long>(value));
    } else {
      write("%llu", static_cast<unsigned long long>(value));
    }
  }
  template <std::floating_point Value>
  Part(Value value) {
    write("%g", static_cast<double>(value));
  }
  // A half, which would convert to bool.
  template <typename Value>
    requires(std::is_class_v<Value> && std::is_constructible_v<double, const Value&> &&
             !std::floating_point<Value> && !std::convertible_to<Value, std::string_view>)
  Part(const Value& value) : Part(static_cast<double>(value)) {}
  Part(const Part&) = delete;  // the text may be its own

  std::string_view text() const { return text_; }

 private:
  template <typename Value>
  __attribute__((cold, noinline)) void write(const char* format, Value value) {
    text_ = {buffer_, static_cast<size_t>(std::snprintf(buffer_, sizeof buffer_, format, value))};
  }

  std::string_view text_;
  char buffer_[32];
};

__attribute__((cold, noinline)) inline std::string join_parts(std::initializer_list<Part> parts) {
  std::string text;
  for (const Part& part : parts) text += part.text();
  return text;
}

template <typename... Parts>
__attribute__((cold)) std::string join(const Parts&... parts) {
  return join_parts({Part(parts)...});
}

}  // namespace opsmith::detail
