// Whether elements of tensors share memory, as in opsmith/operators/core/overlap.py.
#pragma once

#include <opsmith/detail/show.h>
#include <opsmith/detail/values.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace opsmith::detail {

// The memory that a tensor spans, from its first byte to one past the last; strides may be
// negative.
inline std::pair<const char*, const char*> span(const DLTensor& tensor) {
  int64_t lowest = 0;
  int64_t highest = 0;
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] == 0) return {};
    const int64_t reach = (tensor.shape[i] - 1) * tensor.strides[i];
    (reach < 0 ? lowest : highest) += reach;
  }
  const int64_t size = tensor.dtype.bits / 8;
  const char* first = static_cast<const char*>(tensor.data);
  return {first + lowest * size, first + (highest + 1) * size};
}

// Whether a tensor that begins after `offset` elements of its storage ends within its `bytes`
// bytes.
inline bool is_within(const DLTensor& tensor, int64_t offset, int64_t bytes) {
  const auto [begin, end] = span(tensor);
  const char* first = static_cast<const char*>(tensor.data);
  return begin == end || end - first <= bytes - offset * (tensor.dtype.bits / 8);
}

// Whether the memory that two tensors span overlaps; their elements may still be disjoint.
inline bool spans_meet(const DLTensor& one, const DLTensor& other) {
  const auto [begin, end] = span(one);
  const auto [other_begin, other_end] = span(other);
  return begin < other_end && other_begin < end;
}

// Steps, each of which may be taken from 0 to `most` times, and the target distance.
class Steps {
 public:
  explicit Steps(int64_t target) : target_(target) {}

  void add(int64_t size, int64_t most) {
    if (size == 0 || most <= 0) return;
    // k steps backwards equal `most - k` steps forwards from the far end.
    if (size < 0) target_ -= size * most;
    steps_.push_back({std::abs(size), most});
  }

  // Whether some combination of the steps has exactly the target distance.
  bool lead() {
    while (merge()) {
    }
    std::sort(steps_.begin(), steps_.end(),
              [](const Step& one, const Step& other) { return one.size > other.size; });
    return lead(0, target_);
  }

 private:
  struct Step {
    int64_t size, most;
  };

  // Merges two steps that together reach every multiple of the smaller one, as adjacent dimensions
  // do. The remaining steps allow few combinations.
  bool merge() {
    for (Step& small : steps_) {
      for (Step& large : steps_) {
        const int64_t times = large.size / small.size;
        if (&small == &large || large.size % small.size != 0 || times > small.most + 1) continue;
        small.most += times * large.most;
        large = steps_.back();
        steps_.pop_back();
        return true;
      }
    }
    return false;
  }

  bool lead(size_t first, int64_t target) const {
    if (target == 0) return true;
    if (target < 0 || first == steps_.size()) return false;
    const Step& step = steps_[first];
    int64_t reach = 0;
    int64_t divisor = 0;
    for (size_t i = first + 1; i < steps_.size(); ++i) {
      reach += steps_[i].size * steps_[i].most;
      divisor = std::gcd(divisor, steps_[i].size);
    }
    for (int64_t times = std::min(step.most, target / step.size); times >= 0; --times) {
      const int64_t rest = target - times * step.size;
      if (rest == 0) return true;
      if (rest > reach) return false;
      if (rest % divisor == 0 && lead(first + 1, rest)) return true;
    }
    return false;
  }

  std::vector<Step> steps_;
  int64_t target_;
};

// Whether two elements of a tensor have the same address.
inline bool overlaps_itself(const DLTensor& tensor) {
  if (is_contiguous(tensor)) return false;         // as one without elements is
  std::vector<std::pair<int64_t, int64_t>> steps;  // from the largest: its size, and how often
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] > 1) steps.emplace_back(std::abs(tensor.strides[i]), tensor.shape[i] - 1);
  }
  std::sort(steps.rbegin(), steps.rend());
  int64_t reach = 0;
  bool nested = true;
  for (size_t i = steps.size(); i-- > 0;) {
    nested &= steps[i].first > reach;
    reach += steps[i].first * steps[i].second;
  }
  if (nested) return false;
  // Steps between two elements at one address cancel out: at least one of the largest step in use,
  // forwards, and the smaller ones in both directions.
  for (size_t i = 0; i < steps.size(); ++i) {
    Steps back(-steps[i].first);
    back.add(steps[i].first, steps[i].second - 1);
    for (size_t j = i + 1; j < steps.size(); ++j) {
      back.add(steps[j].first, steps[j].second);
      back.add(-steps[j].first, steps[j].second);
    }
    if (back.lead()) return true;
  }
  return false;
}

// Whether an element of one tensor shares a byte with an element of the other.
inline bool share_elements(const DLTensor& one, const DLTensor& other) {
  if (!spans_meet(one, other)) return false;
  if (is_contiguous(one) && is_contiguous(other)) return true;
  const int64_t size = one.dtype.bits / 8;
  const int64_t other_size = other.dtype.bits / 8;
  // Go from an element of one tensor to one of the other, and then to a byte that both have.
  Steps steps(static_cast<const char*>(one.data) - static_cast<const char*>(other.data) + size - 1);
  steps.add(1, size + other_size - 2);
  for (int32_t i = 0; i < one.ndim; ++i) steps.add(-one.strides[i] * size, one.shape[i] - 1);
  for (int32_t i = 0; i < other.ndim; ++i) {
    steps.add(other.strides[i] * other_size, other.shape[i] - 1);
  }
  return steps.lead();
}

