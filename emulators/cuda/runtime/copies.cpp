#include "copies.h"

#include "state.h"

namespace emulated {

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

namespace {

// Takes the copies out of those under way that fulfil a condition.
template <typename Condition>
std::vector<Copy> take(Condition condition) {
  std::vector<Copy>& all = state().copies;
  std::vector<Copy> taken;
  std::copy_if(all.begin(), all.end(), std::back_inserter(taken), condition);
  std::erase_if(all, condition);
  return taken;
}

}  // namespace

void wait_for_copies(uint64_t groups) {
  const State& s = state();
  if (s.current == nullptr || s.copies.empty()) return;
  for (const Copy& copy : take([&](const Copy& one) {
         return one.stage == nullptr && one.thread == s.current->number &&
                one.group + groups < s.current->copy_groups;
       })) {
    make(copy);
  }
}

// The copies are made in the name of the thread that commits them, since its arrival at the stage
// orders them before what others do after their wait.
void commit_copies_to(const void* stage) {
  State& s = state();
  if (s.current == nullptr) return;
  for (Copy& copy : take([&](const Copy& one) {
         return one.thread == s.current->number && one.group == s.current->copy_groups;
       })) {
    make(copy);
    copy.stage = stage;
    s.copies.push_back(copy);
  }
  commit_copies();
}

void wait_for_stage(const void* stage) {
  std::erase_if(state().copies, [&](const Copy& one) { return one.stage == stage; });
}

}  // namespace emulated
