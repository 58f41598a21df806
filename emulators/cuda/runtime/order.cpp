// Vector clocks, and how fences, atomic operations and barriers pass them on.
//
// A thread's clock of its own block is kept apart, since it needs no search: the last barrier, and
// a time for each lane of its warp.
#include "order.h"

#include "state.h"

namespace emulated {

namespace {

using Entries = std::vector<Known::Entry>;

// With more entries than these, all earlier accesses count as ordered: memory stays bounded, and
//: nothing right is flagged.
constexpr size_t kEntries = 1 << 15;
constexpr size_t kLocations = 1 << 20;

Entries::const_iterator find(const Entries& entries, uint32_t who) {
  return std::lower_bound(entries.begin(), entries.end(), who,
                          [](const Known::Entry& one, uint32_t key) { return one.who < key; });
}

bool is_before(const Entries& entries, uint32_t who, uint32_t time) {
  const auto at = find(entries, who);
  return at != entries.end() && at->who == who && time < at->time;
}

void raise(Entries& entries, uint32_t who, uint32_t time) {
  const auto at = entries.begin() + (find(entries, who) - entries.begin());
  if (at == entries.end() || at->who != who) {
    entries.insert(at, {who, time});
  } else {
    at->time = std::max(at->time, time);
  }
}

Entries merged(const Entries& a, const Entries& b) {
  Entries all;
  all.reserve(a.size() + b.size());
  for (auto left = a.begin(), right = b.begin(); left != a.end() || right != b.end();) {
    if (right == b.end() || (left != a.end() && left->who < right->who)) {
      all.push_back(*left++);
    } else if (left == a.end() || right->who < left->who) {
      all.push_back(*right++);
    } else {
      all.push_back({left->who, std::max(left->time, right->time)});
      ++left, ++right;
    }
  }
  return all;
}

Knowledge joined(const Knowledge& a, const Knowledge& b) {
  if (a == b || b == nullptr) return a;
  if (a == nullptr) return b;
  return std::make_shared<const Known>(
      Known{merged(a->blocks, b->blocks), merged(a->threads, b->threads)});
}

void forget() {
  State& s = state();
  s.launch_start = ++s.time;
  s.locations.clear();
  for (Thread& thread : s.threads) thread.forget();
}

// The accesses that a fence of this thread makes known now.
Knowledge snapshot(const Thread& thread) {
  State& s = state();
  if (thread.known != nullptr &&
      thread.known->blocks.size() + thread.known->threads.size() > kEntries) {
    forget();
  }
  auto now =
      thread.known != nullptr ? std::make_shared<Known>(*thread.known) : std::make_shared<Known>();
  const uint32_t first = s.block_number * s.threads_of_block;
  raise(now->blocks, s.block_number, s.last_barrier);
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if (thread.clock[lane] <= s.last_barrier || lane == thread.lane()) continue;
    raise(now->threads, first + thread.warp() * warp_size + lane, thread.clock[lane]);
  }
  raise(now->threads, first + thread.number, ++s.time);
  return now;
}

}  // namespace

bool Known::covers(uint32_t block, uint32_t thread, uint32_t time) const {
  return is_before(blocks, block, time) || is_before(threads, thread, time);
}

void fence(Thread& thread, Scope scope) {
  thread.known = joined(thread.known, thread.met_in_block);
  thread.met_in_block = nullptr;
  if (scope == Scope::block) {
    thread.released_in_block = snapshot(thread);
    return;
  }
  thread.known = joined(thread.known, thread.met);
  thread.met = nullptr;
  thread.released = thread.released_in_block = snapshot(thread);
}

void fence(Scope scope) {
  if (state().current != nullptr) fence(*state().current, scope);
}

void observe(const void* address, Scope scope) {
  const State& s = state();
  const auto found = s.locations.find(address);
  if (found == s.locations.end()) return;
  Thread& thread = *s.current;
  const Location& location = found->second;
  if (scope == Scope::device) thread.met = joined(thread.met, location.device);
  if (location.block == s.block_number) {
    thread.met_in_block = joined(thread.met_in_block, location.in_block);
  }
}

void publish(const void* address, Scope scope, bool replaces) {
  State& s = state();
  const Thread& thread = *s.current;
  if (replaces) s.locations.erase(address);
  if (thread.released_in_block == nullptr) return;
  if (s.locations.size() > kLocations) forget();
  Location& location = s.locations[address];
  if (location.block != s.block_number) location.in_block = nullptr;
  location.block = s.block_number;
  location.in_block = joined(location.in_block, thread.released_in_block);
  if (scope == Scope::device) location.device = joined(location.device, thread.released);
}

void share_fenced(const std::vector<Thread*>& threads) {
  Knowledge released;
  for (const Thread* thread : threads) released = joined(released, thread->released_in_block);
  for (Thread* thread : threads) thread->known = joined(thread->known, released);
}

void share_knowledge(const std::vector<Thread*>& threads) {
  Knowledge known, released, released_in_block;
  for (const Thread* thread : threads) {
    known = joined(joined(joined(known, thread->known), thread->met), thread->met_in_block);
    released = joined(released, thread->released);
    released_in_block = joined(released_in_block, thread->released_in_block);
  }
  for (Thread* thread : threads) {
    thread->known = known;
    thread->met = thread->met_in_block = nullptr;
    thread->released = released;
    thread->released_in_block = released_in_block;
  }
}

void gather(Gathered& all, const Thread& thread) {
  const Knowledge met = joined(thread.met, thread.met_in_block);
  all.known = joined(joined(all.known, snapshot(thread)), met);
  all.released = joined(all.released, thread.released);
  all.released_in_block = joined(all.released_in_block, thread.released_in_block);
}

void learn(Thread& thread, const Gathered& all) {
  thread.known = joined(thread.known, all.known);
  thread.released = joined(thread.released, all.released);
  thread.released_in_block = joined(thread.released_in_block, all.released_in_block);
}

}  // namespace emulated
