#include "held.h"

#include <opsmith/ascendc.h>

using namespace AscendC;

namespace {

constexpr int32_t bytes = 2048;

template <typename T>
__global__ __aicore__ void scaled(GM_ADDR x_at, GM_ADDR out_at, int32_t n, int32_t how) {
  GlobalTensor<T> x, out;
  x.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(x_at));
  out.SetGlobalBuffer(reinterpret_cast<__gm__ T*>(out_at));
  TPipe pipe;
  TBuf<TPosition::VECCALC> own_in, own_wide;
  pipe.InitBuffer(own_in, bytes);
  pipe.InitBuffer(own_wide, bytes);
  LocalTensor<T> in = own_in.Get<T>();
  LocalTensor<half> wide = own_wide.Get<half>();
  const DataCopyExtParams part{1, uint32_t(n * sizeof(T)), 0, 0, 0};
  DataCopyPad(in, x, part, DataCopyPadExtParams<T>{});
  SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
  WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
  Muls(in, in, T(2.0f), n);
  if (how == 1) {
    Adds(in, in, T(0.1001f), n);
  } else {
    Adds(in, in, T(0.1f), n);
  }
  if constexpr (sizeof(T) == 4) {
    if (how == 2)
      Adds(in.template ReinterpretCast<int32_t>(), in.template ReinterpretCast<int32_t>(), 1, n);
    if (how == 3) {
      Cast(wide, in, RoundMode::CAST_RINT, n);
      Cast(in, wide, RoundMode::CAST_NONE, n);
    }
    if (how == 4) {
      for (int32_t round = 0; round < 100000; ++round) Adds(in, in, T(0.7f), n);
    }
  }
  SetFlag<HardEvent::V_MTE3>(EVENT_ID0);
  WaitFlag<HardEvent::V_MTE3>(EVENT_ID0);
  DataCopyPad(out, in, part);
}

}  // namespace

template <typename T>
void held(const opsmith::Context& ctx, const exact_tests::held_args<T>& a) {
  if (a.N == 0) return;
  scaled<opsmith::device_type<T>><<<1, nullptr, opsmith::npu_stream(ctx)>>>(
      opsmith::gm(a.x), opsmith::gm(a.out), int32_t(a.N), int32_t(a.how));
}
OPSMITH_KERNEL(exact_tests, held, npu, float, opsmith::half)
