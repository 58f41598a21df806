// What orders the blocks of a launch.
//
// After 同步控制/核间同步 and 工具接口/系统资源与变量 (GetBlockIdx, GetBlockNum).
#pragma once

#include <ascendc/pipes.h>

namespace emulated::npu {

inline constexpr char sync_all[] = "SyncAll", flag_of_all[] = "CrossCoreSetFlag";

inline void require_scheduler() {
  require(registers().scheduler, order,
          "orders blocks in hardware, which KERNEL_TYPE_AIV_ONLY does not start: "
          "KERNEL_TYPE_MIX_AIV_1_0 does");
}
// Signals between all blocks: a block sends all, or waits for all.
inline std::vector<Signal> of_all_blocks(const char* name, uint16_t id, bool sends) {
  require(id <= 15, parameter, "has the flag " + std::to_string(id) + "; there are 0 to 15");
  const uint32_t own = block_index(), blocks = block_count();
  require(blocks <= most_cores, order,
          "waits for " + std::to_string(blocks) + " blocks, and there are at most " +
              std::to_string(most_cores) + " cores: blocks that wait let no others begin");
  std::vector<Signal> signals;
  for (uint32_t other = 0; other < blocks; ++other) {
    signals.emplace_back(name, id, sends ? own : other, sends ? other : own);
  }
  return signals;
}
inline void meet_all_blocks() {
  barrier_of_all();
  send(of_all_blocks(sync_all, 0, true), complete(Queue::S));
  receive(of_all_blocks(sync_all, 0, false));
}

}  // namespace emulated::npu

namespace AscendC {

template <bool vector_cores_only = true>
void SyncAll(Place place = here()) {
  static_assert(vector_cores_only, "opsmith emulates no cube cores");
  npu::issue(npu::Queue::S, "SyncAll", place);
  npu::require_scheduler();
  npu::meet_all_blocks();
}
// By way of memory: 32 bytes for each block.
template <bool vector_cores_only = true>
void SyncAll(const GlobalTensor<int32_t>& all, const LocalTensor<int32_t>& own, int32_t cores = 0,
             Place place = here()) {
  npu::issue(npu::Queue::S, "SyncAll", place);
  npu::require(cores == 0 || cores == GetBlockNum(), npu::absent,
               "waits for some of the blocks, which opsmith does not emulate");
  const int32_t* at = all.data() + npu::block_index() * npu::block_bytes / sizeof(int32_t);
  npu::reads(nullptr, at, npu::block_bytes);
  npu::require(*at == 0, npu::parameter, "has a workspace that does not begin with zeros");
  npu::writes(own.buffer(), own.data(), npu::block_count() * npu::block_bytes);
  npu::meet_all_blocks();
}

// Each block sets a flag of all, once its queue has done what it was given, and waits for all.
template <uint8_t mode, pipe_t pipe>
void CrossCoreSetFlag(uint16_t id, Place place = here()) {
  static_assert(mode == 0 && pipe != PIPE_S && pipe != PIPE_ALL,
                "opsmith emulates no CrossCoreSetFlag of cube cores, PIPE_S or PIPE_ALL");
  constexpr auto queue = static_cast<npu::Queue>(pipe);
  npu::issue(queue, "CrossCoreSetFlag", place);
  npu::require_scheduler();
  npu::send(npu::of_all_blocks(npu::flag_of_all, id, true), npu::complete(queue));
}
template <uint8_t mode = 0, pipe_t pipe = PIPE_S>
void CrossCoreWaitFlag(uint16_t id, Place place = here()) {
  static_assert(mode == 0, "opsmith emulates no CrossCoreWaitFlag for cube cores");
  npu::issue(npu::Queue::S, "CrossCoreWaitFlag", place);
  npu::receive(npu::of_all_blocks(npu::flag_of_all, id, false));
}

}  // namespace AscendC
