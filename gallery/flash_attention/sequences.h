// What the kernels of both forms share: whose queries see which keys.
#pragma once

#include <opsmith/math.h>

#include <cstdint>

namespace attention {

// The queries of a sequence and its keys, places in the rows of all.
struct Sequence {
  int64_t query, queries, key, keys;

  // How many of its keys a query sees.
  OPSMITH_HOST_DEVICE int64_t visible(int64_t token, bool causal) const {
    if (!causal) return keys;
    const int64_t last = token + 1 + keys - queries;
    return last < 0 ? 0 : last;
  }
  // The first of its queries that sees a key.
  OPSMITH_HOST_DEVICE int64_t first_query(int64_t place, bool causal) const {
    const int64_t first = place + queries - keys;
    return !causal || first < 0 ? 0 : first;
  }
};

// What scores have subtracted before their exponentials: the largest. Where products overflow it is
// infinite, and would make NaN even of the logarithm.
template <typename S>
OPSMITH_HOST_DEVICE S shift_of(S largest) {
  return largest - largest == S(0) ? largest : S(0);
}

// The arguments of all four operators. Rows of a key head are its queries, token by token, in each
// of its group of heads: so a block of keys serves them all.
template <typename T, typename S>
struct Arguments {
  const T *query, *key, *value;
  const int32_t *query_offsets, *key_offsets;  // null where lengths are equal
  int64_t sequences, queries, keys;            // of each sequence, or of all with offsets
  int64_t heads, group, depth, width;          // of keys; of queries to each; of a key; of a value
  bool causal;
  S scale;

  OPSMITH_HOST_DEVICE Sequence sequence(int64_t s) const {
    if (query_offsets == nullptr) return {s * queries, queries, s * keys, keys};
    const int64_t query = query_offsets[s], key = key_offsets[s];
    return {query, query_offsets[s + 1] - query, key, key_offsets[s + 1] - key};
  }
  // The place of a row among all queries' heads, and of a key's head among all keys' heads.
  OPSMITH_HOST_DEVICE int64_t row(const Sequence& own, int64_t head, int64_t r) const {
    return ((own.query + r / group) * heads + head) * group + r % group;
  }
  OPSMITH_HOST_DEVICE int64_t key_row(const Sequence& own, int64_t head, int64_t s) const {
    return (own.key + s) * heads + head;
  }
};

// The arguments of an operator, of its declared names.
template <typename T, typename S, typename Args>
Arguments<T, S> arguments_of(const Args& a) {
  Arguments<T, S> found = {a.query.data(),
                           a.key.data(),
                           a.value.data(),
                           nullptr,
                           nullptr,
                           0,
                           0,
                           0,
                           a.K,
                           a.G,
                           a.D,
                           a.E,
                           a.causal,
                           static_cast<S>(a.scale)};
  if constexpr (requires { a.query_offsets; }) {
    found.query_offsets = a.query_offsets.data();
    found.key_offsets = a.key_offsets.data();
    found.sequences = a.R;
    found.queries = a.N;
    found.keys = a.M;
  } else {
    found.sequences = a.B;
    found.queries = a.T;
    found.keys = a.S;
  }
  return found;
}

}  // namespace attention
