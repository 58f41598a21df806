// What the kernels with planted faults share. Each takes `n` floats, at most kMost, and is right
// without its fault; `kWrong` plants it in the line that is marked.
#pragma once

#include <opsmith/ascendc.h>
#include <opsmith/kernel.h>

#include <string>

using namespace AscendC;

constexpr uint32_t kMost = 128, kBytes = kMost * sizeof(float);

#define KERNEL(name)     \
  template <bool kWrong> \
  __global__ __aicore__ void name(GM_ADDR x_at, GM_ADDR out_at, int32_t n)

// Global memory, and the unified buffer without queues.
#define TENSORS()                                               \
  GlobalTensor<float> x, out;                                   \
  x.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(x_at));     \
  out.SetGlobalBuffer(reinterpret_cast<__gm__ float*>(out_at)); \
  TPipe pipe;
#define BUFFERS()                               \
  TENSORS()                                     \
  TBuf<TPosition::VECCALC> own_a, own_b, own_c; \
  pipe.InitBuffer(own_a, kBytes);               \
  pipe.InitBuffer(own_b, kBytes);               \
  pipe.InitBuffer(own_c, kBytes);               \
  const LocalTensor<float> a = own_a.Get<float>(), b = own_b.Get<float>(), c = own_c.Get<float>();
#define QUEUES()                   \
  TENSORS()                        \
  TQue<TPosition::VECIN, 1> ins;   \
  TQue<TPosition::VECOUT, 1> outs; \
  pipe.InitBuffer(ins, 2, kBytes); \
  pipe.InitBuffer(outs, 2, kBytes);

// Any number of floats.
#define LOAD(to, from, count)                                               \
  DataCopyPad(to, from, DataCopyExtParams{1, uint32_t(count) * 4, 0, 0, 0}, \
              DataCopyPadExtParams<float>{false, 0, 0, 0})
// And zeros to the end of a block.
#define LOAD_AND_ZEROS(to, from, count)                                     \
  DataCopyPad(to, from, DataCopyExtParams{1, uint32_t(count) * 4, 0, 0, 0}, \
              DataCopyPadExtParams<float>{true, 0, uint8_t((8 - (count) % 8) % 8), 0})
#define SAVE(to, from, count) \
  DataCopyPad(to, from, DataCopyExtParams{1, uint32_t(count) * 4, 0, 0, 0})
// The first queue has done what it was given before the second one goes on.
#define THEN(from, to)                        \
  SetFlag<HardEvent::from##_##to>(EVENT_ID0); \
  WaitFlag<HardEvent::from##_##to>(EVENT_ID0)

// By queues: all elements in, and all out of a tensor of results.
#define COPY_IN(in)                                 \
  LocalTensor<float> in = ins.AllocTensor<float>(); \
  LOAD(in, x, n);                                   \
  ins.EnQue(in);                                    \
  in = ins.DeQue<float>()
#define COPY_OUT(result)        \
  outs.EnQue(result);           \
  result = outs.DeQue<float>(); \
  SAVE(out, result, n);         \
  outs.FreeTensor(result)
// Both, with a step between that takes `in` and gives `result`.
#define BY_QUEUES(...)                                     \
  {                                                        \
    COPY_IN(in);                                           \
    LocalTensor<float> result = outs.AllocTensor<float>(); \
    __VA_ARGS__;                                           \
    ins.FreeTensor(in);                                    \
    COPY_OUT(result);                                      \
  }

using Kernel = void (*)(GM_ADDR, GM_ADDR, int32_t);
struct Row {
  const char* name;
  Kernel kernel;
  uint32_t blocks = 1;
};
