// Fibers: a stack for each, and a switch between two of them.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

// Saves the callee-saved registers on the running stack, stores the stack pointer in *from, and
// resumes at the stack pointer `to`. Kernels do not change floating-point settings, so these are
// not saved.
extern "C" void opsmith_emulated_switch(void** from, void* to);

namespace emulated {

// A point of execution to resume: the scheduler, or a fiber.
class Context {
 public:
  // Switches to `to`, and returns when another fiber switches back.
  void switch_to(Context& to) { opsmith_emulated_switch(&saved_, to.saved_); }

 protected:
  void* saved_ = nullptr;
};

class Fiber : public Context {
 public:
  static constexpr size_t stack_bytes = 256 << 10;

  // Start the stacks of different fibers at different offsets. Otherwise all would share the same
  // few sets of cache lines.
  Fiber(void (*entry)(), size_t number) {
    const size_t stagger = number % 61 * 17 * 64;
    // An inaccessible page lies below the stack, so that an overflow faults.
    memory_ = static_cast<char*>(mmap(nullptr, stack_bytes + guard, PROT_NONE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (memory_ == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory_ + guard, stack_bytes, PROT_READ | PROT_WRITE);
    void** top = reinterpret_cast<void**>(memory_ + guard + stack_bytes - stagger);
#if defined(__x86_64__)
    *--top = nullptr;  // where `entry` would return to: nowhere
    *--top = reinterpret_cast<void*>(entry);
    top -= 6;  // the registers
#else
    top -= 20;
    top[11] = reinterpret_cast<void*>(entry);  // x30
#endif
    saved_ = top;
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber() { munmap(memory_, stack_bytes + guard); }

  bool holds(const void* address) const {
    return static_cast<size_t>(static_cast<const char*>(address) - memory_) < stack_bytes + guard;
  }

 private:
  static constexpr size_t guard = 64 << 10;
  char* memory_;
};

}  // namespace emulated
