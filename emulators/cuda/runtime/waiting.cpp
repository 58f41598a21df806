// The queues of waiting threads of a block and lanes of a warp, and when they go on.
#include "waiting.h"

#include <bit>

namespace emulated {

namespace {

std::string count_text(size_t count) {
  return std::to_string(count) + (count == 1 ? " thread" : " threads");
}

std::string place_text(Place place) {
  return place.file == nullptr
             ? std::string("an unknown line")
             : std::string(place.file).substr(std::string(place.file).rfind('/') + 1) + ":" +
                   std::to_string(place.line);
}

std::string mask_text(LaneMask mask) {
  char text[32];
  std::snprintf(text, sizeof text, "mask 0x%0*llx", static_cast<int>(warp_size / 4),
                static_cast<unsigned long long>(mask));
  return text;
}

std::string barrier_text(const Thread& thread) {
  return thread.names ? " of barrier " + std::to_string(static_cast<uint32_t>(thread.brought) >> 1)
                      : "";
}

bool same(const char* a, const char* b) {
  return a == b || (a != nullptr && b != nullptr && std::strcmp(a, b) == 0);
}

bool same(Place a, Place b) {
  return a.line == b.line && a.file != nullptr && same(a.file, b.file);
}

void make_ready(Thread& thread) {
  thread.waits = Waits::nothing;
  state().ready.push_back(thread.number);
}

Thread& current_thread(const char* what, Place place) {
  Thread* thread = state().current;
  if (thread == nullptr) stop("host", std::string(what) + " is called by host code", place);
  return *thread;
}

}  // namespace

void report_deadlock() {
  State& s = state();
  std::vector<std::string> groups;
  std::vector<const Thread*> firsts;
  std::vector<size_t> counts;
  size_t returned = 0;
  for (const Thread& thread : s.threads) {
    if (has_returned(thread)) {
      ++returned;
      continue;
    }
    size_t i = 0;
    while (i < firsts.size() &&
           !(same(firsts[i]->place, thread.place) && firsts[i]->mask == thread.mask &&
             barrier_text(*firsts[i]) == barrier_text(thread))) {
      ++i;
    }
    if (i == firsts.size()) {
      firsts.push_back(&thread);
      counts.push_back(0);
    }
    ++counts[i];
  }
  std::string text = "threads of a block wait at different places: ";
  for (size_t i = 0; i < firsts.size(); ++i) {
    const std::string mask =
        firsts[i]->waits == Waits::warp ? " with " + mask_text(firsts[i]->mask) : "";
    text += (i != 0 ? "; " : "") + count_text(counts[i]) + " (first: " + name_of(*firsts[i]) +
            ") in " + firsts[i]->what + barrier_text(*firsts[i]) + mask + " at " +
            place_text(firsts[i]->place);
  }
  if (returned != 0) text += "; " + count_text(returned) + " have returned";
  for (unsigned id = 0; id < named_barriers; ++id) {
    const NamedBarrier& one = s.named[id];
    if (one.expected == 0) continue;
    text += "; barrier " + std::to_string(id) + " has had " + std::to_string(one.arrived) +
            " of the " + std::to_string(one.expected) + " threads that it waits for";
  }
  const bool two = firsts.size() > 1;
  stop("barrier", text, firsts[0]->place, two ? "the other place" : "",
       two ? firsts[1]->place : Place{});
}

namespace {

int synchronise(Vote vote, int predicate, const char* what, Place place);

// Refuses to have one barrier for some threads and for all.
void check_barrier_0() {
  const State& s = state();
  if (s.named[0].expected == 0 || s.at_barrier == 0) return;
  for (const Thread& thread : s.threads) {
    if (thread.waits != Waits::block) continue;
    stop("barrier",
         "barrier 0 is for " + std::to_string(s.named[0].expected) +
             " threads, and it is that of " + thread.what + ", where " + name_of(thread) +
             " waits for all",
         s.named[0].place, "for all", thread.place);
  }
}

}  // namespace

void open_barrier() {
  State& s = state();
  check_barrier_0();
  if (s.alive == 0 || s.at_barrier != s.alive) return;
  const Thread* first = nullptr;
  int votes = 0;
  size_t returned = 0, waiting = 0;
  for (Thread& thread : s.threads) {
    if (has_returned(thread)) {
      ++returned;
      continue;
    }
    ++waiting;
    if (first == nullptr) first = &thread;
    // In PTX each warp may have its own instruction.
    const bool apart = first->names && thread.names;
    if ((!apart && !same(first->place, thread.place)) || first->vote != thread.vote) {
      report_deadlock();
    }
    votes += thread.brought != 0 ? 1 : 0;
  }
  // Since Volta a barrier waits for the threads that have not returned.
  if (returned != 0) {
    remark(count_text(returned) + " returned before " + std::string(first->what) + ", and " +
               count_text(waiting) + " (first: " + name_of(*first) + ") wait there",
           first->place);
  }
  switch (first->vote) {
    case Vote::any:
      s.vote_result = votes != 0 ? 1 : 0;
      break;
    case Vote::all:
      s.vote_result = static_cast<uint32_t>(votes) == s.alive ? 1 : 0;
      break;
    default:
      s.vote_result = votes;
  }
  s.last_barrier = ++s.time;
  s.at_barrier = 0;
  s.spins = 0;  // not at a vote of a warp, which may wait in a loop
  std::vector<Thread*> all;
  for (Thread& thread : s.threads) {
    if (has_returned(thread)) continue;
    all.push_back(&thread);
    make_ready(thread);
  }
  share_knowledge(all);
}

// --- barriers of some threads ------------------------------------------------------------------

namespace {

uint64_t named(uint64_t id, uint64_t threads, bool waits) {
  return threads << 32 | id << 1 | (waits ? 1 : 0);
}

void open(NamedBarrier& barrier) {
  uint32_t gone = 0;
  if (barrier.whole) {
    for (const Warp& warp : state().warps) gone += warp.running == 0 ? warp_size : 0;
  }
  if (barrier.expected == 0 || barrier.arrived + gone < barrier.expected) return;
  for (Thread* thread : barrier.waiting) {
    learn(*thread, barrier.gathered);
    make_ready(*thread);
  }
  barrier = {};
  state().spins = 0;
}

// The lanes of a warp come to a barrier. By the PTX ISA a barrier counts warps, each as 32 threads,
// however many of its lanes there are; and who arrives and does not wait is ordered before those
// that wait, not after the others.
void come(const std::vector<Thread*>& lanes) {
  State& s = state();
  const Thread& one = *lanes.front();
  const uint32_t id = static_cast<uint32_t>(one.brought) >> 1;
  const auto given = static_cast<uint32_t>(one.brought >> 32);
  const uint32_t threads = given != 0 ? given : static_cast<uint32_t>(s.warps.size()) * warp_size;
  const std::string who = name_of(one) + " comes to barrier " + std::to_string(id) + " for " +
                          std::to_string(threads) + " threads";
  for (const Thread* lane : lanes) {
    if (lane->brought == one.brought) continue;
    stop("undefined", who + ", and " + name_of(*lane) + " of its warp to another", one.place);
  }
  NamedBarrier& barrier = s.named[id];
  if (barrier.expected != 0 && barrier.expected != threads) {
    stop("barrier",
         who + ", and others to the same barrier for " + std::to_string(barrier.expected),
         one.place, "the others", barrier.place);
  }
  if (barrier.expected == 0) {
    barrier.expected = threads;
    barrier.whole = given == 0;
    barrier.place = one.place;
  }
  check_barrier_0();
  barrier.arrived += warp_size;
  for (Thread* lane : lanes) {
    gather(barrier.gathered, *lane);
    if ((one.brought & 1) == 0) {
      make_ready(*lane);
    } else {
      lane->waits = Waits::some;
      barrier.waiting.push_back(lane);
    }
  }
  open(barrier);
}

}  // namespace

void open_named() {
  for (NamedBarrier& barrier : state().named) open(barrier);
}

void meet_some(uint64_t id, uint64_t threads, bool waits, Place place) {
  const char* what = waits ? "bar.sync" : "bar.arrive";
  Thread& thread = current_thread(what, place);
  const std::string who = name_of(thread) + ": " + what + " ";
  if (id >= named_barriers) {
    stop("undefined",
         who + "names barrier " + std::to_string(id) + ", and a block has those from 0 to 15",
         place);
  }
  if (threads % warp_size != 0 || (threads == 0 && !waits)) {
    stop("undefined",
         who + "is for " + std::to_string(threads) +
             " threads, which is no multiple of the 32 of a warp",
         place);
  }
  thread.names = true;
  if (id == 0 && waits && (threads == 0 || threads == state().warps.size() * warp_size)) {
    synchronise(Vote::none, 0, what, place);
  } else {
    exchange(every_lane, named(id, threads, waits), what, place);
  }
  thread.names = false;
}

// --- warps -------------------------------------------------------------------------------------

void open_warp(const Thread& one) {
  State& s = state();
  Warp& warp = s.warps[one.warp()];
  const LaneMask present = one.mask & warp.running;
  if ((present & ~warp.waiting) != 0) return;
  Thread* lanes = &s.threads[one.warp() * warp_size];
  std::vector<Thread*> all;
  uint32_t joined[warp_size] = {};
  for (LaneMask rest = present; rest != 0; rest &= rest - 1) {
    Thread& thread = lanes[std::countr_zero(rest)];
    all.push_back(&thread);
    if (thread.mask != one.mask || !same(thread.what, one.what) || !same(thread.place, one.place)) {
      return;
    }
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      joined[lane] = std::max(joined[lane], thread.clock[lane]);
    }
  }
  if (one.names) {
    warp.waiting &= ~present;
    come(all);
    return;
  }
  // The lanes of a wavefront of 64 run in step.
  const bool orders = one.orders || warp_size > 32;
  ++s.time;
  uint64_t values[warp_size] = {};
  for (LaneMask rest = present; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(std::countr_zero(rest));
    joined[lane] = s.time;
    values[lane] = lanes[lane].brought;
  }
  warp.waiting &= ~present;
  for (LaneMask rest = present; rest != 0; rest &= rest - 1) {
    Thread& thread = lanes[std::countr_zero(rest)];
    std::memcpy(thread.values, values, sizeof values);
    if (orders) std::memcpy(thread.clock, joined, sizeof joined);
    thread.present = present;
    make_ready(thread);
  }
  orders ? share_knowledge(all) : share_fenced(all);
}

