// The harness's `parallel_for`: the same seed gives the same pieces in the same order.
#pragma once

#include "meeting.h"

#include <emulated/vast.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace opsmith::harness {

using Body = void (*)(int64_t begin, int64_t end, void* state);

class Schedule {
 public:
  // With seed 0, every loop is one piece, run by the calling thread.
  Schedule(uint64_t seed, int32_t threads)
      : seed_(seed),
        random_(seed),
        split_(seed != 0),
        ends_only_(seed == vast::ends_only),
        threads_(threads) {}

  uint64_t seed() const { return seed_; }
  int32_t threads() const { return threads_; }
  bool was_split() const { return was_split_; }

  // The threads meet at their first writes to `blocks`.
  void run(int64_t begin, int64_t end, Body body, void* state, const std::vector<Block>& blocks) {
    if (ends_only_) {
      // The last piece has tens of thousands of elements, if the loop is over all of them.
      body(std::max(begin, end - std::max<int64_t>(2, (end - begin) >> 15)), end, state);
      return;
    }
    // A loop inside a piece of another loop is not split, as in PyTorch.
    if (!split_ || inside_ || end - begin < 2) {
      body(begin, end, state);
      return;
    }
    const auto pieces = cut(begin, end);
    was_split_ = true;
    const auto count = static_cast<size_t>(threads_);
    std::atomic<size_t> missing{count};
#ifndef OPSMITH_HARNESS_SANITIZED
    std::optional<Meeting> met;
    if (count > 1) meeting.store(&met.emplace(blocks, threads_));
#endif
    const auto work = [&](size_t first) {
      // All threads begin at the same time. A stronger memory order, or distributing the pieces one
      // by one, would synchronise the threads and so hide races from a sanitizer.
      missing.fetch_sub(1, std::memory_order_relaxed);
      while (missing.load(std::memory_order_relaxed) != 0) std::this_thread::yield();
      inside_ = true;
#ifndef OPSMITH_HARNESS_SANITIZED
      if (met) met->begin(first);
#endif
      for (size_t i = first; i < pieces.size(); i += count) {
        body(pieces[i].first, pieces[i].second, state);
      }
      inside_ = false;
#ifndef OPSMITH_HARNESS_SANITIZED
      if (met) met->end();
#endif
    };
    std::vector<std::thread> others;
    for (size_t i = 1; i < count; ++i) others.emplace_back(work, i);
    work(0);
    for (std::thread& thread : others) thread.join();
    meeting.store(nullptr);
  }

 private:
  // Cuts the range at random places, regardless of the grain, into pieces in random order; some
  // pieces have a single element.
  std::vector<std::pair<int64_t, int64_t>> cut(int64_t begin, int64_t end) {
    std::vector<int64_t> cuts{begin, end};
    if (end - begin <= 4) {
      for (int64_t i = begin + 1; i < end; ++i) cuts.push_back(i);
    } else {
      std::uniform_int_distribution<int64_t> anywhere(begin + 1, end - 1);
      const int count = std::uniform_int_distribution<int>(2, 9)(random_);
      for (int i = 0; i < count; ++i) cuts.push_back(anywhere(random_));
      const int64_t single = anywhere(random_);
      cuts.push_back(single);
      cuts.push_back(std::min(single + 1, end));
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<std::pair<int64_t, int64_t>> pieces;
    for (size_t i = 1; i < cuts.size(); ++i) pieces.emplace_back(cuts[i - 1], cuts[i]);
    std::shuffle(pieces.begin(), pieces.end(), random_);
    return pieces;
  }

  static inline thread_local bool inside_ = false;
  uint64_t seed_;
  std::mt19937_64 random_;
  bool split_;
  bool ends_only_;
  bool was_split_ = false;
  int32_t threads_;
};

}  // namespace opsmith::harness
