// Faults of order within a core: flags, barriers, and what the compiler orders by itself.
#include "faults.h"

#include "orders.h"

namespace {

// --- flags ---------------------------------------------------------------------------------------

KERNEL(copied_in_not_waited_for) {
  BUFFERS()
  LOAD(a, x, n);
  if constexpr (!kWrong) {
    THEN(MTE2, V);
  }
  Muls(b, a, 2.0f, n);  // FAULT
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(computed_not_waited_for) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  Muls(b, a, 2.0f, n);
  if constexpr (!kWrong) {
    THEN(V, MTE3);
  }
  SAVE(out, b, n);  // FAULT
}

KERNEL(copied_out_and_copied_over) {
  BUFFERS()
  for (int32_t at = 0; at < n; at += 32) {
    const int32_t count = n - at < 32 ? n - at : 32;
    LOAD(a, x[at], count);  // FAULT
    THEN(MTE2, MTE3);
    SAVE(out[at], a, count);
    if constexpr (!kWrong) {
      THEN(MTE3, MTE2);
    }
  }
}

KERNEL(computed_with_and_copied_over) {
  BUFFERS()
  Duplicate(b, 0.0f, kMost);
  for (int32_t round = 0; round < 3; ++round) {
    LOAD(a, x, n);  // FAULT
    THEN(MTE2, V);
    PipeBarrier<PIPE_V>();
    Add(b, b, a, n);
    if constexpr (!kWrong) {
      THEN(V, MTE2);
    }
  }
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(copied_out_and_computed_over) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  for (int32_t at = 0; at < n; at += 32) {
    const int32_t count = n - at < 32 ? n - at : 32;
    Adds(b, a[at], 1.0f, count);  // FAULT
    THEN(V, MTE3);
    SAVE(out[at], b, count);
    if constexpr (!kWrong) {
      THEN(MTE3, V);
    }
  }
}

KERNEL(flag_of_the_other_direction) {
  BUFFERS()
  LOAD(a, x, n);
  if constexpr (kWrong) {
    THEN(V, MTE2);
  } else {
    THEN(MTE2, V);
  }
  Muls(b, a, 2.0f, n);  // FAULT
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(flag_before_the_copy) {
  BUFFERS()
  if constexpr (kWrong) SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
  LOAD(a, x, n);
  if constexpr (!kWrong) SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
  WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
  Muls(b, a, 2.0f, n);  // FAULT
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(waits_for_one_of_two_copies) {
  BUFFERS()
  LOAD(a, x, n);
  SetFlag<HardEvent::MTE2_V>(EVENT_ID0);
  LOAD(b, x, n);
  if constexpr (!kWrong) SetFlag<HardEvent::MTE2_V>(EVENT_ID1);
  WaitFlag<HardEvent::MTE2_V>(EVENT_ID0);
  if constexpr (!kWrong) WaitFlag<HardEvent::MTE2_V>(EVENT_ID1);
  Add(c, a, b, n);  // FAULT
  THEN(V, MTE3);
  SAVE(out, c, n);
}

KERNEL(flag_that_nobody_waits_for) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, MTE3);
  SAVE(out, a, n);
  SetFlag<HardEvent::MTE3_MTE2>(EVENT_ID3);  // FAULT
  if constexpr (!kWrong) WaitFlag<HardEvent::MTE3_MTE2>(EVENT_ID3);
}

KERNEL(flag_that_nobody_sets) {
  BUFFERS()
  LOAD(a, x, n);
  if constexpr (!kWrong) SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
  WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);  // FAULT
  SAVE(out, a, n);
}

KERNEL(flag_of_another_event) {
  BUFFERS()
  LOAD(a, x, n);
  SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
  WaitFlag<HardEvent::MTE2_MTE3>(kWrong ? EVENT_ID1 : EVENT_ID0);  // FAULT
  SAVE(out, a, n);
}

KERNEL(flag_set_twice) {
  BUFFERS()
  LOAD(a, x, n);
  SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
  if constexpr (kWrong) SetFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);  // FAULT
  WaitFlag<HardEvent::MTE2_MTE3>(EVENT_ID0);
  SAVE(out, a, n);
}

KERNEL(event_that_does_not_exist) {
  BUFFERS()
  LOAD(a, x, n);
  SetFlag<HardEvent::MTE2_MTE3>(kWrong ? 8 : 7);  // FAULT
  WaitFlag<HardEvent::MTE2_MTE3>(kWrong ? 8 : 7);
  SAVE(out, a, n);
}

// --- barriers ------------------------------------------------------------------------------------

KERNEL(copies_out_that_overlap) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  Muls(b, a, 2.0f, n);
  THEN(V, MTE3);
  SAVE(out, a, n);
  if constexpr (!kWrong) PipeBarrier<PIPE_MTE3>();
  SAVE(out, b, n);  // FAULT
}