void open_after_return(const Thread& returned) {
  State& s = state();
  open_barrier();
  open_named();
  const Warp& warp = s.warps[returned.warp()];
  // Resumed threads leave `waiting`, so read it anew for each lane.
  for (unsigned lane = 0; warp.waiting != 0 && lane < warp_size; ++lane) {
    if ((warp.waiting >> lane & 1) != 0) open_warp(s.threads[returned.warp() * warp_size + lane]);
  }
}

namespace {

int synchronise(Vote vote, int predicate, const char* what, Place place) {
  State& s = state();
  Thread& thread = current_thread(what, place);
  settle();
  thread.waits = Waits::block;
  thread.place = place;
  thread.what = what;
  thread.vote = vote;
  thread.mask = 0;
  thread.brought = predicate != 0 ? 1 : 0;
  thread.fiber->switch_to(s.scheduler);
  return s.vote_result;
}

}  // namespace

int synchronise_block(Vote vote, int predicate, Place place) {
  constexpr const char* names[] = {"__syncthreads", "__syncthreads_or", "__syncthreads_and",
                                   "__syncthreads_count"};
  return synchronise(vote, predicate, names[static_cast<int>(vote)], place);
}

Lanes exchange(LaneMask mask, uint64_t value, const char* what, Place place, bool orders) {
  State& s = state();
  Thread& thread = current_thread(what, place);
  settle();
  if ((mask >> thread.lane() & 1) == 0) {
    stop("barrier",
         name_of(thread) + " calls " + what + " with " + mask_text(mask) +
             ", which leaves out its own lane, " + std::to_string(thread.lane()),
         place);
  }
  thread.waits = Waits::warp;
  thread.place = place;
  thread.what = what;
  thread.mask = mask;
  thread.orders = orders;
  thread.brought = value;
  thread.fiber->switch_to(s.scheduler);
  Lanes lanes;
  std::memcpy(lanes.values, thread.values, sizeof lanes.values);
  lanes.present = thread.present;
  lanes.lane = thread.lane();
  return lanes;
}

uint64_t value_of(const Lanes& lanes, unsigned lane, const char* what, Place place) {
  State& s = state();
  if ((lanes.present >> lane & 1) != 0) return lanes.values[lane];
  remark(std::string(what) + " took the value of lane " + std::to_string(lane) +
             ", which does not take part: " + name_of(*s.current),
         place);
  uint64_t nothing;
  std::memset(&nothing, s.fill, sizeof nothing);
  return nothing;
}

unsigned lane_number() { return state().current != nullptr ? state().current->lane() : 0; }

}  // namespace emulated
