#include "three_nearest.h"

#include <opsmith/kernel.h>

#include <limits>

template <typename T>
void three_nearest(const opsmith::Context& ctx, const today::three_nearest_args<T>& a) {
  ctx.parallel_for(0, a.B * a.N, 16, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t b = i / a.N;
      T* best = a.out0.data() + i * 3;
      int32_t* index = a.out1.data() + i * 3;
      for (int64_t place = 0; place < 3; ++place) best[place] = std::numeric_limits<T>::infinity();
      for (int64_t m = 0; m < a.M; ++m) {
        T square = 0;
        for (int64_t axis = 0; axis < 3; ++axis) {
          const T apart = a.points[i * 3 + axis] - a.known(b, m, axis);
          square += apart * apart;
        }
        // A point stands at the place behind all that are as near; so does one at infinity, which
        // the square of a large distance may be.
        int64_t place = m < 3 ? m : 3;
        while (place > 0 && square < best[place - 1]) --place;
        if (place == 3) continue;
        for (int64_t after = 2; after > place; --after) {
          best[after] = best[after - 1];
          index[after] = index[after - 1];
        }
        best[place] = square;
        index[place] = static_cast<int32_t>(m);
      }
    }
  });
}
OPSMITH_KERNEL(today, three_nearest, cpu, float, double)
