// Which later intervals an interval touches, as a row of a mask for each; a core takes as many
// tiles of columns as every other. With -DMENDED it is right.
#include "covered_intervals.h"

#include <opsmith/ascendc.h>
#include <opsmith/kernel.h>

using namespace AscendC;

namespace {

#ifdef MENDED
constexpr bool mended = true;
#else
constexpr bool mended = false;
#endif

constexpr int32_t tile = 16;  // columns: a block of 32 bytes

__global__ __aicore__ void covered_intervals(GM_ADDR begins_at, GM_ADDR ends_at, GM_ADDR out_at,
                                             int32_t count, int32_t tiles) {
  GlobalTensor<float> begins, ends;
  GlobalTensor<int16_t> out;
  begins.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(begins_at));
  ends.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(ends_at));
  out.SetGlobalBuffer(reinterpret_cast<__gm__ int16_t*>(out_at));
  TPipe pipe;
  TQue<TPosition::VECOUT, 1> masks;
  pipe.InitBuffer(masks, 2, tile * sizeof(int16_t));
  for (int32_t row = 0; row < count; ++row) {
    for (int32_t i = 0; i < tiles; ++i) {
      const auto start = static_cast<int32_t>(GetBlockIdx() * tiles + i) * tile;
      if (mended && start >= count) break;
      LocalTensor<int16_t> mask = masks.AllocTensor<int16_t>();
      for (int32_t j = 0; j < tile; ++j) {
        const int32_t column = start + j;
        const bool touches = column > row && column < count &&
                             begins.GetValue(column) < ends.GetValue(row) &&
                             begins.GetValue(row) < ends.GetValue(column);
        mask.SetValue(j, touches ? 1 : 0);
      }
      masks.EnQue(mask);
      mask = masks.DeQue<int16_t>();
      DataCopy(out[row * count + start], mask, tile);  // FAULT past the row, into the next
      masks.FreeTensor(mask);
    }
  }
}

}  // namespace

void covered_intervals(const opsmith::Context& ctx, const trophies::covered_intervals_args& a) {
  const auto count = static_cast<int32_t>(a.N);
  if (count == 0) return;
  const int32_t all = count / tile, blocks = all < 8 ? all : 8;
  covered_intervals<<<blocks, nullptr, opsmith::npu_stream(ctx)>>>(
      opsmith::gm(a.begins), opsmith::gm(a.ends), opsmith::gm(a.out), count,
      (all + blocks - 1) / blocks);
}
OPSMITH_KERNEL(trophies, covered_intervals, npu)
