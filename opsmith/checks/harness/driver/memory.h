// Memory for tensors and scratch that detects every access outside of it.
//
// A block ends, or begins, at inaccessible memory, so that a read or a write past that end faults
// at once. An aligned block cannot always end at a page; the bytes up to the page hold a pattern
// that is compared after the call.
#pragma once

#include <emulated/vast.h>
#include <fcntl.h>
#include <opsmith/abi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OPSMITH_HARNESS_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define OPSMITH_HARNESS_SANITIZED 1
#endif
#if __has_feature(memory_sanitizer)
// MemorySanitizer shall treat memory that the kernel does not write as uninitialised.
#define OPSMITH_HARNESS_UNINITIALIZED 1
#endif
#endif

namespace opsmith::harness {

// The initial bytes of a call's blocks, and their place in their pages.
struct Placement {
  bool at_end = true;   // the block ends at inaccessible memory; otherwise, it begins behind it
  uint8_t fill = 0xFF;  // NaN in every floating dtype, and -1 or the largest value of integers
  bool vast = false;    // whether a large block is memory that is mapped again and again
};

struct Block {
  std::string name;
  char* data = nullptr;
  uint64_t size = 0;
  uint64_t element = 1;
  char* pages = nullptr;
  uint64_t page_bytes = 0;  // without the guards before and behind
  bool read_only = false;
  bool written = false;  // whether it holds values, not the placement's pattern
  bool vast = false;
  // Guards use addresses only, no memory. They are wide enough to catch an index that is wrong by a
  // row or two; those of a vast block, an index that is wrong by 2**32.
  uint64_t guard = uint64_t{16} << 20;

  bool near(const void* address) const {
    const char* at = static_cast<const char*>(address);
    return at >= pages - guard && at < pages + page_bytes + guard;
  }
  // Returns whether the pages of a vast block were accessed.
  bool touched() const {
    const int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    std::vector<uint64_t> entries(1 << 16);
    uint64_t found = 0;
    const auto first = static_cast<off_t>(reinterpret_cast<uintptr_t>(pages) / page_size());
    for (uint64_t page = 0, left = page_bytes / page_size(); left != 0 && found == 0;) {
      const uint64_t count = std::min<uint64_t>(left, entries.size());
      const ssize_t bytes = static_cast<ssize_t>(count * sizeof(uint64_t));
      const off_t at = (first + static_cast<off_t>(page)) * ssize_t{sizeof(uint64_t)};
      if (pread(file, entries.data(), count * sizeof(uint64_t), at) != bytes) found = 1;
      for (uint64_t i = 0; i < count; ++i) found |= entries[i] >> 63;
      page += count;
      left -= count;
    }
    close(file);
    return found != 0;
  }
  static uint64_t page_size() {
    static const uint64_t size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    return size;
  }
};

class GuardedMemory {
 public:
  static constexpr const char* scratch_name = "scratch memory";
  inline static std::vector<Block> released;  // scratch blocks of earlier calls

