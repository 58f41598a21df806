// Faults in addresses, parameters and launches, and between blocks.
#include "faults.h"

#include "parameters.h"

namespace {

KERNEL(tensor_at_no_block) {
  QUEUES()
  BY_QUEUES(Duplicate(result, 0.0f, kMost);  // FAULT
            Adds(result[kWrong ? 1 : 0], in[kWrong ? 1 : 0], 1.0f, n - 1); PipeBarrier<PIPE_V>();
            Adds(result, in, 1.0f, n))
}

KERNEL(copied_to_no_block) {
  QUEUES()
  LocalTensor<float> in = ins.AllocTensor<float>();
  LOAD(in, x, n);
  PipeBarrier<PIPE_MTE2>();
  LOAD(in[kWrong ? 4 : 8], x[8], 8);  // FAULT
  ins.EnQue(in);
  in = ins.DeQue<float>();
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);
  ins.FreeTensor(in);
  COPY_OUT(result);
}

KERNEL(copy_of_part_of_a_block) {
  QUEUES()
  LocalTensor<float> in = ins.AllocTensor<float>();
  if constexpr (kWrong) {
    DataCopy(in, x, n);  // FAULT
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

KERNEL(too_many_repeats) {
  QUEUES()
  BY_QUEUES(Muls(result, in, 2.0f, n);  // FAULT
            Muls(result, in, 2.0f, 8, kWrong ? 256 : 1, {1, 1, 0, 0}))
}

KERNEL(mask_of_more_than_a_repeat) {
  QUEUES()
  BY_QUEUES(Muls(result, in, 2.0f, n);  // FAULT
            Muls(result, in, 2.0f, kWrong ? 128 : 64, 1, {1, 1, 8, 8}))
}

KERNEL(step_of_nothing) {
  QUEUES()
  BY_QUEUES(Muls(result, in, 2.0f, n);  // FAULT
            Muls(result, in, 2.0f, 8, 1, {kWrong ? 0 : 1, 1, 8, 8}))
}

KERNEL(tail_of_a_repeat_forgotten) {
  QUEUES()
  BY_QUEUES(Duplicate(result, 0.0f, kMost);
            Muls(result, in, 2.0f, 64, kWrong ? n / 64 : (n + 63) / 64, {1, 1, 8, 8}))
}

KERNEL(stride_of_a_repeat_in_bytes){
    QUEUES()
        BY_QUEUES(Muls(result, in, 2.0f, 64, (n + 63) / 64, {1, 1, 8, kWrong ? 32 : 8}))  // FAULT
}

KERNEL(too_many_blocks_to_copy) {
  QUEUES()
  TBuf<> own;
  pipe.InitBuffer(own, 131072);
  LocalTensor<float> many = own.Get<float>();
  DataCopyPad(many, x, DataCopyExtParams{kWrong ? 4096 : 1, 4, 0, 0, 0},  // FAULT
              DataCopyPadExtParams<float>{false, 0, 0, 0});
  BY_QUEUES(Muls(result, in, 2.0f, n))
}

KERNEL(padding_of_more_than_a_block) {
  QUEUES()
  LocalTensor<float> in = ins.AllocTensor<float>();
  DataCopyPad(in, x, DataCopyExtParams{1, 4, 0, 0, 0},  // FAULT
              DataCopyPadExtParams<float>{true, 0, kWrong ? 9 : 7, 0});
  PipeBarrier<PIPE_MTE2>();
  LOAD(in, x, n);
  ins.EnQue(in);
  in = ins.DeQue<float>();
  LocalTensor<float> result = outs.AllocTensor<float>();
  Muls(result, in, 2.0f, n);
  ins.FreeTensor(in);
  COPY_OUT(result);
}

KERNEL(elements_cut_in_two) {
  QUEUES()
  BY_QUEUES(Muls(result, in, 2.0f, n))
  PipeBarrier<PIPE_ALL>();
  LocalTensor<float> in = ins.AllocTensor<float>();
  DataCopyPad(in, x, DataCopyExtParams{1, kWrong ? 6 : 8, 0, 0, 0},  // FAULT
              DataCopyPadExtParams<float>{false, 0, 0, 0});
  ins.FreeTensor(in);
}

KERNEL(offset_of_no_element) {
  QUEUES()
  TBuf<> own;
  pipe.InitBuffer(own, kBytes);
  LocalTensor<int32_t> at = own.Get<int32_t>();
  BY_QUEUES(CreateVecIndex(at, 0, kMost);  // FAULT
            Muls(at, at, kWrong ? 2 : 4, kMost);
            Gather(result, in, at.ReinterpretCast<uint32_t>(), 0, n))
}

KERNEL(offset_past_the_end) {
  QUEUES()
  TBuf<> own;
  pipe.InitBuffer(own, kBytes);
  LocalTensor<int32_t> at = own.Get<int32_t>();
  BY_QUEUES(CreateVecIndex(at, 0, kMost);  // FAULT
            Muls(at, at, kWrong ? 8 : 4, kMost);
            Gather(result, in, at.ReinterpretCast<uint32_t>(), 0, n))
}

KERNEL(compares_part_of_a_repeat) {
  QUEUES()
  TBuf<> own;
  pipe.InitBuffer(own, kBytes);
  LocalTensor<uint8_t> bits = own.Get<uint8_t>();
  BY_QUEUES(CompareScalar(bits, in, 0.5f, CMPMODE::GE, kWrong ? n : kMost);  // FAULT
            Select(result, bits, in, 0.0f, SELMODE::VSEL_TENSOR_SCALAR_MODE, n))
}

KERNEL(compares_integers_by_order) {
  QUEUES()
  TBuf<> own, others;
  pipe.InitBuffer(own, kBytes);
  pipe.InitBuffer(others, kBytes);
  LocalTensor<uint8_t> bits = own.Get<uint8_t>();
  LocalTensor<int32_t> whole = others.Get<int32_t>();
  Duplicate(whole, 1, kMost);
  BY_QUEUES(Compare(bits, whole, whole, kWrong ? CMPMODE::LE : CMPMODE::EQ, 64);  // FAULT
            Muls(result, in, 2.0f, n))
}

KERNEL(index_read_as_a_number) {
  QUEUES()
  TBuf<> own;
  pipe.InitBuffer(own, kBytes);
  LocalTensor<float> found = own.Get<float>();
  BY_QUEUES(ReduceMax(found, in, found, n, true); const float index = found(1);
            const int32_t at =
                kWrong ? static_cast<int32_t>(index) : *reinterpret_cast<const int32_t*>(&index);
            Duplicate(result, static_cast<float>(at), n))
}

// --- between blocks ------------------------------------------------------------------------------

// Each of four blocks has a part of the elements.
#define PART()                                                    \
  const int32_t each = (n + 3) / 4, first = GetBlockIdx() * each; \
  const int32_t count = n - first < each ? n - first : each;      \
  if (count <= 0) return;

KERNEL(parts_that_overlap) {
  BUFFERS()
  PART()
  const int32_t more = kWrong && first + count < n ? 1 : 0;
  LOAD(a, x[first], count + more);
  THEN(MTE2, MTE3);
  SAVE(out[first], a, count + more);  // FAULT
}

KERNEL(all_write_the_same) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, MTE3);
  if (!kWrong && GetBlockIdx() != 0) return;
  SAVE(out, a, n);  // FAULT
}

