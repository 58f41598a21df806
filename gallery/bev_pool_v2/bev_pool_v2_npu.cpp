// The sums for an NPU, in float. Cores divide the intervals, and add each run of points of a cell
// to the output at once: an interval may hold several cells, and a cell be in several intervals.
#include "bev_pool_v2.h"

#include <opsmith/ascendc.h>

#include "../npu_rows.h"

namespace {

template <typename T>
class Pool {
 public:
  __aicore__ inline Pool(GM_ADDR depth, GM_ADDR feat, GM_ADDR ranks_depth, GM_ADDR ranks_feat,
                         GM_ADDR ranks_bev, GM_ADDR starts, GM_ADDR lengths, GM_ADDR sums,
                         int64_t channels)
      : rows_(channels) {
    depth_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(depth));
    feat_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(feat));
    ranks_depth_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(ranks_depth));
    ranks_feat_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(ranks_feat));
    ranks_bev_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(ranks_bev));
    starts_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(starts));
    lengths_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(lengths));
    sums_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(sums));
    rows_.Init(pipe_);
    pipe_.InitBuffer(outs_, buffers, tile * sizeof(float));
  }

  __aicore__ inline void Process(int64_t intervals) {
    for (int64_t i = AscendC::GetBlockIdx(); i < intervals; i += AscendC::GetBlockNum()) {
      const int64_t first = starts_.GetValue(i), end = first + lengths_.GetValue(i);
      for (int64_t p = first, next; p < end; p = next) {
        const int32_t cell = ranks_bev_.GetValue(p);
        for (next = p + 1; next < end && ranks_bev_.GetValue(next) == cell;) ++next;
        for (int64_t c = 0; c < rows_.channels; c += tile) Add(p, next, cell, c);
      }
    }
  }

 private:
  // Adds the points [p, end) to a part of a cell's channels, from c on.
  __aicore__ inline void Add(int64_t p, int64_t end, int64_t cell, int64_t c) {
    const uint32_t size = rows_.Part(c);
    AscendC::LocalTensor<float> sum = outs_.template AllocTensor<float>();
    AscendC::Duplicate(sum, 0.0f, size);
    for (; p < end; ++p) {
      const float scale = static_cast<float>(depth_.GetValue(ranks_depth_.GetValue(p)));
      AscendC::LocalTensor<float> row = rows_.Load(feat_, ranks_feat_.GetValue(p), c);
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Muls(row, row, scale, size);
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Add(sum, sum, row, size);
      rows_.Free(row);
    }
    outs_.template EnQue<float>(sum);
    sum = outs_.template DeQue<float>();
    add_to(sums_[cell * rows_.channels + c], sum, size);
    outs_.FreeTensor(sum);
  }

  AscendC::TPipe pipe_;
  Rows<T> rows_;
  AscendC::TQue<AscendC::TPosition::VECOUT, buffers> outs_;
  AscendC::GlobalTensor<T> depth_, feat_;
  AscendC::GlobalTensor<int32_t> ranks_depth_, ranks_feat_, ranks_bev_, starts_, lengths_;
  AscendC::GlobalTensor<float> sums_;
};

template <typename T>
__global__ __aicore__ void pool(GM_ADDR depth, GM_ADDR feat, GM_ADDR ranks_depth,
                                GM_ADDR ranks_feat, GM_ADDR ranks_bev, GM_ADDR starts,
                                GM_ADDR lengths, GM_ADDR sums, GM_ADDR out, int64_t intervals,
                                int64_t channels, int64_t count) {
  zero(sums, count);
  AscendC::SyncAll();
  Pool<T>(depth, feat, ranks_depth, ranks_feat, ranks_bev, starts, lengths, sums, channels)
      .Process(intervals);
  store<T>(sums, out, count);
}

}  // namespace

template <typename T>
void bev_pool_v2(const opsmith::Context& ctx, const bev::bev_pool_v2_args<T>& a) {
  const int64_t count = a.out.numel();
  if (count == 0) return;
  pool<opsmith::device_type<T>><<<cores_for(a.I, count), nullptr, opsmith::npu_stream(ctx)>>>(
      opsmith::gm(a.depth), opsmith::gm(a.feat), opsmith::gm(a.ranks_depth),
      opsmith::gm(a.ranks_feat), opsmith::gm(a.ranks_bev), opsmith::gm(a.interval_starts),
      opsmith::gm(a.interval_lengths), sums_of(ctx, a.out), opsmith::gm(a.out), a.I, a.C, count);
}
OPSMITH_KERNEL(bev, bev_pool_v2, npu, float, opsmith::half)
