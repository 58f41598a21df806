// The memory that CUDA threads may access, and the last accesses to each part of it.
#pragma once

#include <emulated/runtime.h>
#include <emulated/vast.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace emulated {

// How an access meets others at the same time. Strong are atomic operations and accesses through
// `volatile`; a cached one is __ldg's, which sees no write of the launch.
enum class Kind : uint32_t { plain, in_block, strong, cached };
inline bool is_strong(Kind kind) { return kind == Kind::in_block || kind == Kind::strong; }

// An access, packed into few bytes: each granule of memory has three of them.
struct Stamp {
  uint32_t thread = 0;      // number of the block times threads of a block, plus that of the thread
  uint32_t time = 0;        // 0: there was none
  uint32_t place : 26 = 0;  // in the kernel's library
  uint32_t bytes : 4 = 0;   // of the granule
  uint32_t kind : 2 = 0;    // a `Kind`
};

struct Granule {
  Stamp write;
  Stamp reads[2];
  uint32_t known_time = 0;  // since when `known` holds
  uint32_t known = 0;       // the bytes that were written
};

// Memory that takes no room before it is accessed, and is zero at first.
class Pages {
 public:
  Pages() = default;
  explicit Pages(uint64_t bytes) : bytes_(std::max<uint64_t>(bytes, 1)) {
    void* start = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<char*>(start);
  }
  Pages(Pages&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pages() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
  uint64_t bytes_ = 0;
};

// Memory of this runtime between two inaccessible ranges; it ends where the second one begins.
class Guarded {
 public:
  static constexpr uint64_t guard = 1 << 20;

  // Memory that begins with bytes `fill`; with `vast`, a large one is mapped again and again.
  Guarded(uint64_t bytes, uint64_t alignment, uint8_t fill, bool vast = false)
      : size_(bytes), around_(vast && bytes >= vast::least_bytes ? uint64_t{16} << 30 : guard) {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t pages = (bytes + page - 1) / page * page;
    total_ = pages + 2 * around_;
    void* start =
        mmap(nullptr, total_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<char*>(start);
    data_ = start_ + around_ + (pages - bytes) / alignment * alignment;
    if (is_vast()) {
      const int file = vast::file_of({static_cast<char>(fill)});
      vast::map(start_ + around_, pages, file, true);
      close(file);
    } else if (pages != 0) {
      mprotect(start_ + around_, pages, PROT_READ | PROT_WRITE);
      std::memset(data_, fill, bytes);
    }
  }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  ~Guarded() { munmap(start_, total_); }
  char* data() const { return data_; }
  void allow(int protection) const { mprotect(start_ + around_, total_ - 2 * around_, protection); }
  uint64_t size() const { return size_; }
  bool is_vast() const { return around_ != guard; }
  Region region(const char* name, uint64_t element) const {
    return {.name = name,
            .data = data_,
            .size = size_,
            .element = element,
            .guard = around_,
            .vast = is_vast(),
            .repeats = is_vast()};
  }

 private:
  char* start_ = nullptr;
  char* data_ = nullptr;
  uint64_t size_ = 0, around_ = guard, total_ = 0;  // around: the bytes of an inaccessible range
};

// Device memory as the runtime sees it: global memory, or a block's shared memory.
struct Watched {
  Region region;
  bool shared = false;
  // An element of more than four bytes is several granules, since kernels rarely access half of
  // one.
  uint32_t granule = 1, granule_bits = 0;
  Pages shadow;
  bool all_known = false;  // every byte was written
  std::string name;
  std::unique_ptr<Guarded> own;  // where this runtime allocated it
  // Of a whole program; see program.cpp.
  bool for_host = false;
  int allowed = PROT_READ | PROT_WRITE, used = PROT_NONE;
  std::string used_by;
  Place used_at;
  uint64_t freed = 0;  // its bytes, before it was freed

  Watched(const Region& given, bool is_shared)
      : region(given), shared(is_shared), name(given.name) {
    region.name = nullptr;  // that one may end before this
    granule_bits = region.element >= 4 || region.element == 0 ? 2 : region.element >= 2 ? 1 : 0;
    granule = 1u << granule_bits;
    forget_accesses();
  }
  void forget_accesses() {
    if (!region.vast) shadow = Pages((region.size / granule + 1) * sizeof(Granule));
  }
  bool holds(const void* address) const {
    return static_cast<uint64_t>(static_cast<const char*>(address) - region.data) < region.size;
  }
  bool near(const void* address) const {
    const auto at = static_cast<const char*>(address);
    return at >= region.data - region.guard &&
           at < region.data + region.size + freed + region.guard;
  }
  Granule& granule_at(uint64_t offset) const {
    return reinterpret_cast<Granule*>(shadow.data())[offset >> granule_bits];
  }

  // "element 3 of argument 'x'"
  std::string element(const void* address) const {
    const auto offset = static_cast<const char*>(address) - region.data;
    return unit() + " " + std::to_string(static_cast<uint64_t>(offset) / unit_bytes()) + " of " +
           name;
  }
  // "2 elements past the end of argument 'x' (10 elements)"
  std::string outside(const void* address, uint64_t bytes) const {
    if (freed != 0) return element(address);
    const char* at = static_cast<const char*>(address);
    const char* end = region.data + region.size;
    const auto element = static_cast<int64_t>(unit_bytes());
    const bool past = at + bytes > end;
    const int64_t distance = past ? (at + bytes - end + element - 1) / element
                                  : (region.data - at + element - 1) / element;
    const uint64_t count = region.size / unit_bytes();
    return std::to_string(distance) + " " + unit() + (distance == 1 ? "" : "s") +
           (past ? " past the end of " : " before the start of ") + name + " (" +
           std::to_string(count) + " " + unit() + (count == 1 ? ")" : "s)");
  }

 private:
  std::string unit() const { return region.element == 0 ? "byte" : "element"; }
  uint64_t unit_bytes() const { return region.element == 0 ? 1 : region.element; }
};

}  // namespace emulated
