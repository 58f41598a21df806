#include "copies.h"

#include "state.h"

namespace opsmith::emulated {

namespace {

std::string element_of(const void* address) {
  const Watched* watched = region_of(address);
  return watched != nullptr ? watched->element(address) : "memory";
}

void make(const Copy& copy) {
  const uint64_t bytes = copy.bytes - copy.zeros;
  if (bytes != 0) access({copy.from, bytes, Does::reads, Kind::plain, copy.place});
  access({copy.to, copy.bytes, Does::writes, Kind::plain, copy.place});
  std::memcpy(copy.to, copy.from, bytes);
  std::memset(copy.to + bytes, 0, copy.zeros);
}

}  // namespace

void check_beside_copies(const Access& one) {
  const State& s = state();
  const auto meets = [&](const char* data, uint64_t bytes) {
    return one.address < data + bytes && data < one.address + one.bytes;
  };
  for (const Copy& copy : s.copies) {
    const bool written = meets(copy.to, copy.bytes);
    if (!written && !(one.writes() && meets(copy.from, copy.bytes - copy.zeros))) continue;
    const char* shared = written ? copy.to : copy.from;
    stop("race",
         "a race: " + name_of(*s.current) + (one.writes() ? " writes " : " reads ") +
             element_of(std::max(one.address, const_cast<char*>(shared))) + ", which " +
             name_of(s.block_number, copy.thread) + (written ? " fills" : " reads") +
             " by an asynchronous copy that it has not waited for",
         {nullptr, 0, one.place}, "the copy", {nullptr, 0, copy.place});
  }
}

void copy_later(void* to, const void* from, uint64_t bytes, uint64_t zeros) {
  State& s = state();
  const void* place = __builtin_return_address(0);
  if (s.current == nullptr)
    stop("undefined", "the host copies to shared memory", {nullptr, 0, place});
  const Watched* watched = region_of(to);
  if (watched != nullptr && !watched->shared) {
    stop("undefined",
         name_of(*s.current) + " copies asynchronously to " + watched->element(to) +
             ", which is not shared memory",
         {nullptr, 0, place});
  }
  s.copies.push_back({s.current->number, s.current->copy_groups, static_cast<char*>(to),
                      static_cast<char*>(const_cast<void*>(from)), bytes, zeros, place});
}

void commit_copies() {
  if (state().current != nullptr) ++state().current->copy_groups;
}

void wait_for_copies(uint64_t groups) {
  State& s = state();
  if (s.current == nullptr || s.copies.empty()) return;
  const auto is_due = [&](const Copy& copy) {
    return copy.thread == s.current->number && copy.group + groups < s.current->copy_groups;
  };
  std::vector<Copy> due;
  std::copy_if(s.copies.begin(), s.copies.end(), std::back_inserter(due), is_due);
  std::erase_if(s.copies, is_due);
  for (const Copy& copy : due) make(copy);
}

}  // namespace opsmith::emulated
