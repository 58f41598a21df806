// Cores divide the rows. A row comes twice: to add up its squares, and to be scaled.
#include "rms_norm.h"

#include <opsmith/ascendc.h>

#include "../npu_rows.h"

namespace {

template <typename T>
class Norm {
 public:
  __aicore__ inline Norm(GM_ADDR x, GM_ADDR weight, GM_ADDR out, int64_t channels)
      : rows_(channels), weights_(channels) {
    x_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x));
    weight_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(weight));
    out_.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(out));
    rows_.Init(pipe_);
    weights_.Init(pipe_);
    pipe_.InitBuffer(outs_, buffers, tile * sizeof(T));
    pipe_.InitBuffer(products_, tile * sizeof(float));
    pipe_.InitBuffer(work_, tile * sizeof(float));
    pipe_.InitBuffer(part_, block * sizeof(float));
    pipe_.InitBuffer(sum_, block * sizeof(float));
  }

  __aicore__ inline void Process(int64_t rows, float eps) {
    for (int64_t row = AscendC::GetBlockIdx(); row < rows; row += AscendC::GetBlockNum()) {
      const float scale = ScaleOf(row, eps);
      for (int64_t c = 0; c < rows_.channels; c += tile) Scale(row, c, scale);
    }
  }

 private:
  static constexpr int64_t block = 8;  // of 32 bytes, which a tensor begins at

  __aicore__ inline float ScaleOf(int64_t row, float eps) {
    AscendC::LocalTensor<float> products = products_.template Get<float>();
    AscendC::LocalTensor<float> work = work_.template Get<float>();
    AscendC::LocalTensor<float> part = part_.template Get<float>();
    AscendC::LocalTensor<float> sum = sum_.template Get<float>();
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Duplicate(sum, 0.0f, block);
    for (int64_t c = 0; c < rows_.channels; c += tile) {
      AscendC::LocalTensor<float> in = rows_.Load(x_, row, c);
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Mul(products, in, in, rows_.Part(c));
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::ReduceSum(part, products, work, rows_.Part(c));
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Add(sum, sum, part, 1);
      rows_.Free(in);
    }
    AscendC::Duplicate(part, 1.0f, block);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Muls(sum, sum, 1.0f / static_cast<float>(rows_.channels), 1);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Adds(sum, sum, eps, 1);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Sqrt(sum, sum, 1);
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Div(part, part, sum, 1);
    // The scalar unit reads what the vector unit has written, and the other way round.
    const auto ready = static_cast<event_t>(pipe_.FetchEventID(AscendC::HardEvent::V_S));
    AscendC::SetFlag<AscendC::HardEvent::V_S>(ready);
    AscendC::WaitFlag<AscendC::HardEvent::V_S>(ready);
    const float scale = part.GetValue(0);
    const auto read = static_cast<event_t>(pipe_.FetchEventID(AscendC::HardEvent::S_V));
    AscendC::SetFlag<AscendC::HardEvent::S_V>(read);
    AscendC::WaitFlag<AscendC::HardEvent::S_V>(read);
    return scale;
  }

  __aicore__ inline void Scale(int64_t row, int64_t c, float scale) {
    const uint32_t size = rows_.Part(c);
    AscendC::LocalTensor<float> in = rows_.Load(x_, row, c);
    AscendC::LocalTensor<float> weight = weights_.Load(weight_, 0, c);
    AscendC::LocalTensor<T> out = outs_.template AllocTensor<T>();
    AscendC::PipeBarrier<PIPE_V>();
    AscendC::Muls(in, in, scale, size);
    AscendC::PipeBarrier<PIPE_V>();
    if constexpr (std::is_same_v<T, float>) {
      AscendC::Mul(out, in, weight, size);
    } else {
      AscendC::Mul(in, in, weight, size);
      AscendC::PipeBarrier<PIPE_V>();
      AscendC::Cast(out, in, AscendC::RoundMode::CAST_RINT, size);
    }
    rows_.Free(in);
    weights_.Free(weight);
    outs_.template EnQue<T>(out);
    out = outs_.template DeQue<T>();
    const AscendC::DataCopyExtParams bytes{1, static_cast<uint32_t>(size * sizeof(T)), 0, 0, 0};
    AscendC::DataCopyPad(out_[row * rows_.channels + c], out, bytes);
    outs_.FreeTensor(out);
  }

  AscendC::TPipe pipe_;
  Rows<T> rows_, weights_;
  AscendC::TQue<AscendC::TPosition::VECOUT, buffers> outs_;
  AscendC::TBuf<AscendC::TPosition::VECCALC> products_, work_, part_, sum_;
  AscendC::GlobalTensor<T> x_, weight_, out_;
};

template <typename T>
__global__ __aicore__ void norm(GM_ADDR x, GM_ADDR weight, GM_ADDR out, int64_t rows,
                                int64_t channels, float eps) {
  Norm<T>(x, weight, out, channels).Process(rows, eps);
}

}  // namespace

template <typename T>
void rms_norm(const opsmith::Context& ctx, const norms::rms_norm_args<T>& a) {
  if (a.x.numel() == 0) return;
  const int64_t rows = a.x.numel() / a.C;
  const auto blocks = static_cast<uint32_t>(std::min(rows, cores));
  norm<opsmith::device_type<T>><<<blocks, nullptr, opsmith::npu_stream(ctx)>>>(
      opsmith::gm(a.x), opsmith::gm(a.weight), opsmith::gm(a.out), rows, a.C,
      static_cast<float>(a.eps));
}
OPSMITH_KERNEL(norms, rms_norm, npu, float, opsmith::half)
