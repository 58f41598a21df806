// Declared conditions on values: ranges, order, sums; with the tests and the messages.
#pragma once

#include <opsmith/detail/show.h>

#include <cmath>
#include <cstdint>
#include <string>

namespace opsmith::detail {

// One side of a value range.
struct Limit {
  bool present = false;
  bool floating = false;
  int64_t integer = 0;
  double number = 0;

  Limit() = default;
  Limit(int64_t value) : present(true), integer(value), number(static_cast<double>(value)) {}
  Limit(double value) : present(true), floating(true), number(value) {}

  std::string text() const { return floating ? show(number) : show(integer); }
};

// A value range with its numbers; `high` is itself allowed unless `exclusive`, `low` unless
// `above`.
struct Range {
  Limit low;
  Limit high;
  bool exclusive = false;
  const char* start = nullptr;    // Extent: the argument that says where each run begins
  const char* reasons = nullptr;  // the expressions that the numbers come from
  bool above = false;

  std::string text() const {
    std::string text;
    if (start != nullptr) {
      text = join("0 <= value and ", start, " + value <= ", high.text());
    } else {
      if (low.present) text += low.text() + (above ? " < " : " <= ");
      text += "value";
      if (high.present) text += (exclusive ? " < " : " <= ") + high.text();
    }
    return reasons == nullptr ? text : join(text, " (", reasons, ")");
  }

  bool admits(double value) const {
    return (!low.present || (above ? value > low.number : value >= low.number)) &&
           (!high.present || (exclusive ? value < high.number : value <= high.number));
  }
  bool admits(int64_t value) const {
    if (above && value == low.integer) return false;
    if (low.present &&
        (low.floating ? static_cast<double>(value) < low.number : value < low.integer)) {
      return false;
    }
    if (!high.present) return true;
    if (high.floating) return static_cast<double>(value) <= high.number;
    return exclusive ? value < high.integer : value <= high.integer;
  }
};

// Whole numbers in one column of the last dimension.
struct Column {
  int64_t place;
  Range range;

  std::string text() const { return "a whole number with " + range.text(); }
  bool admits(double value) const { return range.admits(value) && value == std::floor(value); }
  bool admits(int64_t value) const { return range.admits(value); }
};

// The required first value, last value, or sum.
struct End {
  Limit limit;
  const char* reason = nullptr;  // the expression that the number comes from

  std::string text() const {
    return reason == nullptr ? limit.text() : join(limit.text(), " (", reason, ")");
  }
  bool admits(int64_t value) const {
    return limit.floating ? static_cast<double>(value) == limit.number : value == limit.integer;
  }
  bool admits(double value) const { return value == limit.number; }
};

// Values none of which is below (with `strict`: at or below) the one before it.
struct Order {
  End first;
  End last;
  bool strict = false;

  const char* text() const { return strict ? "strictly increasing values" : "sorted values"; }
  template <typename Value>
  bool admits(Value before, Value after) const {
    return strict ? after > before : after >= before;
  }
};

// Sizes, or the products of shapes, that add up to `total`.
struct Sum {
  End total;
  bool shapes = false;

  std::string text(int64_t found) const {
    return shapes ? join("has shapes of ", found, " elements together")
                  : join("adds up to ", found);
  }
};

// Values that are the sums of the sizes before them in the argument `of`.
struct Starts {
  const char* of;
  bool shapes = false;

  std::string text() const {
    return join("the ", shapes ? "elements of the shapes in" : "sum of", " '", of, "' before it");
  }
};

}  // namespace opsmith::detail