KERNEL(copies_in_that_overlap) {
  BUFFERS()
  LOAD(a, x, n);
  if constexpr (!kWrong) PipeBarrier<PIPE_MTE2>();
  LOAD(a, x, 8);  // FAULT
  THEN(MTE2, MTE3);
  SAVE(out, a, n);
}

KERNEL(barrier_of_another_queue) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  Muls(b, a, 2.0f, n);
  THEN(V, MTE3);
  SAVE(out, a, n);
  PipeBarrier<kWrong ? PIPE_V : PIPE_MTE3>();
  SAVE(out, b, n);  // FAULT
}

KERNEL(global_memory_read_back) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, MTE3);
  SAVE(out, a, n);
  if constexpr (!kWrong) {
    THEN(MTE3, MTE2);
  }
  LOAD(b, out, n);  // FAULT
  THEN(MTE2, V);
  Adds(b, b, 1.0f, n);
  PipeBarrier<PIPE_ALL>();
  SAVE(out, b, n);
}

KERNEL(copied_within_and_copied_out) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  DataCopy(b, a, kMost);
  if constexpr (!kWrong) {
    THEN(V, MTE3);
  }
  SAVE(out, b, n);  // FAULT
}

#ifdef WITHOUT_ORDER
// --- with --cce-auto-sync=off --------------------------------------------------------------------

KERNEL(vector_after_vector) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  Muls(b, a, 2.0f, n);
  if constexpr (!kWrong) PipeBarrier<PIPE_V>();
  Adds(c, b, 1.0f, n);  // FAULT
  THEN(V, MTE3);
  SAVE(out, c, n);
}

KERNEL(vector_over_its_source) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  Muls(b, a, 2.0f, n);
  if constexpr (!kWrong) PipeBarrier<PIPE_V>();
  Duplicate(a, 0.0f, n);  // FAULT
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(vector_after_scalar) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, S);
  a.SetValue(0, 5.0f);
  if constexpr (!kWrong) {
    THEN(S, V);
  }
  THEN(MTE2, V);
  Muls(b, a, 2.0f, n);  // FAULT
  THEN(V, MTE3);
  SAVE(out, b, n);
}

KERNEL(scalar_after_vector) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, V);
  Muls(b, a, 2.0f, n);
  if constexpr (!kWrong) {
    THEN(V, S);
  }
  const float first = b.GetValue(0);  // FAULT
  PipeBarrier<PIPE_V>();
  Duplicate(c, first, n);
  THEN(V, MTE3);
  SAVE(out, c, n);
}

KERNEL(scalar_after_copy) {
  BUFFERS()
  LOAD(a, x, n);
  if constexpr (!kWrong) {
    THEN(MTE2, S);
  }
  const float first = a(0);  // FAULT
  Duplicate(c, first, n);
  THEN(V, MTE3);
  SAVE(out, c, n);
}

KERNEL(copy_after_scalar) {
  BUFFERS()
  LOAD(a, x, n);
  THEN(MTE2, S);
  a(0) = 5.0f;
  if constexpr (!kWrong) {
    THEN(S, MTE3);
  }
  THEN(MTE2, MTE3);
  SAVE(out, a, n);  // FAULT
}
#endif

template <bool kWrong>
void launch(const std::string& name, aclrtStream stream, GM_ADDR x, GM_ADDR out, int32_t n) {
  const Row table[] = {
#define ROW(name) {#name, name<kWrong>}
#ifdef WITHOUT_ORDER
      ROW(vector_after_vector),
      ROW(vector_over_its_source),
      ROW(vector_after_scalar),
      ROW(scalar_after_vector),
      ROW(scalar_after_copy),
      ROW(copy_after_scalar),
#endif
      ROW(copied_in_not_waited_for),
      ROW(computed_not_waited_for),
      ROW(copied_out_and_copied_over),
      ROW(computed_with_and_copied_over),
      ROW(copied_out_and_computed_over),
      ROW(flag_of_the_other_direction),
      ROW(flag_before_the_copy),
      ROW(waits_for_one_of_two_copies),
      ROW(flag_that_nobody_waits_for),
      ROW(flag_that_nobody_sets),
      ROW(flag_of_another_event),
      ROW(flag_set_twice),
      ROW(event_that_does_not_exist),
      ROW(copies_out_that_overlap),
      ROW(copies_in_that_overlap),
      ROW(barrier_of_another_queue),
      ROW(global_memory_read_back),
      ROW(copied_within_and_copied_out),
  };
  for (const Row& row : table) {
    if (name == row.name) row.kernel<<<row.blocks, nullptr, stream>>>(x, out, n);
  }
}

}  // namespace

void orders(const opsmith::Context& ctx, const ascendc_faults::orders_args& a) {
  const auto run = a.wrong ? launch<true> : launch<false>;
  run(std::string(a.fault), opsmith::npu_stream(ctx), opsmith::gm(a.x), opsmith::gm(a.out),
      static_cast<int32_t>(a.N));
}
OPSMITH_KERNEL(ascendc_faults, orders, npu)
