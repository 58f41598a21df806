// Faults in the use of queues and of the memory that they give.
#include "faults.h"

#include "queues.h"

namespace {

KERNEL(tensor_not_queued) {
  QUEUES()
  LocalTensor<float> in = ins.AllocTensor<float>();
  LOAD(in, x, n);
  if constexpr (!kWrong) {
    ins.EnQue(in);
    in = ins.DeQue<float>();
  }
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);  // FAULT
  ins.FreeTensor(in);
  COPY_OUT(result);
}

KERNEL(result_not_queued) {
  QUEUES()
  COPY_IN(in);
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);
  ins.FreeTensor(in);
  if constexpr (!kWrong) {
    outs.EnQue(result);
    result = outs.DeQue<float>();
  }
  SAVE(out, result, n);  // FAULT
  outs.FreeTensor(result);
}

KERNEL(freed_through_another_queue) {
  QUEUES()
  TQue<TPosition::VECIN, 1> others;
  pipe.InitBuffer(others, 1, kBytes);
  COPY_IN(in);
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);
  outs.EnQue(result);
  if constexpr (kWrong) {
    others.FreeTensor(in);  // FAULT
  } else {
    ins.FreeTensor(in);
  }
  result = outs.DeQue<float>();
  SAVE(out, result, n);
  outs.FreeTensor(result);
}

KERNEL(freed_twice) {
  QUEUES()
  BY_QUEUES(Muls(result, in, 2.0f, n); if constexpr (kWrong) ins.FreeTensor(in))  // FAULT
}

KERNEL(used_after_it_was_freed) {
  QUEUES()
  COPY_IN(in);
  if constexpr (kWrong) ins.FreeTensor(in);
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);  // FAULT
  if constexpr (!kWrong) ins.FreeTensor(in);
  COPY_OUT(result);
}

KERNEL(never_freed) {
  QUEUES()
  for (int32_t round = 0; round < 3; ++round) {
    LocalTensor<float> in = ins.AllocTensor<float>();  // FAULT
    LOAD(in, x, n);
    ins.EnQue(in);
    in = ins.DeQue<float>();
    LocalTensor<float> result = outs.AllocTensor<float>();
    Muls(result, in, 2.0f, n);
    if constexpr (!kWrong) ins.FreeTensor(in);
    outs.EnQue(result);
    result = outs.DeQue<float>();
    SAVE(out, result, n);
    outs.FreeTensor(result);
    PipeBarrier<PIPE_MTE3>();
  }
}

KERNEL(taken_from_an_empty_queue) {
  QUEUES()
  LocalTensor<float> in = ins.AllocTensor<float>();
  LOAD(in, x, n);
  if constexpr (!kWrong) ins.EnQue(in);
  in = ins.DeQue<float>();  // FAULT
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);
  ins.FreeTensor(in);
  COPY_OUT(result);
}

KERNEL(queued_twice) {
  QUEUES()
  TQue<TPosition::VECIN, 2> deep;
  pipe.InitBuffer(deep, 2, kBytes);
  LocalTensor<float> in = deep.AllocTensor<float>();
  LOAD(in, x, n);
  deep.EnQue(in);
  if constexpr (kWrong) deep.EnQue(in);  // FAULT
  in = deep.DeQue<float>();
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);
  deep.FreeTensor(in);
  COPY_OUT(result);
}

KERNEL(more_than_the_depth) {
  QUEUES()
  TQue<TPosition::VECIN, kWrong ? 1 : 2> deep;
  pipe.InitBuffer(deep, 2, kBytes);
  LocalTensor<float> first = deep.template AllocTensor<float>();
  LOAD(first, x, n);
  LocalTensor<float> second = deep.template AllocTensor<float>();
  LOAD(second, x, n);
  deep.EnQue(first);
  deep.EnQue(second);  // FAULT
  first = deep.template DeQue<float>();
  second = deep.template DeQue<float>();
  LocalTensor<float> result = outs.AllocTensor<float>();
  Add(result, first, second, n);
  deep.FreeTensor(first);
  deep.FreeTensor(second);
  COPY_OUT(result);
}

KERNEL(queued_elsewhere) {
  QUEUES()
  COPY_IN(in);
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);
  if constexpr (kWrong) {
    outs.EnQue(in);  // FAULT
  } else {
    outs.EnQue(result);
  }
  ins.FreeTensor(in);
  result = outs.DeQue<float>();
  SAVE(out, result, n);
  outs.FreeTensor(result);
}

KERNEL(freed_while_it_is_queued) {
  QUEUES()
  LocalTensor<float> in = ins.AllocTensor<float>();
  LOAD(in, x, n);
  ins.EnQue(in);
  if constexpr (kWrong) ins.FreeTensor(in);  // FAULT
  in = ins.DeQue<float>();
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);
  ins.FreeTensor(in);
  COPY_OUT(result);
}

KERNEL(copied_into_a_queue_of_results) {
  TENSORS()
  TQue<kWrong ? TPosition::VECOUT : TPosition::VECIN, 1> ins;
  TQue<TPosition::VECOUT, 1> outs;
  pipe.InitBuffer(ins, 1, kBytes);
  pipe.InitBuffer(outs, 1, kBytes);
  LocalTensor<float> in = ins.template AllocTensor<float>();
  LOAD(in, x, n);
  ins.EnQue(in);
  in = ins.template DeQue<float>();
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);  // FAULT
  ins.FreeTensor(in);
  COPY_OUT(result);
}

