// Reads JSON, as far as the manifest needs it.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace opsmith {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::map<std::string, Json>;

  // Throws std::runtime_error with the position of the error.
  static Json parse(std::string_view text);

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }

  // Each function throws std::runtime_error if the value has another type.
  const std::string& string() const { return get<std::string>("a string"); }
  const Array& array() const { return get<Array>("an array"); }
  const Object& object() const { return get<Object>("an object"); }
  double number() const { return get<double>("a number"); }
  int64_t integer() const { return static_cast<int64_t>(number()); }

  bool has(const std::string& key) const { return object().count(key) != 0; }
  const Json& at(const std::string& key) const {
    const auto found = object().find(key);
    if (found == object().end()) throw std::runtime_error("it has no \"" + key + "\"");
    return found->second;
  }

 private:
  template <typename T>
  const T& get(const char* what) const {
    if (const T* value = std::get_if<T>(&value_)) return *value;
    throw std::runtime_error(std::string("a value in it is not ") + what);
  }

  friend class JsonReader;
  std::variant<std::nullptr_t, bool, double, std::string, Array, Object> value_;
};

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  Json document() {
    Json json = value();
    skip_space();
    if (at_ != text_.size()) fail("something follows the end");
    return json;
  }

 private:
  static constexpr int kDeepest = 200;

  [[noreturn]] void fail(const char* what) const {
    throw std::runtime_error(std::string(what) + " at byte " + std::to_string(at_));
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }
  bool take(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }
  void expect(std::string_view word, const char* otherwise) {
    skip_space();
    if (!take(word)) fail(otherwise);
  }

  Json value() {
    skip_space();
    if (at_ == text_.size()) fail("it ends too early");
    if (++depth_ > kDeepest) fail("it is nested too deeply");
    Json json;
    const char first = text_[at_];
    if (first == '{') {
      json.value_ = object();
    } else if (first == '[') {
      json.value_ = array();
    } else if (first == '"') {
      json.value_ = string();
    } else if (take("true")) {
      json.value_ = true;
    } else if (take("false")) {
      json.value_ = false;
    } else if (take("null")) {
      json.value_ = nullptr;
    } else {
      json.value_ = number();
    }
    --depth_;
    return json;
  }

  Json::Object object() {
    Json::Object object;
    ++at_;
    skip_space();
    if (take("}")) return object;
    do {
      skip_space();
      if (at_ == text_.size() || text_[at_] != '"') fail("a key should stand here");
      std::string key = string();
      expect(":", "a colon should stand here");
      object.insert_or_assign(std::move(key), value());
      skip_space();
    } while (take(","));
    expect("}", "a comma or a closing brace should stand here");
    return object;
  }

  Json::Array array() {
    Json::Array array;
    ++at_;
    skip_space();
    if (take("]")) return array;
    do {
      array.push_back(value());
      skip_space();
    } while (take(","));
    expect("]", "a comma or a closing bracket should stand here");
    return array;
  }

  std::string string() {
    std::string text;
    ++at_;
    while (true) {
      if (at_ == text_.size()) fail("a string does not end");
      const char c = text_[at_++];
      if (c == '"') return text;
      if (c != '\\') {
        text += c;
        continue;
      }
      if (at_ == text_.size()) fail("a string does not end");
      const char escaped = text_[at_++];
      static constexpr std::string_view kNames = "\"\\/bfnrt", kValues = "\"\\/\b\f\n\r\t";
      if (escaped == 'u') {
        append_utf8(code_point(), text);
      } else if (const size_t i = kNames.find(escaped); i != kNames.npos) {
        text += kValues[i];
      } else {
        fail("an unknown escape");
      }
    }
  }

  uint32_t code_unit() {
    uint32_t unit = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      if (at_ == text_.size() || !std::isxdigit(static_cast<unsigned char>(text_[at_])))
        fail("four hexadecimal digits should stand here");
      const char c = text_[at_];
      unit = unit * 16 + static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return unit;
  }
  uint32_t code_point() {
    const uint32_t high = code_unit();
    if (high < 0xD800 || high > 0xDBFF || !take("\\u")) return high;
    return 0x10000 + ((high - 0xD800) << 10) + (code_unit() - 0xDC00);
  }
  static void append_utf8(uint32_t c, std::string& text) {
    if (c < 0x80) {
      text += static_cast<char>(c);
      return;
    }
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    static constexpr int kLead[] = {0, 0xC0, 0xE0, 0xF0};
    text += static_cast<char>(kLead[more] | (c >> (6 * more)));
    for (int i = more - 1; i >= 0; --i) text += static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3F));
  }

  double number() {
    const size_t end = std::min(text_.find_first_not_of("+-.0123456789eE", at_), text_.size());
    const std::string digits(text_.substr(at_, end - at_));
    char* stop = nullptr;
    const double value = std::strtod(digits.c_str(), &stop);
    if (digits.empty() || *stop != '\0') fail("a value should stand here");
    at_ = end;
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

inline Json Json::parse(std::string_view text) { return JsonReader(text).document(); }

}  // namespace opsmith
