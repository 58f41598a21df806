// The operations of references on arrays of numbers that are never rounded.
//
// An array is three: values in double precision, residues (p, then q), doubts (of p, then of q).
#include "functions.h"

#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using namespace opsmith::exact;

struct Array {
  double* values;
  uint32_t* residues;
  uint32_t* doubts;

  Content get(int64_t i) const {
    return {values[i], residues[2 * i], residues[2 * i + 1], doubts[2 * i], doubts[2 * i + 1]};
  }
  void set(int64_t i, const Content& a) const {
    values[i] = a.value;
    residues[2 * i] = a.p, residues[2 * i + 1] = a.q;
    doubts[2 * i] = a.doubts_p, doubts[2 * i + 1] = a.doubts_q;
  }
};

using One = Content (*)(Content);
using Two = Content (*)(Content, Content);

One one_of(const char* name) {
#define OPSMITH_NAMED(function) \
  if (std::strcmp(name, #function) == 0) return functions::function;
  OPSMITH_EXACT_FUNCTIONS(OPSMITH_NAMED)
  OPSMITH_NAMED(neg) OPSMITH_NAMED(rsqrt) OPSMITH_NAMED(sigmoid) return nullptr;
}

Content maximum(Content a, Content b) {
  return std::isnan(a.value) ? a : std::isnan(b.value) || order(a, b) == -1 ? b : a;
}
Content minimum(Content a, Content b) {
  return std::isnan(a.value) ? a : std::isnan(b.value) || order(a, b) == 1 ? b : a;
}

Two two_of(const char* name) {
#define OPSMITH_CALLED(text, function) \
  if (std::strcmp(name, text) == 0) return function;
  OPSMITH_CALLED("add", add)
  OPSMITH_CALLED("sub", subtract)
  OPSMITH_CALLED("mul", multiply)
  OPSMITH_CALLED("div", divide)
  OPSMITH_CALLED("maximum", maximum)
  OPSMITH_CALLED("minimum", minimum)
  OPSMITH_EXACT_FUNCTIONS_OF_TWO(OPSMITH_NAMED)
  return nullptr;
}

}  // namespace

EXPORT void opsmith_exact_select(int32_t position) { field() = make_field(primes[position & 3]); }

EXPORT int32_t opsmith_exact_one(const char* name, int64_t count, Array a, Array out) {
  const One function = one_of(name);
  if (function == nullptr) return 1;
  for (int64_t i = 0; i < count; ++i) out.set(i, function(a.get(i)));
  return 0;
}

EXPORT int32_t opsmith_exact_two(const char* name, int64_t count, Array a, Array b, Array out) {
  const Two function = two_of(name);
  if (function == nullptr) return 1;
  for (int64_t i = 0; i < count; ++i) out.set(i, function(a.get(i), b.get(i)));
  return 0;
}

EXPORT void opsmith_exact_constants(int64_t count, const double* values, Array out) {
  for (int64_t i = 0; i < count; ++i) out.set(i, number_of(values[i]));
}

// Residues for arguments: equal values get equal ones, opposite values opposite ones. Halves,
// quarters and so on of small integers stay what they are, since a caller may mean them.
EXPORT void opsmith_exact_draw(int64_t count, const double* values, uint64_t seed, Array out) {
  const Field& f = field();
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i], size = std::fabs(value);
    const double sixteenths = size * 16;
    if (!std::isfinite(value) || (sixteenths == std::rint(sixteenths) && size <= 1024)) {
      out.set(i, number_of(value));
      continue;
    }
    const uint64_t bits = std::bit_cast<uint64_t>(size);
    Content a;
    a.value = size;
    a.p = static_cast<uint32_t>(Field::mix(bits, seed * 2) % f.p);
    a.q = static_cast<uint32_t>(Field::mix(bits, seed * 2 + 1) % f.q);
    out.set(i, value < 0 ? negative(a) : a);
  }
}

// To and from the memory of a kernel. Constants that are still without residues get them.
EXPORT void opsmith_exact_pack(int64_t count, Array a, Packed* memory) {
  for (int64_t i = 0; i < count; ++i) memory[i] = Packed(a.get(i));
}
EXPORT void opsmith_exact_unpack(int64_t count, const Packed* memory, Array out) {
  for (int64_t i = 0; i < count; ++i) out.set(i, resolved(memory[i]));
}

EXPORT void opsmith_exact_order(int64_t count, Array a, Array b, int8_t* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<int8_t>(order(a.get(i), b.get(i)));
}

EXPORT int32_t opsmith_exact_fold(const char* name, double start, int64_t rows, int64_t count,
                                  Array a, Array out, int32_t cumulative) {
  const Two function = two_of(name);
  if (function == nullptr) return 1;
  for (int64_t row = 0; row < rows; ++row) {
    Content sum = count > 0 ? a.get(row * count) : number_of(start);
    if (cumulative && count > 0) out.set(row * count, sum);
    for (int64_t i = 1; i < count; ++i) {
      sum = function(sum, a.get(row * count + i));
      if (cumulative) out.set(row * count + i, sum);
    }
    if (!cumulative) out.set(row, sum);
  }
  return 0;
}

// The position of the first largest (or smallest) number of each row; a NaN is before all.
EXPORT void opsmith_exact_extreme(int64_t rows, int64_t count, Array a, int32_t largest,
                                  int64_t* out) {
  for (int64_t row = 0; row < rows; ++row) {
    int64_t best = 0;
    for (int64_t i = 1; i < count; ++i) {
      const Content there = a.get(row * count + best), here = a.get(row * count + i);
      if (std::isnan(there.value)) break;
      if (std::isnan(here.value) || order(here, there) == (largest ? 1 : -1)) best = i;
    }
    out[row] = best;
  }
}

// out[b, i, j] = sum over l of a[b, i, l] * c[b, l, j].
EXPORT void opsmith_exact_product(int64_t batch, int64_t rows, int64_t inner, int64_t columns,
                                  Array a, Array c, Array out) {
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        Content sum = number_of(0);
        for (int64_t l = 0; l < inner; ++l) {
          sum = add(sum, multiply(a.get((b * rows + i) * inner + l),
                                  c.get((b * inner + l) * columns + j)));
        }
        out.set((b * rows + i) * columns + j, sum);
      }
    }
  }
}
