#include "add_custom.h"

#include <opsmith/ascendc.h>

namespace {

// Of each queue: while one is computed with, the next is copied in and the last one out.
constexpr int32_t buffers = 2;
// Elements of a tile: three queues of two such buffers fit a core's memory many times, and a copy
// is long enough to be worth its start.
constexpr uint32_t tile = 4096;
// A core's part is whole blocks of 32 bytes, for float and half: what moves fastest.
constexpr int64_t alignment = 16;
// Those of Atlas A2; of more blocks than cores, some wait for others to end.
constexpr int64_t cores = 40;

template <typename T>
class Adder {
 public:
  __aicore__ inline Adder(GM_ADDR x, GM_ADDR y, GM_ADDR out, int64_t count, int64_t each) {
    const int64_t first = AscendC::GetBlockIdx() * each;
    count_ = count - first < each ? count - first : each;
    x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x) + first, count_);
    y_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(y) + first, count_);
    out_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(out) + first, count_);
    pipe_.InitBuffer(xs_, buffers, tile * sizeof(T));
    pipe_.InitBuffer(ys_, buffers, tile * sizeof(T));
    pipe_.InitBuffer(outs_, buffers, tile * sizeof(T));
  }

  __aicore__ inline void Process() {
    for (int64_t at = 0; at < count_; at += tile) {
      const uint32_t size = count_ - at < tile ? static_cast<uint32_t>(count_ - at) : tile;
      CopyIn(at, size);
      Compute(size);
      CopyOut(at, size);
    }
  }

 private:
  __aicore__ inline void CopyIn(int64_t at, uint32_t size) {
    const AscendC::DataCopyExtParams bytes{1, static_cast<uint32_t>(size * sizeof(T)), 0, 0, 0};
    const AscendC::DataCopyPadExtParams<T> nothing{false, 0, 0, 0};
    AscendC::LocalTensor<T> x = xs_.template AllocTensor<T>();
    AscendC::LocalTensor<T> y = ys_.template AllocTensor<T>();
    AscendC::DataCopyPad(x, x_[at], bytes, nothing);
    AscendC::DataCopyPad(y, y_[at], bytes, nothing);
    xs_.EnQue(x);
    ys_.EnQue(y);
  }

  __aicore__ inline void Compute(uint32_t size) {
    AscendC::LocalTensor<T> x = xs_.template DeQue<T>();
    AscendC::LocalTensor<T> y = ys_.template DeQue<T>();
    AscendC::LocalTensor<T> out = outs_.template AllocTensor<T>();
    AscendC::Add(out, x, y, size);
    outs_.template EnQue<T>(out);
    xs_.FreeTensor(x);
    ys_.FreeTensor(y);
  }

  __aicore__ inline void CopyOut(int64_t at, uint32_t size) {
    const AscendC::DataCopyExtParams bytes{1, static_cast<uint32_t>(size * sizeof(T)), 0, 0, 0};
    AscendC::LocalTensor<T> out = outs_.template DeQue<T>();
    AscendC::DataCopyPad(out_[at], out, bytes);
    outs_.FreeTensor(out);
  }

  AscendC::TPipe pipe_;
  AscendC::TQue<AscendC::TPosition::VECIN, buffers> xs_;
  AscendC::TQue<AscendC::TPosition::VECIN, buffers> ys_;
  AscendC::TQue<AscendC::TPosition::VECOUT, buffers> outs_;
  AscendC::GlobalTensor<T> x_;
  AscendC::GlobalTensor<T> y_;
  AscendC::GlobalTensor<T> out_;
  int64_t count_;
};

template <typename T>
__global__ __aicore__ void add(GM_ADDR x, GM_ADDR y, GM_ADDR out, int64_t count, int64_t each) {
  Adder<T>(x, y, out, count, each).Process();
}

}  // namespace

template <typename T>
void add_custom(const opsmith::Context& ctx, const npu_tutorial::add_custom_args<T>& a) {
  const int64_t count = a.out.numel();
  if (count == 0) return;
  // At least a tile for each core.
  int64_t each = std::max<int64_t>((count + cores - 1) / cores, tile);
  each = (each + alignment - 1) / alignment * alignment;
  const auto blocks = static_cast<uint32_t>((count + each - 1) / each);
  add<opsmith::device_type<T>><<<blocks, nullptr, opsmith::npu_stream(ctx)>>>(
      opsmith::gm(a.x), opsmith::gm(a.y), opsmith::gm(a.out), count, each);
}
OPSMITH_KERNEL(npu_tutorial, add_custom, npu, float, opsmith::half)