KERNEL(copied_out_of_a_queue_of_arguments) {
  TENSORS()
  TQue<TPosition::VECIN, 1> ins;
  TQue<kWrong ? TPosition::VECIN : TPosition::VECOUT, 1> outs;
  pipe.InitBuffer(ins, 1, kBytes);
  pipe.InitBuffer(outs, 1, kBytes);
  COPY_IN(in);
  LocalTensor<float> result = outs.template AllocTensor<float>();
  Muls(result, in, 2.0f, n);
  outs.EnQue(result);
  ins.FreeTensor(in);
  result = outs.template DeQue<float>();
  SAVE(out, result, n);  // FAULT
  outs.FreeTensor(result);
}

// --- memory --------------------------------------------------------------------------------------

KERNEL(more_than_the_unified_buffer) {
  QUEUES()
  TBuf<TPosition::VECCALC> large;
  pipe.InitBuffer(large, kWrong ? 192 * 1024 : 128 * 1024);  // FAULT
  BY_QUEUES(Muls(result, in, 2.0f, n))
}

KERNEL(more_than_the_buffers_there_are) {
  QUEUES()
  TQue<TPosition::VECCALC, 1> many;
  pipe.InitBuffer(many, kWrong ? 61 : 60, 32);  // FAULT
  BY_QUEUES(Muls(result, in, 2.0f, n))
}

KERNEL(past_the_end_of_its_tensor) {
  QUEUES()
  BY_QUEUES(Duplicate(result, 0.0f, kMost);  // FAULT
            Muls(result, in, 2.0f, kWrong ? kMost + 8 : n))
}

KERNEL(part_past_the_end) {
  QUEUES()
  TBuf<> own;
  pipe.InitBuffer(own, kBytes);
  const auto part = own.GetWithOffset<float>(64, kWrong ? 512 : 256);
  BY_QUEUES(Muls(part, in, 2.0f, 64); Muls(result, in, 2.0f, n))  // FAULT
}

KERNEL(before_the_start) {
  QUEUES()
  TBuf<> own;
  pipe.InitBuffer(own, kBytes);
  const auto part = own.Get<float>();
  BY_QUEUES(part.SetValue(kWrong ? -8 : 0, 0.0f); Muls(result, in, 2.0f, n))  // FAULT
}

KERNEL(argument_past_the_end) {
  QUEUES()
  LocalTensor<float> in = ins.AllocTensor<float>();
  if constexpr (kWrong) {
    DataCopy(in, x, (n + 7) / 8 * 8);  // FAULT
  } else {
    LOAD(in, x, n);
  }
  ins.EnQue(in);
  in = ins.DeQue<float>();
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);
  ins.FreeTensor(in);
  COPY_OUT(result);
}

KERNEL(result_past_the_end) {
  QUEUES()
  COPY_IN(in);
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, kMost);
  outs.EnQue(result);
  ins.FreeTensor(in);
  result = outs.DeQue<float>();
  SAVE(out, result, kWrong ? n + 1 : n);  // FAULT
  outs.FreeTensor(result);
}

KERNEL(before_the_start_of_an_argument) {
  QUEUES()
  const float before = kWrong ? x.GetValue(uint64_t(-1)) : x.GetValue(0);  // FAULT
  BY_QUEUES(Muls(result, in, 2.0f, n); if (before == 1e30f) Adds(result, result, 1.0f, n))
}

KERNEL(argument_written) {
  QUEUES()
  BY_QUEUES(Muls(result, in, 2.0f, n))
  if constexpr (kWrong) x.SetValue(0, 1.0f);  // FAULT
}

KERNEL(nothing_written_before) {
  QUEUES()
  TBuf<> own;
  pipe.InitBuffer(own, kBytes);
  const auto sums = own.Get<float>();
  if constexpr (!kWrong) Duplicate(sums, 0.0f, kMost);
  BY_QUEUES(Add(sums, sums, in, n); Add(result, sums, in, n))  // FAULT
}

template <bool kWrong>
void launch(const std::string& name, aclrtStream stream, GM_ADDR x, GM_ADDR out, int32_t n) {
  const Row table[] = {
#define ROW(name) {#name, name<kWrong>}
      ROW(tensor_not_queued),
      ROW(result_not_queued),
      ROW(freed_through_another_queue),
      ROW(freed_twice),
      ROW(used_after_it_was_freed),
      ROW(never_freed),
      ROW(taken_from_an_empty_queue),
      ROW(queued_twice),
      ROW(more_than_the_depth),
      ROW(queued_elsewhere),
      ROW(freed_while_it_is_queued),
      ROW(copied_into_a_queue_of_results),
      ROW(copied_out_of_a_queue_of_arguments),
      ROW(more_than_the_unified_buffer),
      ROW(more_than_the_buffers_there_are),
      ROW(past_the_end_of_its_tensor),
      ROW(part_past_the_end),
      ROW(before_the_start),
      ROW(argument_past_the_end),
      ROW(result_past_the_end),
      ROW(before_the_start_of_an_argument),
      ROW(argument_written),
      ROW(nothing_written_before),
  };
  for (const Row& row : table) {
    if (name == row.name) row.kernel<<<row.blocks, nullptr, stream>>>(x, out, n);
  }
}

}  // namespace

void queues(const opsmith::Context& ctx, const ascendc_faults::queues_args& a) {
  const auto run = a.wrong ? launch<true> : launch<false>;
  run(std::string(a.fault), opsmith::npu_stream(ctx), opsmith::gm(a.x), opsmith::gm(a.out),
      static_cast<int32_t>(a.N));
}
OPSMITH_KERNEL(ascendc_faults, queues, npu)