KERNEL(result_of_another_block) {
  BUFFERS()
  const int32_t each = n / 4, first = GetBlockIdx() * each, next = (first + each) % (4 * each);
  LOAD(a, x[first], each);
  THEN(MTE2, MTE3);
  SAVE(out[first], a, each);  // FAULT
  if constexpr (!kWrong) SyncAll();
  LOAD(b, out[next], each);  // FAULT
  SyncAll();
  THEN(MTE2, MTE3);
  SAVE(out[first], b, each);
}

KERNEL(not_all_synchronise) {
  BUFFERS()
  PART()
  LOAD(a, x[first], count);
  THEN(MTE2, MTE3);
  SAVE(out[first], a, count);
  if (kWrong && GetBlockIdx() == 3) return;
  SyncAll();  // FAULT
}

KERNEL(sum_that_is_not_atomic) {
  BUFFERS()
  Duplicate(b, 0.0f, kMost);
  if (GetBlockIdx() == 0) {
    THEN(V, MTE3);
    SAVE(out, b, n);
  }
  SyncAll();
  LOAD(a, x, n);
  THEN(MTE2, MTE3);
  if constexpr (!kWrong) SetAtomicAdd<float>();
  SAVE(out, a, n);  // FAULT
  SetAtomicNone();
}

KERNEL(sum_onto_what_nobody_wrote) {
  BUFFERS()
  if constexpr (!kWrong) {
    Duplicate(b, 0.0f, kMost);
    if (GetBlockIdx() == 0) {
      THEN(V, MTE3);
      SAVE(out, b, n);
    }
    SyncAll();
  }
  LOAD(a, x, n);
  THEN(MTE2, MTE3);
  SetAtomicAdd<float>();
  SAVE(out, a, n);  // FAULT
  SetAtomicNone();
}

