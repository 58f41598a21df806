// Vectors of numbers for the inner loops of kernels on the host, one in each register:
//
//     #include <opsmith/vec.h>
//
//     using V = opsmith::Vec<T, opsmith::lanes<T>>;
//     V sum = {};
//     int64_t c = 0;
//     for (; c + V::lanes <= count; c += V::lanes) sum += V::load(x + c) * V::load(y + c);
//     T total = sum.sum();
//     for (; c < count; ++c) total += x[c] * y[c];
//
// Beneath are the vector extensions of GCC and clang. The numbers of the row `exact`, which are
// never rounded, have vectors too: arrays, so that the same source is compared.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

namespace opsmith {

// The size of a vector register of the CPU that the kernel is compiled for.
#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32;
#else
inline constexpr int vector_bytes = 16;
#endif
template <typename T>
inline constexpr int lanes = vector_bytes / static_cast<int>(sizeof(T));

namespace detail {

// What holds the lanes.
template <typename T, int N>
struct lanes_of {
  struct type {
    T items[N];

    constexpr T operator[](int i) const { return items[i]; }
    T& operator[](int i) { return items[i]; }
  };
};
template <typename T, int N>
  requires(std::is_integral_v<T> || std::is_same_v<T, float> || std::is_same_v<T, double>)
struct lanes_of<T, N> {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <typename T, int N>
inline constexpr bool in_register = !std::is_class_v<typename lanes_of<T, N>::type>;

}  // namespace detail

// N numbers, N a power of two. Arithmetic is by lanes; a number stands for N equal ones.
template <typename T, int N>
class Vec {
  using Lanes = typename detail::lanes_of<T, N>::type;
  static constexpr bool in_register = detail::in_register<T, N>;

 public:
  static constexpr int lanes = N;

  Vec() = default;  // the lanes are not set; `Vec{}` and `= {}` are zero

  // From and to memory of any alignment.
  static Vec load(const T* from) {
    Vec result;
    std::memcpy(static_cast<void*>(&result), static_cast<const void*>(from), sizeof result);
    return result;
  }
  void store(T* to) const {
    std::memcpy(static_cast<void*>(to), static_cast<const void*>(this), sizeof *this);
  }

  static Vec fill(T value) {
    Vec result;
    if constexpr (in_register) {
      // Minus zero, not plus: only that changes no value, so only that costs no instruction.
      result.lanes_ = value - Lanes{};
    } else {
      for (T& item : result.lanes_.items) item = value;
    }
    return result;
  }

  // The first `count` lanes; the others are zero.
  Vec first(int64_t count) const {
    if constexpr (in_register) {
      return [this]<int... lane>(T stop, std::integer_sequence<int, lane...>) {
        return Vec(Lanes{static_cast<T>(lane)...} < fill(stop).lanes_ ? lanes_ : Lanes{});
      }(static_cast<T>(count), std::make_integer_sequence<int, N>{});
    } else {
      Vec result = {};
      for (int i = 0; i < N && i < count; ++i) result.lanes_.items[i] = lanes_.items[i];
      return result;
    }
  }

  // Adds the upper half of the lanes to the lower one, and so on: a chain of additions would wait
  // for each.
  T sum() const {
    Lanes all = lanes_;
    if constexpr (in_register) {
      return fold<N / 2>(all);
    } else {
      for (int half = N / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) all.items[i] += all.items[i + half];
      }
      return all.items[0];
    }
  }

  T operator[](int lane) const { return lanes_[lane]; }

#define OPSMITH_LANES(op)                                                         \
  friend Vec operator op(Vec a, Vec b) {                                          \
    if constexpr (in_register) {                                                  \
      return Vec(a.lanes_ op b.lanes_);                                           \
    } else {                                                                      \
      for (int i = 0; i < N; ++i) a.lanes_.items[i] = a.lanes_[i] op b.lanes_[i]; \
      return a;                                                                   \
    }                                                                             \
  }                                                                               \
  friend Vec operator op(T a, Vec b) { return fill(a) op b; }                     \
  friend Vec operator op(Vec a, T b) { return a op fill(b); }                     \
  Vec& operator op## = (Vec other) { return *this = *this op other; }             \
  Vec& operator op## = (T other) { return *this = *this op other; }
  OPSMITH_LANES(+)
  OPSMITH_LANES(-)
  OPSMITH_LANES(*)
  OPSMITH_LANES(/)
#undef OPSMITH_LANES

  // The lanes `lane...` of two vectors side by side.
  template <int... lane>
  static Vec shuffle(Vec a, Vec b) {
    static_assert(sizeof...(lane) == N);
    if constexpr (in_register) {
#if defined(__clang__)
      return Vec(__builtin_shufflevector(a.lanes_, b.lanes_, lane...));
#else
      using Index = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
      typedef Index Indices __attribute__((vector_size(N * sizeof(Index))));
      return Vec(__builtin_shuffle(a.lanes_, b.lanes_, Indices{lane...}));
#endif
    } else {
      constexpr int from[] = {lane...};
      Vec result;
      for (int i = 0; i < N; ++i)
        result.lanes_.items[i] = from[i] < N ? a[from[i]] : b[from[i] - N];
      return result;
    }
  }

 private:
  explicit Vec(Lanes all) : lanes_(all) {}

  // The indices are constants, which is what makes this a few shuffles.
  template <int half>
  static T fold(Lanes value) {
    if constexpr (half == 0) {
      return value[0];
    } else {
      const Vec all(value);
      const Vec other = [&]<int... lane>(std::integer_sequence<int, lane...>) {
        return shuffle<(lane ^ half)...>(all, all);
      }(std::make_integer_sequence<int, N>{});
      return fold<half / 2>(value + other.lanes_);
    }
  }

  Lanes lanes_;
};

}  // namespace opsmith
