// What kernels in Ascend C share: rows that come part by part, and sums that all cores add to.
#pragma once

#include <opsmith/ascendc.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

// Those of Atlas A2; of more blocks than cores, some wait for others to end, and SyncAll for them.
constexpr int64_t cores = 40;
// Of each queue: while one is computed with, the next is copied in.
constexpr int32_t buffers = 2;
// Elements that are in a core's memory at a time, of each tensor.
constexpr int64_t tile = 2048;

// Each core has an interval, or a tile of the output.
inline uint32_t cores_for(int64_t intervals, int64_t count) {
  return static_cast<uint32_t>(
      std::clamp<int64_t>(std::max(intervals, (count + tile - 1) / tile), 1, cores));
}

// The memory of a result's sums: the result's own, if it is in float.
template <typename T>
GM_ADDR sums_of(const opsmith::Context& ctx, const opsmith::Tensor<T>& out) {
  if constexpr (std::is_same_v<T, float>) {
    return opsmith::gm(out);
  } else {
    return reinterpret_cast<GM_ADDR>(ctx.scratch<float>(out.numel()).data());
  }
}

// Adds a tensor to global memory, whatever other cores add to it.
__aicore__ inline void add_to(const AscendC::GlobalTensor<float>& sums,
                              const AscendC::LocalTensor<float>& more, uint32_t size) {
  const AscendC::DataCopyExtParams bytes{1, static_cast<uint32_t>(size * sizeof(float)), 0, 0, 0};
  AscendC::SetAtomicAdd<float>();
  AscendC::DataCopyPad(sums, more, bytes);
  AscendC::SetAtomicNone();
}

// Zeroes this core's part of the sums, whole blocks of 32 bytes.
__aicore__ inline void zero(GM_ADDR sums, int64_t count) {
  const int64_t parts = AscendC::GetBlockNum();
  const int64_t each = ((count + parts - 1) / parts + 7) / 8 * 8;
  const int64_t first = AscendC::GetBlockIdx() * each;
  if (first >= count) return;
  AscendC::GlobalTensor<float> own;
  own.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(sums) + first);
  AscendC::InitOutput<float>(own, count - first < each ? count - first : each, 0.0f);
}

// Rounds the sums of all cores to the result's type, if that is not float.
template <typename T>
__aicore__ inline void store(GM_ADDR sums_at, GM_ADDR out_at, int64_t count) {
  if constexpr (!std::is_same_v<T, float>) {
    AscendC::SyncAll();
    AscendC::GlobalTensor<float> sums;
    AscendC::GlobalTensor<T> out;
    sums.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(sums_at));
    out.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(out_at));
    AscendC::TPipe pipe;
    AscendC::TQue<AscendC::TPosition::VECIN, buffers> ins;
    AscendC::TQue<AscendC::TPosition::VECOUT, buffers> outs;
    pipe.InitBuffer(ins, buffers, tile * sizeof(float));
    pipe.InitBuffer(outs, buffers, tile * sizeof(T));
    for (int64_t at = AscendC::GetBlockIdx() * tile; at < count;
         at += AscendC::GetBlockNum() * tile) {
      const uint32_t size = count - at < tile ? static_cast<uint32_t>(count - at) : tile;
      AscendC::LocalTensor<float> in = ins.template AllocTensor<float>();
      const AscendC::DataCopyExtParams wide{1, static_cast<uint32_t>(size * sizeof(float)), 0, 0,
                                            0};
      AscendC::DataCopyPad(in, sums[at], wide, {false, 0, 0, 0});
      ins.EnQue(in);
      in = ins.template DeQue<float>();
      AscendC::LocalTensor<T> rounded = outs.template AllocTensor<T>();
      AscendC::Cast(rounded, in, AscendC::RoundMode::CAST_RINT, size);
      outs.template EnQue<T>(rounded);
      ins.FreeTensor(in);
      rounded = outs.template DeQue<T>();
      const AscendC::DataCopyExtParams bytes{1, static_cast<uint32_t>(size * sizeof(T)), 0, 0, 0};
      AscendC::DataCopyPad(out[at], rounded, bytes);
      outs.FreeTensor(rounded);
    }
  }
}

// Rows of a matrix with `channels` columns, loaded part by part, as floats.
template <typename T>
class Rows {
 public:
  __aicore__ inline explicit Rows(int64_t its_channels) : channels(its_channels) {}

  __aicore__ inline void Init(AscendC::TPipe& pipe) {
    pipe.InitBuffer(ins_, buffers, tile * sizeof(T));
    if constexpr (!std::is_same_v<T, float>) pipe.InitBuffer(wide_, tile * sizeof(float));
  }

  // How many columns the part from c on has.
  __aicore__ inline uint32_t Part(int64_t c) const {
    return static_cast<uint32_t>(channels - c < tile ? channels - c : tile);
  }

  __aicore__ inline AscendC::LocalTensor<float> Load(const AscendC::GlobalTensor<T>& matrix,
                                                     int64_t row, int64_t c) {
    const uint32_t size = Part(c);
    const AscendC::DataCopyExtParams bytes{1, static_cast<uint32_t>(size * sizeof(T)), 0, 0, 0};
    AscendC::LocalTensor<T> in = ins_.template AllocTensor<T>();
    AscendC::DataCopyPad(in, matrix[row * channels + c], bytes, {false, 0, 0, 0});
    ins_.EnQue(in);
    in = ins_.template DeQue<T>();
    if constexpr (std::is_same_v<T, float>) {
      return in;
    } else {
      AscendC::LocalTensor<float> wide = wide_.template Get<float>();
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Cast(wide, in, AscendC::RoundMode::CAST_NONE, size);
      ins_.FreeTensor(in);
      return wide;
    }
  }

  __aicore__ inline void Free(AscendC::LocalTensor<float>& row) {
    if constexpr (std::is_same_v<T, float>) ins_.FreeTensor(row);
  }

  const int64_t channels;

 private:
  AscendC::TQue<AscendC::TPosition::VECIN, buffers> ins_;
  AscendC::TBuf<AscendC::TPosition::VECCALC> wide_;
};
