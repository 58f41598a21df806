// Rows of numbers by one of some formulas. `how` is the way of computing it where it is not
// negative; else it plants a fault that no tolerance of single precision shows:
//   -1 an argument off by 1e-9, -2 a weight off by 1e-9, -3 a stray 1e-10, -4 a constant that is
//   wrong in its ninth digit, -5 the last element off by 1e-8, -6 a fault of the formula's own.
#include <opsmith/kernel.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "formulas.h"

namespace {

template <typename T>
struct Row {
  std::vector<T> x, y, w;
  int64_t how;
  T* out;

  int64_t size() const { return static_cast<int64_t>(x.size()); }
  bool is(int64_t fault) const { return how == -fault; }
  // The stray term of fault -3, and a constant with fault -4.
  T stray() const { return is(3) ? T(1e-10) : T(0); }
  T constant(double right) const { return is(4) ? T(right * (1 + 3e-9)) : T(right); }
};

template <typename T>
T pairwise(const T* from, int64_t count) {
  if (count == 0) return T(0);
  if (count == 1) return *from;
  return pairwise(from, count / 2) + pairwise(from + count / 2, count - count / 2);
}

template <typename T>
T sum(const std::vector<T>& values, int64_t way) {
  T total = 0;
  if (way == 1) {
    for (auto at = values.rbegin(); at != values.rend(); ++at) total += *at;
  } else if (way == 2) {
    total = pairwise(values.data(), static_cast<int64_t>(values.size()));
  } else if (way == 3) {  // Kahan
    T lost = 0;
    for (const T& value : values) {
      const T term = value - lost, next = total + term;
      lost = (next - total) - term;
      total = next;
    }
  } else {
    for (const T& value : values) total += value;
  }
  return total;
}

template <typename T>
T dot(const std::vector<T>& a, const std::vector<T>& b, int64_t way) {
  if (way == 1) {
    T total = 0;
    for (size_t i = 0; i < a.size(); ++i) total = std::fma(a[i], b[i], total);
    return total;
  }
  std::vector<T> products(a.size());
  for (size_t i = 0; i < a.size(); ++i) products[i] = a[i] * b[i];
  return sum(products, way);
}

template <typename T>
void moments(const Row<T>& r, T& mean, T& variance) {
  const auto count = static_cast<T>(r.size());
  if (r.how == 1) {  // Welford
    mean = 0;
    T squares = 0;
    for (int64_t i = 0; i < r.size(); ++i) {
      const T step = r.x[i] - mean;
      mean += step / static_cast<T>(i + 1);
      squares += step * (r.x[i] - mean);
    }
    variance = squares / count;
  } else if (r.how == 2) {  // in one pass
    mean = sum(r.x, 2) / count;
    variance = std::max(dot(r.x, r.x, 1) / count - mean * mean, T(0));
  } else {
    mean = (sum(r.x, 0) + r.stray()) / count;
    variance = 0;
    for (const T& x : r.x) variance += (x - mean) * (x - mean);
    variance = variance / count;
  }
}

template <typename T>
void softmax(const Row<T>& r, const std::vector<T>& scores, std::vector<T>& shares) {
  const size_t count = scores.size();
  T most = -std::numeric_limits<T>::infinity(), total = r.stray();
  if (r.how == 1) {  // online
    for (const T& score : scores) {
      const T next = std::max(most, score);
      total = total * std::exp(most - next) + std::exp(score - next);
      most = next;
    }
  } else if (r.how == 2) {  // without the maximum
    most = 0;
    for (const T& score : scores) total += std::exp(score);
  } else {
    for (const T& score : scores) most = std::max(most, score);
    for (const T& score : scores) total += std::exp(score - most);
  }
  if (r.is(6) && count > 0) total += T(1e-7) * std::exp(scores[0] - most);
  for (size_t i = 0; i < count; ++i) shares[i] = std::exp(scores[i] - most) / total;
}

template <typename T>
T sigmoid(T x, int64_t how) {
  if (how == 1) return std::exp(x) / (T(1) + std::exp(x));
  if (how == 2) return T(0.5) * (T(1) + std::tanh(x / T(2)));
  return 1 / (1 + std::exp(-x));
}

template <typename T>
void fill(const Row<T>& r, int64_t which) {
  const auto& [x, y, w, how, out] = r;
  const int64_t size = r.size();
  const auto count = static_cast<T>(size);
  const T stray = r.stray();
  std::vector<T> work(size);
  switch (which) {
    case 0: {  // a sum
      T total = sum(x, how) * r.constant(0.5) + stray;
      if (r.is(6)) total += x[0] * x[0] * T(1e-11);
      for (int64_t i = 0; i < size; ++i) out[i] = total * w[i];
      break;
    }
    case 1: {  // centred
      T mean = how == 1 ? sum(x, 2) * (T(1) / count) : sum(x, 0) / count;
      if (how == 2) {
        mean = 0;
        for (const T& one : x) mean += one / count;
      }
      if (r.is(6)) mean = sum(x, 0) / (count + T(1e-9));
      for (int64_t i = 0; i < size; ++i) out[i] = (x[i] * r.constant(1.5) - mean) * w[i] + stray;
      break;
    }
    case 2: {  // variance
      T mean, variance;
      moments(r, mean, variance);
      if (r.is(6)) variance += mean * T(1e-9);
      for (int64_t i = 0; i < size; ++i) {
        out[i] = r.constant(0.25) * variance * w[i] + (r.is(3) ? stray : T(0));
      }
      break;
    }
    case 3: {  // RMS norm
      const T eps = r.constant(0.05);
      T square = dot(x, x, how) / count + eps + stray;
      if (r.is(6)) square = (dot(x, x, 0) + eps) / count;
      T root = std::sqrt(square);
      if (how == 4) {  // functions of single precision, of integers
        const T part = 1.0 / sqrtf(size), whole = 1.0 * powf(size, 0.5f);
        root = std::sqrt(square * count) * part * part * whole;
      }
      for (int64_t i = 0; i < size; ++i) {
        out[i] = how == 1 ? x[i] / root * w[i] : x[i] * (1 / root) * w[i];
      }
      break;
    }
    case 4: {  // layer norm
      T mean, variance;
      moments(r, mean, variance);
      const T root = std::sqrt(variance + r.constant(0.05));
      for (int64_t i = 0; i < size; ++i) {
        out[i] = (x[i] - mean) / root * w[i] + y[i];
        if (r.is(6)) out[i] += y[i] * T(1e-10);  // the bias a second time
      }
      break;
    }
    case 5: {  // softmax
      for (int64_t i = 0; i < size; ++i) work[i] = x[i] * r.constant(0.75);
      softmax(r, work, work);
      for (int64_t i = 0; i < size; ++i) out[i] = work[i] * w[i];
      break;
    }
    case 6: {  // log of softmax
      T most = how == 1 ? T(0) : *std::max_element(x.begin(), x.end());
      T total = stray;
      for (const T& one : x) total += std::exp(one - most);
      T log_total = most + std::log(total) * r.constant(1.0);
      if (r.is(6)) log_total += T(1e-9) * x[0];
      for (int64_t i = 0; i < size; ++i) out[i] = (x[i] - log_total) * w[i];
      break;
    }
    case 7:  // a gate
      for (int64_t i = 0; i < size; ++i) {
        T open = sigmoid(y[i] * r.constant(1.25), how) + stray;
        if (r.is(6)) open -= T(2e-10) * y[i];
        out[i] = x[i] * w[i] * open;
      }
      break;
    case 8:  // GELU by tanh
      for (int64_t i = 0; i < size; ++i) {
        T cube = x[i] * x[i] * x[i];
        if (r.is(6)) cube += T(1e-9) * x[i];
        const T inner = T(M_2_SQRTPI * M_SQRT1_2) * (x[i] + r.constant(0.044715) * cube);
        out[i] = how == 1 ? x[i] * sigmoid(2 * inner, 0) * w[i]
                          : T(0.5) * x[i] * (1 + std::tanh(inner)) * w[i] + stray;
      }
      break;
    case 9:  // GELU
      for (int64_t i = 0; i < size; ++i) {
        if (how == 2) {
          out[i] = T(0.5) * x[i] * std::erfc(-x[i] / std::sqrt(T(2))) * w[i];
          continue;
        }
        const T inner = how == 1 ? x[i] / std::sqrt(T(2)) : x[i] * T(M_SQRT1_2);
        out[i] = r.constant(0.5) * x[i] * (1 + std::erf(inner)) * w[i] + stray;
        if (r.is(6)) out[i] += T(1e-9) * x[i] * x[i];
      }
      break;
    case 10:  // a polynomial
      for (int64_t i = 0; i < size; ++i) {
        const T a = r.constant(0.3), v = x[i];
        T value;
        if (how == 1) {
          value = ((a * v + T(3)) * v + T(2)) * v + T(1);
        } else if (how == 2) {
          value = std::fma(std::fma(std::fma(a, v, T(3)), v, T(2)), v, T(1));
        } else if (how == 3) {
          value = a * std::pow(v, 3) + 3 * std::pow(v, T(2)) + 2 * v + 1;
        } else {
          value = a * v * v * v + 3.0f * v * v + 2 * v + 1 + stray;
        }
        if (r.is(6)) value += T(1e-10) * v * v * v * v;
        out[i] = value * w[i];
      }
      break;
    case 11: {  // a dot product
      T total = dot(x, y, how) * r.constant(0.125) + stray;
      if (r.is(6)) total -= T(1e-9) * y[size - 1] * x[size - 1];
      for (int64_t i = 0; i < size; ++i) out[i] = total * w[i];
      break;
    }
    case 12:  // a circular convolution
      for (int64_t i = 0; i < size; ++i) {
        T total = 0;
        if (how == 1) {
          for (int64_t begin = 0; begin < size; begin += 4) {
            T part = 0;
            for (int64_t k = begin; k < std::min(begin + 4, size); ++k) {
              part += x[k] * y[(i + k) % size];
            }
            total += part;
          }
        } else {
          for (int64_t k = size; k-- > 0;) total += x[k] * y[(i + k) % size];
        }
        if (r.is(6) && i == size / 2) total *= T(1) - T(1e-9);
        out[i] = r.constant(2.5) * total * w[i] + stray;
      }
      break;
    case 13: {  // running sums
      T total = stray;
      for (int64_t i = 0; i < size; ++i) {
        total += x[i] * r.constant(0.5);
        if (r.is(6) && i == size - 1) total += T(1e-9) * x[0];
        T here = total;
        if (how == 1) {
          here = 0;
          for (int64_t k = i; k >= 0; --k) here += x[k];
          here /= T(2);
        }
        out[i] = here * w[i];
      }
      break;
    }
    case 14: {  // of length 1
      T square = dot(x, x, how == 1 ? 3 : 0) + stray;
      if (r.is(6)) square += T(1e-9) * x[0];
      const T length = std::sqrt(square);
      for (int64_t i = 0; i < size; ++i) {
        out[i] = (how == 1 ? x[i] * (w[i] / length) : x[i] / length * w[i]) * r.constant(3.5);
      }
      break;
    }
    case 15: {  // a cosine
      const T a = dot(x, x, 0), b = dot(y, y, 0);
      T value = dot(x, y, 0) * r.constant(1.75) + stray;
      value /= how == 1 ? std::sqrt(a * b) : std::sqrt(a) * std::sqrt(b);
      if (r.is(6)) value += T(1e-9) * a;
      for (int64_t i = 0; i < size; ++i) out[i] = value * w[i];
      break;
    }
    case 16: {  // maxima
      T most = x[0];
      for (const T& one : x) most = how == 1 ? (one > most ? one : most) : std::fmax(most, one);
      for (int64_t i = 0; i < size; ++i) {
        T above = how == 2 ? (y[i] < 0 ? 0 : y[i]) : std::max(y[i], T(0));
        if (r.is(6)) above = std::max(y[i] * T(1 + 1e-9), T(0));
        out[i] = (most * r.constant(0.5) + above) * w[i] + stray;
      }
      break;
    }
    case 17:  // softplus
      for (int64_t i = 0; i < size; ++i) {
        T value = std::log1p(std::exp(x[i]));
        if (how == 1) value = std::max(x[i], T(0)) + std::log1p(std::exp(-std::abs(x[i])));
        if (how == 2) value = std::log(1 + std::exp(x[i]));
        if (r.is(6)) value += T(1e-9) * x[i];
        out[i] = value * r.constant(0.5) * w[i] + stray;
      }
      break;
    case 18: {  // attention of one query
      for (int64_t i = 0; i < size; ++i) work[i] = x[i] * y[i] * r.constant(0.5);
      softmax(r, work, work);
      const T total = dot(work, w, how == 1 ? 2 : 0);
      for (int64_t i = 0; i < size; ++i) out[i] = total + y[i];
      break;
    }
    case 19:  // quotients
      for (int64_t i = 0; i < size; ++i) {
        T below = x[i] * x[i] + r.constant(1.5) + stray;
        if (r.is(6)) below += T(1e-10) * y[i] * y[i];
        out[i] = (how == 1 ? x[i] / below + y[i] / below : (x[i] + y[i]) / below) * w[i];
      }
      break;
    default: {  // a product of 2 x 2 matrices
      const T k = r.constant(1.5);
      T a = x[0] + stray, b = x[1 % size], c = x[2 % size], d = x[3 % size];
      const T e = y[0], f = y[1 % size], g = y[2 % size], h = y[3 % size];
      if (r.is(6)) d += T(1e-9) * a;
      T product[4];
      if (how == 1) {  // Strassen
        const T m1 = (a + d) * (e + h), m2 = (c + d) * e, m3 = a * (f - h), m4 = d * (g - e);
        const T m5 = (a + b) * h, m6 = (c - a) * (e + f), m7 = (b - d) * (g + h);
        product[0] = m1 + m4 - m5 + m7, product[1] = m3 + m5;
        product[2] = m2 + m4, product[3] = m1 - m2 + m3 + m6;
      } else {
        product[0] = a * e + b * g, product[1] = a * f + b * h;
        product[2] = c * e + d * g, product[3] = c * f + d * h;
      }
      for (int64_t i = 0; i < size; ++i) out[i] = product[i % 4] * k * w[i];
    }
  }
  if (r.is(5)) out[size - 1] *= T(1 + 1e-8);
}

}  // namespace

template <typename T>
void formulas(const opsmith::Context&, const exact_tests::formulas_args<T>& a) {
  if (a.C == 0) return;
  for (int64_t n = 0; n < a.N; ++n) {
    Row<T> row{{}, {}, {}, a.how, a.out.data() + n * a.C};
    row.x.assign(a.x.data() + n * a.C, a.x.data() + (n + 1) * a.C);
    row.y.assign(a.y.data() + n * a.C, a.y.data() + (n + 1) * a.C);
    row.w.assign(a.w.data(), a.w.data() + a.C);
    if (row.is(1)) row.x[0] *= T(1 + 1e-9);
    if (row.is(1)) row.y[0] *= T(1 + 1e-9);
    if (row.is(2)) row.w[a.C - 1] *= T(1 + 1e-9);
    fill(row, a.which);
  }
}
OPSMITH_KERNEL(exact_tests, formulas, cpu, float)