// The memory that written tensors span, in order, so that a tensor of a long list meets the others
// without a comparison with each.
class Spans {
 public:
  // `tensors` outlive this object.
  Spans(const DLTensor* tensors, int64_t count) : tensors_(tensors) {
    for (int64_t i = 0; i < count; ++i) {
      const auto [begin, end] = span(tensors[i]);
      if (begin != end) spans_.push_back({begin, end, nullptr, i});
    }
    std::sort(spans_.begin(), spans_.end(),
              [](const Span& one, const Span& other) { return one.begin < other.begin; });
    const char* reached = nullptr;
    for (Span& one : spans_) one.reached = reached = std::max(reached, one.end);
  }

  // Returns whether the memory that a tensor spans meets that of one of these.
  bool meet(const DLTensor& tensor) const {
    bool found = false;
    each_that_meets(tensor, [&](int64_t) { found = true; });
    return found;
  }

  // The first of these, among those before `before`, that shares elements with a tensor; -1 if none
  // does.
  int64_t first_shared(const DLTensor& tensor, int64_t before = INT64_MAX) const {
    int64_t first = before;
    each_that_meets(tensor, [&](int64_t item) {
      if (item < first && share_elements(tensor, tensors_[item])) first = item;
    });
    return first == before ? -1 : first;
  }

 private:
  struct Span {
    const char* begin;
    const char* end;
    const char* reached;  // the furthest end up to here
    int64_t item;
  };

  template <typename Visit>
  void each_that_meets(const DLTensor& tensor, Visit&& visit) const {
    const auto [begin, end] = span(tensor);
    if (begin == end) return;
    auto at = std::lower_bound(spans_.begin(), spans_.end(), end,
                               [](const Span& one, const char* here) { return one.begin < here; });
    while (at != spans_.begin() && (--at)->reached > begin) {
      if (at->end > begin) visit(at->item);
    }
  }

  const DLTensor* tensors_;
  std::vector<Span> spans_;
};

// The name of an argument, or of an item of a list.
inline std::string item_name(const char* name, int64_t item) {
  return item < 0 ? name : join(name, "[", item, "]");
}

// Refuses to write into two tensors that share elements. `item`, `other_item`: the places in lists,
// -1 for an argument that is a tensor.
[[noreturn]] inline void refuse_shared(const char* op, const char* name, int64_t item,
                                       const char* other_name, int64_t other_item) {
  throw call_error(join(op, ": arguments '", item_name(other_name, other_item), "' and '",
                        item_name(name, item),
                        "' are both written, but share memory. Pass a clone."));
}

// The memory of an argument that a call writes: of a tensor, or of the tensors of a list.
class Written {
 public:
  // Refuses two tensors of a list that share elements. The tensors outlive this object.
  void begin(const char* op, const char* name, const DLTensor* tensors, int64_t count,
             bool is_list) {
    tensors_ = tensors;
    count_ = count;
    if (!is_list) return;
    spans_.emplace(tensors, count);
    for (int64_t i = 1; i < count; ++i) {
      const int64_t other = spans_->first_shared(tensors[i], i);
      if (other >= 0) refuse_shared(op, name, i, name, other);
    }
  }
  // Whether the memory that another tensor spans meets that of one of these.
  bool meets(const DLTensor& other) const {
    return spans_ ? spans_->meet(other) : count_ > 0 && spans_meet(other, *tensors_);
  }
  // Refuses the call if another written tensor, an item of a list or -1, shares elements with one.
  void require_apart(const char* op, const char* name, const char* other_name,
                     const DLTensor& other, int64_t item) const {
    if (spans_) {
      const int64_t place = spans_->first_shared(other);
      if (place >= 0) refuse_shared(op, other_name, item, name, place);
    } else if (count_ > 0 && share_elements(other, *tensors_)) {
      refuse_shared(op, other_name, item, name, -1);
    }
  }

 private:
  const DLTensor* tensors_ = nullptr;
  int64_t count_ = 0;
  std::optional<Spans> spans_;  // of a list: points into it
};

// Refuses to write into a tensor, an item of a list or -1, whose elements share memory.
inline void require_own_elements(const char* op, const char* name, int64_t item,
                                 const DLTensor& tensor) {
  if (!overlaps_itself(tensor)) return;
  std::string why = join("shape ", show(tensor.shape, tensor.ndim), " with strides ",
                         show(tensor.strides, tensor.ndim));
  for (int32_t i = tensor.ndim; i-- > 0;) {
    if (tensor.strides[i] == 0 && tensor.shape[i] > 1) {
      why = join("dimension ", i, " was expanded to ", tensor.shape[i]);
    }
  }
  throw call_error(join(op, ": argument '", item_name(name, item),
                        "' is written, but its elements share memory: ", why, ". Pass a clone."));
}

}  // namespace opsmith::detail
