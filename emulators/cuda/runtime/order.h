// The order of accesses: for each thread, which accesses of others are complete for it, as a vector
// clock. See the PTX ISA, "Memory Consistency Model".
#pragma once

#include <emulated/runtime.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace emulated {

// A clock over threads of any block: the accesses of a thread before its time are complete.
struct Known {
  struct Entry {
    uint32_t who;
    uint32_t time;
  };
  std::vector<Entry> blocks, threads;  // sorted by `who`; an entry of a block holds for its threads

  bool covers(uint32_t block, uint32_t thread, uint32_t time) const;
};
using Knowledge = std::shared_ptr<const Known>;  // null: nothing is known

// The accesses that an atomic or volatile access to one location makes known.
struct Location {
  Knowledge device;    // to threads of any block
  Knowledge in_block;  // to threads of `block`
  uint32_t block = 0;
};

struct Thread;

// The fence of a thread: orders what precedes it before later writes of atomic operations, and what
// atomic operations have read before it before what follows.
void fence(Thread& thread, Scope scope);

// The running thread reads or writes a location by an atomic operation, or through `volatile`.
void observe(const void* address, Scope scope);
void publish(const void* address, Scope scope, bool replaces);

// Gives threads that have waited for each other what each of them knows.
void share_knowledge(const std::vector<Thread*>& threads);
// What threads that have come to a barrier know, for those that go on when it opens.
struct Gathered {
  Knowledge known, released, released_in_block;
};
void gather(Gathered& all, const Thread& thread);
void learn(Thread& thread, const Gathered& all);
// Gives threads that have exchanged values what each of them knew at its last fence.
void share_fenced(const std::vector<Thread*>& threads);

}  // namespace emulated
