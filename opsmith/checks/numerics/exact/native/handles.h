// Numbers of the size of the types that they stand for, for kernels that count bytes: each is the
// place of a number in a table.
//
// One of 32 bits is a NaN with the place as its payload. All other bits are a constant of single
// precision: memory of zeros is zeros, and an integer that passes through keeps its bits.
#pragma once

#include "number.h"

#include <sys/mman.h>
#include <array>
#include <bit>
#include <cstdio>
#include <map>
#include <mutex>

namespace opsmith::exact {

// The file that OPSMITH_EXACT_TABLE names, which the caller reads and writes too: how many places
// of 16 bits and of 32 are taken, then the numbers.
class Table {
 public:
  static constexpr uint64_t places = 1 << 22, short_places = 1 << 16;

  static Table& of_process() {
    static Table table;
    return table;
  }
  const Packed& at(uint64_t place) const { return numbers_[place]; }
  bool has(uint64_t place) const { return place >= short_places && place < taken_[1]; }
  uint64_t add(const Packed& number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return append(taken_[1], places, number);
  }
  // There are few such places, so equal numbers share one.
  uint64_t add_short(const Packed& number) {
    const std::lock_guard<std::mutex> lock(mutex_);
    uint64_t& place = known_[std::bit_cast<std::array<uint64_t, 2>>(number)];
    return place != 0 ? place : place = append(taken_[0], short_places, number);
  }

 private:
  Table() {
    const char* name = std::getenv("OPSMITH_EXACT_TABLE");
    // <fcntl.h> has a struct `stat`, which is what an author may call a namespace.
    FILE* const opened = name != nullptr ? std::fopen(name, "r+") : nullptr;
    const int file = opened != nullptr ? fileno(opened) : -1;
    const int kind = file >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, places * sizeof(Packed), PROT_READ | PROT_WRITE, kind, file, 0);
    if (opened != nullptr) std::fclose(opened);
    if (memory == MAP_FAILED) throw std::runtime_error("opsmith exact: no table of numbers");
    taken_ = static_cast<uint64_t*>(memory);
    numbers_ = static_cast<Packed*>(memory);
    if (taken_[0] == 0) taken_[0] = 1, taken_[1] = short_places;
  }
  uint64_t append(uint64_t& taken, uint64_t most, const Packed& number) {
    if (taken == most) throw std::runtime_error("opsmith exact: too many numbers for its table");
    numbers_[taken] = number;
    return taken++;
  }

  uint64_t* taken_;
  Packed* numbers_;
  std::mutex mutex_;
  std::map<std::array<uint64_t, 2>, uint64_t> known_;
};

// The bits of a NaN, below which a place is.
inline constexpr uint32_t place_bits = 0x7fc00000;

template <typename Bits>
class Handle {
  static constexpr bool is_short = sizeof(Bits) == 2;

 public:
  constexpr Handle() = default;
  constexpr Handle(const Packed& number) : bits_(of(number)) {}
  constexpr operator Content() const { return packed(); }
  constexpr double near() const { return packed().near(); }
  constexpr Packed packed() const {
    if constexpr (is_short) {
      return bits_ == 0 ? Packed() : Table::of_process().at(bits_);
    } else {
      const bool held = (bits_ & place_bits) == place_bits && !std::is_constant_evaluated() &&
                        Table::of_process().has(bits_ ^ place_bits);
      return held ? Table::of_process().at(bits_ ^ place_bits)
                  : Packed(std::bit_cast<float>(bits_), true);
    }
  }

 private:
  static constexpr Bits of(const Packed& number) {
    const double value = number.near();
    if (number.is_constant()) {
      if (value == 0) return 0;
      if constexpr (!is_short) {
        const auto rounded = static_cast<float>(value);
        if (value != value) return place_bits;
        if (rounded == value || std::is_constant_evaluated()) return std::bit_cast<Bits>(rounded);
      }
    }
    if constexpr (is_short) return static_cast<Bits>(Table::of_process().add_short(number));
    return static_cast<Bits>(place_bits | Table::of_process().add(number));
  }

  Bits bits_ = 0;
};

// Refuses an integer that is a number's place: the number has no bits.
inline void require_no_place(uint32_t bits) {
  if ((bits & place_bits) == place_bits && Table::of_process().has(bits ^ place_bits)) {
    throw std::runtime_error("opsmith exact: the kernel reads the bits of a number");
  }
}

}  // namespace opsmith::exact
