// The instructions that kernels write as inline PTX; inline_ptx.py makes the calls. Registers hold
// bits. Layouts are those of the PTX ISA: "Matrix Fragments for mma.m16n8k16" and its neighbours.
#pragma once

#ifdef OPSMITH_EXACT
#error "inline PTX takes the bits of numbers"
#endif

#include <emulated/copies.h>
#include <emulated/cuda_atomic.h>
#include <emulated/fp8.h>

namespace emulated::ptx {

// --- operands ----------------------------------------------------------------------------------

// The bits of an operand. Inlined as all that reads or writes the user's memory, so that the place
// of an access is the user's line.
template <typename Bits, typename T>
__forceinline__ Bits take(T value) {
  if constexpr (std::is_pointer_v<T>) {
    static_assert(sizeof(Bits) == sizeof(void*), "a pointer is an operand of 64 bits");
    return reinterpret_cast<Bits>(value);
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    static_assert(sizeof(T) <= sizeof(Bits), "the operand has more bits than its constraint says");
    return static_cast<Bits>(value);
  } else {
    static_assert(sizeof(T) == sizeof(Bits), "the operand has other bits than its constraint says");
    return std::bit_cast<Bits>(value);
  }
}
template <typename T, typename Bits>
__forceinline__ void give(T& result, Bits bits) {
  static_assert(sizeof(T) == sizeof(Bits), "the result has other bits than its constraint says");
  result = std::bit_cast<T>(bits);
}

// Registers in braces, to read and to write.
template <int count>
struct From {
  template <typename... Register>
    requires(sizeof...(Register) == count)
  From(Register... registers) : x{registers...} {}
  uint32_t x[count];
};
template <int count>
struct Into {
  template <typename... Register>
    requires(sizeof...(Register) == count)
  Into(Register*... registers) : x{registers...} {}
  uint32_t* x[count];
};

template <typename To, typename Value>
void set(To& to, Value value) {
  to = static_cast<To>(value);
}
template <typename A, typename B>
void set_if_eq(bool& to, A a, B b) {
  to = static_cast<uint32_t>(a) == static_cast<uint32_t>(b);
}
template <typename A, typename B>
void set_if_ne(bool& to, A a, B b) {
  to = static_cast<uint32_t>(a) != static_cast<uint32_t>(b);
}
// Combines three bits by a table: that of a & b is 0xf0 & 0xcc.
inline void lop3(uint32_t& to, uint32_t a, uint32_t b, uint32_t c, uint64_t table) {
  to = 0;
  for (unsigned i = 0; i < 8; ++i) {
    const uint32_t here = (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    if ((table >> i & 1) != 0) to |= here;
  }
}
template <typename To>
void cvta_to_shared(To& to, uint64_t address) {
  to = static_cast<To>(shared_address(reinterpret_cast<const void*>(address)));
}

// --- matrices ----------------------------------------------------------------------------------

// Kinds of numbers, by their names in PTX: how many are in a register, and what each is.
struct f32 {
  static constexpr int in_register = 1;
  static float number(uint32_t bits) { return std::bit_cast<float>(bits); }
  static uint32_t bits(float number) { return std::bit_cast<uint32_t>(number); }
};
struct f16 {
  static constexpr int in_register = 2;
  static float number(uint32_t bits) { return from_half(static_cast<uint16_t>(bits)); }
  static uint32_t bits(float number) { return to_half(number); }
};
struct bf16 {
  static constexpr int in_register = 2;
  static float number(uint32_t bits) { return from_bfloat16(static_cast<uint16_t>(bits)); }
};
struct tf32 {
  static constexpr int in_register = 1;
  // Tensor cores ignore the last 13 bits.
  static float number(uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); }
};
struct e4m3 {
  static constexpr int in_register = 4;
  static float number(uint32_t bits) {
    return from_fp8(static_cast<unsigned char>(bits), emulated::e4m3);
  }
};
struct e5m2 {
  static constexpr int in_register = 4;
  static float number(uint32_t bits) {
    return from_fp8(static_cast<unsigned char>(bits), emulated::e5m2);
  }
};
struct s8 {
  static constexpr int in_register = 4;
  static int64_t number(uint32_t bits) { return static_cast<int8_t>(bits); }
};
struct u8 {
  static constexpr int in_register = 4;
  static int64_t number(uint32_t bits) { return static_cast<uint8_t>(bits); }
};
struct s32 {
  static constexpr int in_register = 1;
  static int64_t number(uint32_t bits) { return static_cast<int32_t>(bits); }
  static uint32_t bits(int64_t number) { return static_cast<uint32_t>(number); }
};

template <typename T>
auto number_in(uint32_t bits, int i) {
  return T::number(bits >> (i * 32 / T::in_register));
}

// d (16 × 8) = a (16 × k) · b (k × 8) + c. Each sum is added in order.
template <int k, typename D, typename A, typename B, bool saturate = false>
__attribute__((noinline)) OPSMITH_UNWATCHED void mma(Into<4 / D::in_register> d,
                                                     From<16 * k / 32 / A::in_register> a,
                                                     From<8 * k / 32 / B::in_register> b,
                                                     From<4 / D::in_register> c,
                                                     Place place = here()) {
  using Sum = decltype(D::number(0));
  constexpr int in_a = A::in_register, in_b = B::in_register, in_d = D::in_register;
  constexpr int of_a = 16 * k / 32 / in_a, of_b = 8 * k / 32 / in_b;
  uint32_t as[warp_size][of_a], bs[warp_size][of_b];
  collect(a.x, as, "mma.sync", place);
  collect(b.x, bs, "mma.sync", place);
  Sum left[16][k], right[k][8];
  for (int lane = 0; lane < 32; ++lane) {
    const int group = lane / 4, in_group = lane % 4;
    for (int i = 0; i < of_a * in_a; ++i) {
      const int row = group + i / in_a % 2 * 8;
      const int column = i / in_a / 2 * 4 * in_a + in_group * in_a + i % in_a;
      left[row][column] = number_in<A>(as[lane][i / in_a], i % in_a);
    }
    for (int i = 0; i < of_b * in_b; ++i) {
      const int row = i / in_b * 4 * in_b + in_group * in_b + i % in_b;
      right[row][group] = number_in<B>(bs[lane][i / in_b], i % in_b);
    }
  }
  const int group = static_cast<int>(lane_number()) / 4;
  const int in_group = static_cast<int>(lane_number()) % 4;
  uint32_t results[4 / in_d] = {};
  for (int i = 0; i < 4; ++i) {
    const int row = group + i / 2 * 8, column = in_group * 2 + i % 2;
    Sum sum = number_in<D>(c.x[i / in_d], i % in_d);
    for (int inner = 0; inner < k; ++inner) sum += left[row][inner] * right[inner][column];
    if constexpr (saturate) sum = sum > INT_MAX ? INT_MAX : sum < INT_MIN ? INT_MIN : sum;
    results[i / in_d] |= D::bits(sum) << (i % in_d * 32 / in_d);
  }
  for (int i = 0; i < 4 / in_d; ++i) *d.x[i] = results[i];
}

// A row of a matrix of 8 × 8 numbers of 16 bits.
struct alignas(16) Row {
  uint32_t x[4];
};

inline char* row_at(uint64_t address, const char* what, Place place) {
  if (address % 16 != 0) {
    fail("ldmatrix and stmatrix take rows at addresses that are multiples of 16", place);
  }
  return shared_memory_at(address, what, place);
}

// Gives each lane its two numbers of each matrix; lane 8 i + j has brought row j of matrix i.
template <int count, bool transposed>
__attribute__((noinline)) OPSMITH_UNWATCHED void spread(Into<count> d, const Row& own,
                                                        Place place) {
  uint32_t rows[warp_size][4];
  collect(own.x, rows, "ldmatrix", place);
  const unsigned lane = lane_number();
  const auto number = [&](int matrix, unsigned row, unsigned column) {
    return rows[matrix * 8 + row][column / 2] >> (column % 2 * 16) & 0xffff;
  };
  for (int i = 0; i < count; ++i) {
    const unsigned one = lane / 4, two = lane % 4 * 2;
    *d.x[i] = transposed ? number(i, two, one) | number(i, two + 1, one) << 16
                         : number(i, one, two) | number(i, one, two + 1) << 16;
  }
}

template <int count, bool transposed = false>
__forceinline__ void ldmatrix(Into<count> d, uint64_t address, Place place = here()) {
  Row row{};
  // Other lanes' addresses are not used. Reading comes before waiting, since waiting would order
  // the lanes, which CUDA does not promise.
  if (lane_number() < 8 * count) {
    row = *reinterpret_cast<const Row*>(row_at(address, "ldmatrix", place));
  }
  spread<count, transposed>(d, row, place);
}

// The row that a lane stores, out of what all lanes hold.
template <int count, bool transposed>
__attribute__((noinline)) OPSMITH_UNWATCHED Row gather(const From<count>& own, Place place) {
  uint32_t all[warp_size][count];
  collect(own.x, all, "stmatrix", place);
  const unsigned row = lane_number() % 8, matrix = lane_number() / 8 % count;
  Row result{};
  for (unsigned column = 0; column < 8; ++column) {
    const unsigned one = transposed ? column : row, two = transposed ? row : column;
    const uint32_t number = all[one * 4 + two / 2][matrix] >> (two % 2 * 16) & 0xffff;
    result.x[column / 2] |= number << (column % 2 * 16);
  }
  return result;
}

template <int count, bool transposed = false>
__forceinline__ void stmatrix(uint64_t address, From<count> own, Place place = here()) {
  const Row row = gather<count, transposed>(own, place);
  if (lane_number() < 8 * count) {
    *reinterpret_cast<Row*>(row_at(address, "stmatrix", place)) = row;
  }
}

// --- copies ------------------------------------------------------------------------------------

// `sizes` are those that the instruction takes; from `read` bytes on it fills with zeros.
template <unsigned... sizes>
__forceinline__ void cp_async(uint64_t to, uint64_t from, uint64_t bytes, uint64_t read,
                              Place place = here()) {
  if (((bytes != sizes) && ...)) fail("cp.async copies 4, 8 or 16 bytes, and .cg 16", place);
  if ((to | from) % bytes != 0) {
    fail("cp.async copies at an address that is not a multiple of the size", place);
  }
  if (read > bytes) fail("cp.async reads more bytes than it copies", place);
  copy_later(shared_memory_at(to, "cp.async", place), reinterpret_cast<const void*>(from), bytes,
             bytes - read);
}
template <unsigned... sizes>
__forceinline__ void cp_async(uint64_t to, uint64_t from, uint64_t bytes, Place place = here()) {
  cp_async<sizes...>(to, from, bytes, bytes, place);
}
// A hint on what the cache keeps changes nothing here.
template <unsigned... sizes>
__forceinline__ void cp_async_hinted(uint64_t to, uint64_t from, uint64_t bytes, uint64_t,
                                     Place place = here()) {
  cp_async<sizes...>(to, from, bytes, bytes, place);
}
inline void cp_async_commit_group() { commit_copies(); }
inline void cp_async_wait_group(uint64_t groups) { wait_for_copies(groups); }
inline void cp_async_wait_all() {
  commit_copies();
  wait_for_copies(0);
}

// --- order -------------------------------------------------------------------------------------

inline void bar_sync(uint64_t id, Place place = here()) { meet_some(id, 0, true, place); }
inline void bar_sync(uint64_t id, uint64_t threads, Place place = here()) {
  if (threads == 0) fail("bar.sync is for 0 threads", place);
  meet_some(id, threads, true, place);
}
inline void bar_arrive(uint64_t id, uint64_t threads, Place place = here()) {
  meet_some(id, threads, false, place);
}
inline void fence_device() { fence(Scope::device); }
inline void fence_block() { fence(Scope::block); }
__forceinline__ void load_acquire(uint32_t& to, uint64_t address) {
  using Number = ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_device>;
  to = Number(*reinterpret_cast<uint32_t*>(address)).load(::cuda::memory_order_acquire);
}
__forceinline__ void add_at(uint64_t address, uint32_t value) {
  atomicAdd(reinterpret_cast<uint32_t*>(address), value);
}

}  // namespace emulated::ptx
