// The rules for resuming threads that wait for each other.
#pragma once

#include "state.h"

namespace emulated {

inline bool has_returned(const Thread& thread) {
  return (state().warps[thread.warp()].running & thread.bit()) == 0;
}

// Resumes all threads once all have arrived.
void open_barrier();

// Resumes the lanes of a mask once all of them that have not returned have arrived.
void open_warp(const Thread& one);

// Opens the barriers of all threads that wait for none but those that have returned.
void open_named();

// Handles the return of a thread, which may be the last one that others waited for.
void open_after_return(const Thread& returned);

// No thread can go on: reports which threads wait, and where.
[[noreturn]] void report_deadlock();

}  // namespace emulated
