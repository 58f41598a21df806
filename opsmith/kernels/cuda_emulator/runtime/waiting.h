// When threads that wait for each other go on.
#pragma once

#include "state.h"

namespace opsmith::emulated {

inline bool has_returned(const Thread& thread) {
  return (state().warps[thread.warp()].running & thread.bit()) == 0;
}

// Lets everybody go on once all have come.
void open_barrier();

// Lets the lanes of a mask go on once all of them have come that still run.
void open_warp(const Thread& one);

// A thread that has returned may have been the last that others waited for.
void open_after_return(const Thread& returned);

// Nothing can go on: says who waits where.
[[noreturn]] void report_deadlock();

}  // namespace opsmith::emulated