  explicit GuardedMemory(Placement placement) : placement_(placement) { blocks_.reserve(256); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory() {
    for (const Block& block : blocks_) {
#ifdef OPSMITH_HARNESS_SANITIZED
      std::free(block.pages);
#else
      // A later call that uses a scratch block of this one has to be seen.
      if (block.name == scratch_name && !block.vast && released.size() < 64) {
        mprotect(block.pages, block.page_bytes, PROT_NONE);
        madvise(block.pages, block.page_bytes, MADV_DONTNEED);
        released.push_back(block);
      } else {
        munmap(block.pages - block.guard, block.page_bytes + 2 * block.guard);
      }
#endif
    }
  }

  // Returns a block of `size` bytes with the placement's pattern, aligned to `alignment`.
  Block& allocate(std::string name, uint64_t size, uint64_t element, uint64_t alignment) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Block block;
    block.name = std::move(name);
    block.size = size;
    block.element = element;
#ifdef OPSMITH_HARNESS_SANITIZED
    // The sanitizer puts its own guards around every block.
    block.page_bytes = size;
    block.pages = static_cast<char*>(std::malloc(size != 0 ? size : 1));
    block.data = block.pages;
#ifndef OPSMITH_HARNESS_UNINITIALIZED
    std::memset(block.data, placement_.fill, size);
#endif
#else
    const uint64_t page = Block::page_size();
    block.page_bytes = (size + page - 1) / page * page;
    block.vast = placement_.vast && size >= vast::least_bytes;
    if (block.vast) block.guard = std::max<uint64_t>(element, 4) << 32;
    char* start = static_cast<char*>(mmap(nullptr, block.page_bytes + 2 * block.guard, PROT_NONE,
                                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (start == MAP_FAILED) throw std::bad_alloc();
    block.pages = start + block.guard;
    if (block.page_bytes != 0 && !block.vast)
      mprotect(block.pages, block.page_bytes, PROT_READ | PROT_WRITE);
    const uint64_t slack = block.page_bytes - size;
    block.data = block.pages + (placement_.at_end ? slack / alignment * alignment : 0);
    // Vast memory stays inaccessible: see `supply`.
    if (!block.vast) {
      std::memset(block.pages, canary, block.page_bytes);
      std::memset(block.data, placement_.fill, size);
    }
#endif
    blocks_.push_back(block);
    return blocks_.back();
  }

  void protect(Block& block) {
    block.read_only = true;
#ifndef OPSMITH_HARNESS_SANITIZED
    if (block.page_bytes != 0) mprotect(block.pages, block.page_bytes, PROT_READ);
#endif
  }

  // Makes the part of a vast block at an address accessible; returns whether there is one. Parts
  // hold zeros of their own, since a kernel may find its indices there; of a result that is written
  // as a whole, those beyond half a gigabyte are mapped again and again.
  bool supply(const void* address) const {
    constexpr uint64_t part = uint64_t{2} << 20, most = 256;
    for (const Block& block : blocks_) {
      const auto offset = static_cast<uint64_t>(static_cast<const char*>(address) - block.pages);
      if (!block.vast || block.written || offset >= block.page_bytes) continue;
      char* start = block.pages + offset / part * part;
      const uint64_t bytes = std::min(part, block.page_bytes - offset / part * part);
      if (supplied_++ < most) return mprotect(start, bytes, PROT_READ | PROT_WRITE) == 0;
      if (block.name == scratch_name) break;
      static const int zeros = vast::file_of(std::string(1, '\0'));
      vast::map(start, bytes, zeros, true);
      return true;
    }
    return false;
  }
  // Whether a vast call has scratch memory: pieces that did not run would have written its values.
  bool has_scratch_of_ends() const {
    return placement_.vast && std::any_of(blocks_.begin(), blocks_.end(), [](const Block& block) {
             return block.name == scratch_name;
           });
  }
  const std::vector<Block>& blocks() const { return blocks_; }
  bool is_vast(const void* data) const {
    return std::any_of(blocks_.begin(), blocks_.end(),
                       [data](const Block& block) { return block.vast && block.data == data; });
  }
  uint8_t fill() const { return placement_.fill; }

  // Returns the bytes of results, and of arguments that may be written.
  std::string contents() const {
    std::string all;
    for (const Block& block : blocks_) {
      const bool kept = block.vast || block.read_only || block.name == scratch_name;
      if (!kept) all.append(block.data, block.size);
    }
    return all;
  }

  // Returns messages about the blocks beside which the pattern has changed.
  std::vector<std::string> overwritten() const {
    std::vector<std::string> found;
#ifndef OPSMITH_HARNESS_SANITIZED
    for (const Block& block : blocks_) {
      if (block.vast) continue;
      const char* end = block.data + block.size;
      for (const char* at = block.pages; at < block.pages + block.page_bytes; ++at) {
        if ((at >= block.data && at < end) || *at == static_cast<char>(canary)) continue;
        found.push_back(describe(block, at, "wrote"));
        break;
      }
    }
#endif
    return found;
  }

  // "wrote 4 bytes past the end of the result 'out' (12 elements)"
  static std::string describe(const Block& block, const void* address, const char* verb) {
    const char* at = static_cast<const char*>(address);
    const char* end = block.data + block.size;
    std::string text = verb;
    text += " ";
    if (at >= block.data && at < end) {
      text += "into " + block.name + " at element " +
              std::to_string(static_cast<uint64_t>(at - block.data) / block.element);
    } else {
      const bool past = at >= end;
      const int64_t bytes = past ? at - end : block.data - at;
      const auto element = static_cast<int64_t>(block.element);
      const int64_t distance = past ? bytes / element + 1 : (bytes + element - 1) / element;
      text += std::to_string(distance) + (distance == 1 ? " element" : " elements");
      text += past ? " past the end of " : " before the start of ";
      text += block.name;
    }
    const uint64_t count = block.size / block.element;
    return text + " (" + std::to_string(count) + (count == 1 ? " element)" : " elements)");
  }

 private:
  static constexpr unsigned char canary = 0xA5;

  Placement placement_;
  mutable std::atomic<uint64_t> supplied_ = 0;  // parts of vast blocks
  std::vector<Block> blocks_;
  std::mutex mutex_;
};

}  // namespace opsmith::harness