KERNEL(numbers_in_one_cache_line) {
  TENSORS()
  const int32_t each = kWrong ? 25 : 16, first = GetBlockIdx() * each;
  const int32_t end = GetBlockIdx() == 3 ? n : first + each;
  for (int32_t i = first; i < end; ++i) out.SetValue(i, x.GetValue(i));  // FAULT
}

KERNEL(atomic_to_the_end) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, MTE3);
  SAVE(out, a, n);
  SetAtomicAdd<float>();
  if constexpr (!kWrong) SetAtomicNone();
}

template <bool kWrong>
void launch(const std::string& name, aclrtStream stream, GM_ADDR x, GM_ADDR out, int32_t n) {
  const Row table[] = {
#define ROW(name) {#name, name<kWrong>}
#define OF_FOUR(name) {#name, name<kWrong>, 4}
      ROW(tensor_at_no_block),
      ROW(copied_to_no_block),
      ROW(copy_of_part_of_a_block),
      ROW(too_many_repeats),
      ROW(mask_of_more_than_a_repeat),
      ROW(step_of_nothing),
      ROW(tail_of_a_repeat_forgotten),
      ROW(stride_of_a_repeat_in_bytes),
      ROW(too_many_blocks_to_copy),
      ROW(padding_of_more_than_a_block),
      ROW(elements_cut_in_two),
      ROW(offset_of_no_element),
      ROW(offset_past_the_end),
      ROW(compares_part_of_a_repeat),
      ROW(compares_integers_by_order),
      ROW(index_read_as_a_number),
      OF_FOUR(parts_that_overlap),
      OF_FOUR(all_write_the_same),
      OF_FOUR(result_of_another_block),
      OF_FOUR(not_all_synchronise),
      OF_FOUR(sum_that_is_not_atomic),
      OF_FOUR(sum_onto_what_nobody_wrote),
      OF_FOUR(numbers_in_one_cache_line),
      ROW(atomic_to_the_end),
  };
  for (const Row& row : table) {
    if (name == row.name)
      row.kernel<<<row.blocks, nullptr, stream>>>(x, out, n);  // FAULT atomic_to_the_end
  }
  const Kernel copies = all_write_the_same<false>;
  if (name == "grid_of_nothing") {
    copies<<<kWrong ? 0 : 1, nullptr, stream>>>(x, out, n);  // FAULT grid_of_nothing
  }
  if (name == "no_stream") {
    copies<<<1, nullptr, kWrong ? nullptr : stream>>>(x, out, n);  // FAULT no_stream
  }
}

}  // namespace

void parameters(const opsmith::Context& ctx, const ascendc_faults::parameters_args& a) {
  const auto run = a.wrong ? launch<true> : launch<false>;
  run(std::string(a.fault), opsmith::npu_stream(ctx), opsmith::gm(a.x), opsmith::gm(a.out),
      static_cast<int32_t>(a.N));
}
OPSMITH_KERNEL(ascendc_faults, parameters, npu)
