// The gradients for an NPU, in float. Cores divide the intervals; each point adds to an element of
// the one gradient, and to a pixel of the other.
#include "bev_pool_v2_backward.h"

#include <opsmith/ascendc.h>

#include "../npu_rows.h"

namespace {

template <typename T>
class Gradients {
 public:
  __aicore__ inline Gradients(GM_ADDR grad, GM_ADDR depth, GM_ADDR feat, GM_ADDR ranks_depth,
                              GM_ADDR ranks_feat, GM_ADDR ranks_bev, GM_ADDR starts,
                              GM_ADDR lengths, GM_ADDR depth_grad, GM_ADDR feat_grad,
                              int64_t channels)
      : pooled_(channels), seen_(channels) {
    grad_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(grad));
    depth_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(depth));
    feat_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(feat));
    ranks_depth_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(ranks_depth));
    ranks_feat_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(ranks_feat));
    ranks_bev_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(ranks_bev));
    starts_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(starts));
    lengths_.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(lengths));
    depth_grad_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(depth_grad));
    feat_grad_.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(feat_grad));
    pooled_.Init(pipe_);
    seen_.Init(pipe_);
    pipe_.InitBuffer(products_, tile * sizeof(float));
    pipe_.InitBuffer(work_, tile * sizeof(float));
    pipe_.InitBuffer(part_, block * sizeof(float));
    pipe_.InitBuffer(dots_, buffers, block * sizeof(float));
    pipe_.InitBuffer(outs_, buffers, tile * sizeof(float));
  }

  __aicore__ inline void Process(int64_t intervals) {
    for (int64_t i = AscendC::GetBlockIdx(); i < intervals; i += AscendC::GetBlockNum()) {
      const int64_t first = starts_.GetValue(i), end = first + lengths_.GetValue(i);
      for (int64_t p = first; p < end; ++p) Add(p);
    }
  }

 private:
  static constexpr int64_t block = 8;  // of 32 bytes, which a tensor begins at

  __aicore__ inline void Add(int64_t p) {
    const int64_t bin = ranks_depth_.GetValue(p), pixel = ranks_feat_.GetValue(p);
    const int64_t cell = ranks_bev_.GetValue(p), channels = pooled_.channels;
    const float scale = static_cast<float>(depth_.GetValue(bin));
    AscendC::LocalTensor<float> products = products_.template Get<float>();
    AscendC::LocalTensor<float> work = work_.template Get<float>();
    AscendC::LocalTensor<float> part = part_.template Get<float>();
    AscendC::LocalTensor<float> dot = dots_.template AllocTensor<float>();
    AscendC::Duplicate(dot, 0.0f, block);
    for (int64_t c = 0; c < channels; c += tile) {
      const uint32_t size = pooled_.Part(c);
      AscendC::LocalTensor<float> pooled = pooled_.Load(grad_, cell, c);
      AscendC::LocalTensor<float> seen = seen_.Load(feat_, pixel, c);
      AscendC::LocalTensor<float> out = outs_.template AllocTensor<float>();
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Muls(out, pooled, scale, size);
      AscendC::Mul(products, pooled, seen, size);
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::ReduceSum(part, products, work, size);
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Add(dot, dot, part, 1);
      pooled_.Free(pooled);
      seen_.Free(seen);
      outs_.template EnQue<float>(out);
      out = outs_.template DeQue<float>();
      add_to(feat_grad_[pixel * channels + c], out, size);
      outs_.FreeTensor(out);
    }
    dots_.template EnQue<float>(dot);
    dot = dots_.template DeQue<float>();
    add_to(depth_grad_[bin], dot, 1);
    dots_.FreeTensor(dot);
  }

  AscendC::TPipe pipe_;
  Rows<T> pooled_, seen_;
  AscendC::TBuf<AscendC::TPosition::VECCALC> products_, work_, part_;
  AscendC::TQue<AscendC::TPosition::VECOUT, buffers> dots_, outs_;
  AscendC::GlobalTensor<T> grad_, depth_, feat_;
  AscendC::GlobalTensor<int32_t> ranks_depth_, ranks_feat_, ranks_bev_, starts_, lengths_;
  AscendC::GlobalTensor<float> depth_grad_, feat_grad_;
};

template <typename T>
__global__ __aicore__ void differentiate(GM_ADDR grad, GM_ADDR depth, GM_ADDR feat,
                                         GM_ADDR ranks_depth, GM_ADDR ranks_feat, GM_ADDR ranks_bev,
                                         GM_ADDR starts, GM_ADDR lengths, GM_ADDR depth_sums,
                                         GM_ADDR feat_sums, GM_ADDR depth_grad, GM_ADDR feat_grad,
                                         int64_t intervals, int64_t channels, int64_t bins,
                                         int64_t features) {
  zero(depth_sums, bins);
  zero(feat_sums, features);
  AscendC::SyncAll();
  Gradients<T>(grad, depth, feat, ranks_depth, ranks_feat, ranks_bev, starts, lengths, depth_sums,
               feat_sums, channels)
      .Process(intervals);
  store<T>(depth_sums, depth_grad, bins);
  store<T>(feat_sums, feat_grad, features);
}

}  // namespace

template <typename T>
void bev_pool_v2_backward(const opsmith::Context& ctx, const bev::bev_pool_v2_backward_args<T>& a) {
  const int64_t bins = a.out0.numel(), features = a.out1.numel();
  if (bins == 0 && features == 0) return;
  differentiate<opsmith::device_type<T>>
      <<<cores_for(a.I, std::max(bins, features)), nullptr, opsmith::npu_stream(ctx)>>>(
          opsmith::gm(a.grad), opsmith::gm(a.depth), opsmith::gm(a.feat),
          opsmith::gm(a.ranks_depth), opsmith::gm(a.ranks_feat), opsmith::gm(a.ranks_bev),
          opsmith::gm(a.interval_starts), opsmith::gm(a.interval_lengths), sums_of(ctx, a.out0),
          sums_of(ctx, a.out1), opsmith::gm(a.out0), opsmith::gm(a.out1), a.I, a.C, bins, features);
}
OPSMITH_KERNEL(bev, bev_pool_v2_backward, npu, float, opsmith::half)
