// The gradient of a pooling's depths: for each point of an interval, the product of its row of the
// gradient with the interval's features. With -DMENDED it is right.
#include "depth_gradient.h"

#include <opsmith/ascendc.h>
#include <opsmith/kernel.h>

using namespace AscendC;

namespace {

#ifdef MENDED
constexpr bool mended = true;
#else
constexpr bool mended = false;
#endif

__global__ __aicore__ void depth_gradient(GM_ADDR grad_at, GM_ADDR feat_at, GM_ADDR starts_at,
                                          GM_ADDR lengths_at, GM_ADDR out_at, int32_t intervals,
                                          int32_t channels) {
  GlobalTensor<float> grad, feat, out;
  GlobalTensor<int32_t> starts, lengths;
  grad.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(grad_at));
  feat.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(feat_at));
  out.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(out_at));
  starts.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(starts_at));
  lengths.SetGlobalBuffer(reinterpret_cast<__gm__ int32_t*>(lengths_at));
  const auto bytes = static_cast<uint32_t>(channels * sizeof(float));
  const DataCopyExtParams row{1, bytes, 0, 0, 0}, number{1, sizeof(float), 0, 0, 0};
  const DataCopyPadExtParams<float> no_padding{false, 0, 0, 0};
  TPipe pipe;
  TQue<TPosition::VECIN, 1> feats, grads;
  TQue<TPosition::VECOUT, 1> sums;
  TBuf<> products;
  pipe.InitBuffer(feats, 2, bytes);
  pipe.InitBuffer(grads, 2, bytes);
  pipe.InitBuffer(sums, 2, 32);
  pipe.InitBuffer(products, bytes);
  const LocalTensor<float> product = products.Get<float>();
  for (int32_t i = GetBlockIdx(); i < intervals; i += GetBlockNum()) {
    const int32_t start = starts.GetValue(i), end = start + lengths.GetValue(i);
    LocalTensor<float> features = feats.AllocTensor<float>();
    DataCopyPad(features, feat[i * channels], row, no_padding);
    feats.EnQue(features);
    features = feats.DeQue<float>();
    for (int32_t point = start; point < end; ++point) {
      LocalTensor<float> gradient = grads.AllocTensor<float>();
      DataCopyPad(gradient, grad[point * channels], row, no_padding);
      grads.EnQue(gradient);
      gradient = grads.DeQue<float>();
      if (mended || point == end - 1) {  // as if an interval had one depth
        LocalTensor<float> sum = sums.AllocTensor<float>();
        Mul(product, gradient, features, channels);
        ReduceSum(sum, product, product, channels);
        sums.EnQue(sum);
        sum = sums.DeQue<float>();
        DataCopyPad(out[point], sum, number);
        sums.FreeTensor(sum);
      }
      if constexpr (mended) {
        grads.FreeTensor(gradient);
      } else {
        feats.FreeTensor(gradient);  // FAULT
      }
    }
    feats.FreeTensor(features);
  }
}

}  // namespace

void depth_gradient(const opsmith::Context& ctx, const trophies::depth_gradient_args& a) {
  if (a.I == 0) return;
  depth_gradient<<<8, nullptr, opsmith::npu_stream(ctx)>>>(
      opsmith::gm(a.grad), opsmith::gm(a.feat), opsmith::gm(a.starts), opsmith::gm(a.lengths),
      opsmith::gm(a.out), static_cast<int32_t>(a.I), static_cast<int32_t>(a.C));
}
OPSMITH_KERNEL(trophies, depth_gradient, npu)
