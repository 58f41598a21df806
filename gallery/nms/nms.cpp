#include "nms.h"

#include <opsmith/kernel.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "iou.h"

namespace {

// Boxes in the order of their scores, a row for each coordinate: what compilers make vectors of.
template <typename S>
struct Sorted {
  std::span<S> x1, y1, x2, y2, areas;
};

// gone[j] |= whether box i overlaps box j, for j in (i, count).
template <typename S>
void mark(const Sorted<S>& boxes, int64_t i, int64_t count, S threshold, int32_t* gone) {
  const detection::Box<S> own = {boxes.x1[i], boxes.y1[i], boxes.x2[i], boxes.y2[i],
                                 boxes.areas[i]};
  const S *x1 = boxes.x1.data(), *y1 = boxes.y1.data(), *x2 = boxes.x2.data(),
          *y2 = boxes.y2.data(), *areas = boxes.areas.data();
  for (int64_t j = i + 1; j < count; ++j) {
    const detection::Box<S> other = {x1[j], y1[j], x2[j], y2[j], areas[j]};
    gone[j] |= detection::overlap(own, other) > threshold ? 1 : 0;
  }
}

}  // namespace

template <typename T>
void nms(const opsmith::Context& ctx, const detection::nms_args<T>& a) {
  using S = detection::Number<T>;
  std::vector<int64_t> order(a.N);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t i, int64_t j) { return detection::comes_before(a.scores.data(), i, j); });
  const Sorted<S> sorted = {ctx.scratch<S>(a.N), ctx.scratch<S>(a.N), ctx.scratch<S>(a.N),
                            ctx.scratch<S>(a.N), ctx.scratch<S>(a.N)};
  for (int64_t i = 0; i < a.N; ++i) {
    const auto box = detection::box_at(a.boxes.data(), order[i]);
    sorted.x1[i] = box.x1;
    sorted.y1[i] = box.y1;
    sorted.x2[i] = box.x2;
    sorted.y2[i] = box.y2;
    sorted.areas[i] = box.area;
  }
  std::vector<int32_t> gone(a.N, 0);
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < a.N; ++i) {
    if (gone[i] != 0) continue;
    kept.push_back(order[i]);
    mark(sorted, i, a.N, static_cast<S>(a.iou_threshold), gone.data());
  }
  const auto out = a.out.allocate({static_cast<int64_t>(kept.size())});
  std::copy(kept.begin(), kept.end(), out.data());
}
OPSMITH_KERNEL(detection, nms, cpu, float, double, opsmith::half, opsmith::bfloat16)
