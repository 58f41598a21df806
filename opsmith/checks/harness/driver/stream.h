// The files between the harness and Python: little-endian, no padding.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace opsmith::harness {

class Reader {
 public:
  explicit Reader(const char* path) {
    std::FILE* file = std::fopen(path, "rb");
    if (file == nullptr) return;
    std::fseek(file, 0, SEEK_END);
    bytes_.resize(static_cast<size_t>(std::ftell(file)));
    std::rewind(file);
    bytes_.resize(std::fread(bytes_.data(), 1, bytes_.size(), file));
    std::fclose(file);
  }

  template <typename T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string text() {
    const auto size = get<uint32_t>();
    return {take(size), size};
  }
  template <typename T>
  std::vector<T> array(uint64_t count) {
    std::vector<T> values(count);
    if (count != 0) std::memcpy(values.data(), take(count * sizeof(T)), count * sizeof(T));
    return values;
  }
  const char* take(uint64_t size) {
    if (size > bytes_.size() - at_) {
      std::fputs("opsmith-harness: the file of cases ends too early\n", stderr);
      std::exit(2);
    }
    const char* start = bytes_.data() + at_;
    at_ += size;
    return start;
  }

 private:
  std::vector<char> bytes_;
  uint64_t at_ = 0;
};

class Writer {
 public:
  template <typename T>
  void put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(std::string_view value) {
    put(static_cast<uint32_t>(value.size()));
    bytes_ += value;
  }
  void raw(const void* data, uint64_t size) { bytes_.append(static_cast<const char*>(data), size); }
  // Writes everything so far to the file, so that a later crash loses nothing.
  void flush(std::FILE* file) {
    std::fwrite(bytes_.data(), 1, bytes_.size(), file);
    std::fflush(file);
    bytes_.clear();
  }

 private:
  std::string bytes_;
};

}  // namespace opsmith::harness
