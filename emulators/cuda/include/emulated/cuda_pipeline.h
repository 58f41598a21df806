// libcu++'s pipelines: copies in stages, which producers commit and consumers wait for.
#pragma once

#include <emulated/copies.h>
#include <emulated/cuda_atomic.h>

namespace cuda {

// A number of bytes, which the caller promises to be a multiple of the alignment, as both
// addresses.
template <::std::size_t kAlignment>
struct aligned_size_t {
  static constexpr ::std::size_t align = kAlignment;
  constexpr explicit aligned_size_t(::std::size_t bytes) : value(bytes) {}
  constexpr operator ::std::size_t() const { return value; }
  ::std::size_t value;
};

enum class pipeline_role { producer, consumer };

namespace detail {

struct stage {
  unsigned committed;  // how often, by producers
  unsigned released;   // the same by consumers
};

}  // namespace detail

template <thread_scope kScope, uint8_t kStages>
struct pipeline_shared_state {
  detail::stage opsmith_stages[kStages];
  unsigned opsmith_producers;
};

// A thread's view of a pipeline that it shares with others.
template <thread_scope kScope>
class pipeline {
 public:
  pipeline(detail::stage* stages, unsigned count, unsigned producers, unsigned consumers)
      : stages_(stages), count_(count), producers_(producers), consumers_(consumers) {}
  pipeline(pipeline&&) = default;
  pipeline(const pipeline&) = delete;

  // Inlined, so that the place of what they do is the user's line.
  __forceinline__ void producer_acquire() {
    wait_for(stages_[filled_ % count_].released, filled_ / count_ * consumers_);
  }
  __forceinline__ void producer_commit() {
    detail::stage& stage = stages_[filled_++ % count_];
    emulated::commit_copies_to(&stage);
    counter(stage.committed).fetch_add(1, memory_order_release);
  }
  __forceinline__ void consumer_wait() {
    detail::stage& stage = stages_[used_ % count_];
    wait_for(stage.committed, (used_ / count_ + 1) * producers_);
    emulated::wait_for_stage(&stage);
  }
  __forceinline__ void consumer_release() {
    counter(stages_[used_++ % count_].released).fetch_add(1, memory_order_release);
  }

 private:
  using counter = atomic_ref<unsigned, kScope>;

  __forceinline__ static void wait_for(unsigned& count, unsigned wanted) {
    while (counter(count).load(memory_order_acquire) < wanted) {
    }
  }

  detail::stage* stages_;
  unsigned count_, producers_, consumers_;
  unsigned filled_ = 0, used_ = 0;  // stages, by this thread
};

// A pipeline of one thread.
template <>
class pipeline<thread_scope_thread> {
 public:
  pipeline() = default;
  pipeline(pipeline&&) = default;
  pipeline(const pipeline&) = delete;

  void producer_acquire() {}
  void producer_commit() {
    emulated::commit_copies();
    ++filled_;
  }
  void consumer_wait() {
    if (used_ != filled_) wait_prior(filled_ - used_ - 1);
  }
  void consumer_release() {}
  void wait_prior(unsigned stages) {
    emulated::wait_for_copies(stages);
    used_ = filled_ - stages;
  }

 private:
  unsigned filled_ = 0, used_ = 0;
};

namespace detail {

template <typename Group, thread_scope kScope, uint8_t kStages>
void clear(const Group& group, pipeline_shared_state<kScope, kStages>& state, opsmith_place place) {
  if (group.thread_rank() == 0) {
    for (stage& one : state.opsmith_stages) one = {0, 0};
    state.opsmith_producers = 0;
  }
  group.sync(place);
}

// Not inlined, so that the place is the user's line.
template <typename T, typename Size>
__attribute__((noinline)) void check_alignment(const void* to, const void* from, Size bytes) {
  ::std::size_t alignment = 1;
  if constexpr (!::std::is_void_v<T>) alignment = alignof(T);
  if constexpr (!::std::is_convertible_v<::std::size_t, Size>) {
    if (Size::align > alignment) alignment = Size::align;
    if (bytes % alignment != 0) {
      emulated::fail(
          "cuda::memcpy_async copies bytes that are no multiple of its "
          "cuda::aligned_size_t",
          OPSMITH_HERE);
    }
  }
  if ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from)) % alignment != 0) {
    emulated::fail(
        "cuda::memcpy_async copies at an address that is no multiple of the "
        "alignment of its type or of its cuda::aligned_size_t",
        OPSMITH_HERE);
  }
}

}  // namespace detail

inline pipeline<thread_scope_thread> make_pipeline() { return {}; }

// Each thread of the group commits and waits.
template <typename Group, thread_scope kScope, uint8_t kStages>
pipeline<kScope> make_pipeline(const Group& group, pipeline_shared_state<kScope, kStages>* state,
                               opsmith_place place = emulated::here()) {
  detail::clear(group, *state, place);
  const auto all = static_cast<unsigned>(group.size());
  return {state->opsmith_stages, kStages, all, all};
}
template <typename Group, thread_scope kScope, uint8_t kStages>
pipeline<kScope> make_pipeline(const Group& group, pipeline_shared_state<kScope, kStages>* state,
                               ::std::size_t producers, opsmith_place place = emulated::here()) {
  detail::clear(group, *state, place);
  const auto some = static_cast<unsigned>(producers);
  return {state->opsmith_stages, kStages, some, static_cast<unsigned>(group.size()) - some};
}
template <typename Group, thread_scope kScope, uint8_t kStages>
pipeline<kScope> make_pipeline(const Group& group, pipeline_shared_state<kScope, kStages>* state,
                               pipeline_role role, opsmith_place place = emulated::here()) {
  detail::clear(group, *state, place);
  unsigned& producers = state->opsmith_producers;
  if (role == pipeline_role::producer) {
    atomic_ref<unsigned, kScope>(producers).fetch_add(1, memory_order_relaxed);
  }
  group.sync(place);
  return {state->opsmith_stages, kStages, producers,
          static_cast<unsigned>(group.size()) - producers};
}

template <uint8_t kStages>
void pipeline_consumer_wait_prior(pipeline<thread_scope_thread>& of) {
  of.wait_prior(kStages);
}

template <typename Group, typename T, typename Size, thread_scope kScope>
__forceinline__ void memcpy_async(const Group& group, T* to, const T* from, Size bytes,
                                  pipeline<kScope>&) {
  detail::check_alignment<T>(to, from, bytes);
  emulated::copy_together(group, to, from, bytes, 4);
}
template <typename T, typename Size, thread_scope kScope>
__forceinline__ void memcpy_async(T* to, const T* from, Size bytes, pipeline<kScope>&) {
  detail::check_alignment<T>(to, from, bytes);
  emulated::copy_later(to, from, bytes, 0);
}

}  // namespace cuda
