// What orders instructions: queues of tensors, flags, barriers; and the memory of TPipe.
//
// After 资源管理 (TPipe, TQue, TQueBind, TBuf) and 同步控制/核内同步.
#pragma once

#include <ascendc/tensors.h>

#include <deque>
#include <vector>

using event_t = int32_t;
enum pipe_t { PIPE_S, PIPE_V, PIPE_MTE2, PIPE_MTE3, PIPE_ALL };
inline constexpr event_t EVENT_ID0 = 0, EVENT_ID1 = 1, EVENT_ID2 = 2, EVENT_ID3 = 3, EVENT_ID4 = 4,
                         EVENT_ID5 = 5, EVENT_ID6 = 6, EVENT_ID7 = 7;

namespace AscendC {

using TEventID = int8_t;

// A queue that sets a flag, times 4, and the queue that waits for it.
enum class HardEvent : uint8_t {
  S_V = 1,
  S_MTE2,
  S_MTE3,
  V_S,
  V_V,
  V_MTE2,
  V_MTE3,
  MTE2_S,
  MTE2_V,
  MTE2_MTE2,
  MTE2_MTE3,
  MTE3_S,
  MTE3_V,
  MTE3_MTE2,
  MTE3_MTE3
};

}  // namespace AscendC

namespace emulated::npu {

inline pipe_t source_of(AscendC::HardEvent event) {
  return static_cast<pipe_t>(static_cast<uint8_t>(event) / queues);
}
inline pipe_t target_of(AscendC::HardEvent event) {
  return static_cast<pipe_t>(static_cast<uint8_t>(event) % queues);
}

}  // namespace emulated::npu

// By the names of the C interface.
inline void set_flag(pipe_t from, pipe_t to, int32_t id, emulated::Place place = emulated::here()) {
  const auto source = static_cast<emulated::npu::Queue>(from);
  emulated::npu::issue(source, "SetFlag", place);
  emulated::npu::set_flag(source, static_cast<emulated::npu::Queue>(to), id);
}
inline void wait_flag(pipe_t from, pipe_t to, int32_t id,
                      emulated::Place place = emulated::here()) {
  const auto target = static_cast<emulated::npu::Queue>(to);
  emulated::npu::issue(target, "WaitFlag", place);
  emulated::npu::wait_flag(static_cast<emulated::npu::Queue>(from), target, id);
}
inline void pipe_barrier(pipe_t pipe) {
  if (pipe == PIPE_ALL) return emulated::npu::barrier_of_all();
  emulated::npu::barrier(static_cast<emulated::npu::Queue>(pipe));
}

namespace AscendC {

template <HardEvent event>
void SetFlag(int32_t id, Place place = here()) {
  ::set_flag(npu::source_of(event), npu::target_of(event), id, place);
}
template <HardEvent event>
void WaitFlag(int32_t id, Place place = here()) {
  ::wait_flag(npu::source_of(event), npu::target_of(event), id, place);
}
template <pipe_t pipe>
void PipeBarrier() {
  static_assert(pipe != PIPE_S, "PipeBarrier<PIPE_S> does not exist: the scalar unit is in order");
  pipe_barrier(pipe);
}

inline int64_t GetBlockIdx() { return npu::block_index(); }
inline int64_t GetBlockNum() { return npu::block_count(); }

template <TPosition source, TPosition target, int32_t depth, auto mask = 0>
class TQueBind {
 public:
  static constexpr TPosition position =
      source == TPosition::GM || target == TPosition::VECCALC ? target : source;

  template <typename T>
  LocalTensor<T> AllocTensor(Place place = here()) {
    npu::issue(npu::Queue::S, "AllocTensor", place);
    // In turn, so that one is copied into while the last one is computed with (DoubleBuffer).
    for (size_t i = 0; i < buffers_.size(); ++i) {
      npu::Buffer* buffer = buffers_[next_++ % buffers_.size()];
      if (buffer->state != State::free) continue;
      buffer->state = State::allocated;
      npu::wait_for(producer, buffer->freed);
      return {buffer, buffer->data, buffer->size};
    }
    npu::refuse(npu::queue, "waits for ever: none of the queue's " +
                                std::to_string(buffers_.size()) +
                                " buffers is free, and FreeTensor was called for none since");
  }
  template <typename T>
  void AllocTensor(LocalTensor<T>& tensor, Place place = here()) {
    tensor = AllocTensor<T>(place);
  }
  template <typename T>
  bool EnQue(const LocalTensor<T>& tensor, Place place = here()) {
    return put(tensor, producer, place);
  }
  template <typename T>
  LocalTensor<T> DeQue(Place place = here()) {
    return take<T>(consumer, place);
  }
  template <typename T>
  void DeQue(LocalTensor<T>& tensor, Place place = here()) {
    tensor = DeQue<T>(place);
  }
  // On the way from the copy in to the vector unit, or from there to the copy out.
  template <TPosition from, TPosition to, typename T>
  bool EnQue(const LocalTensor<T>& tensor, Place place = here()) {
    return put(tensor, from == TPosition::GM ? npu::Queue::MTE2 : npu::Queue::V, place);
  }
  template <TPosition from, TPosition to, typename T>
  LocalTensor<T> DeQue(Place place = here()) {
    return take<T>(to == TPosition::GM ? npu::Queue::MTE3 : npu::Queue::V, place);
  }
  template <typename T>
  void FreeTensor(const LocalTensor<T>& tensor, Place place = here()) {
    npu::issue(npu::Queue::S, "FreeTensor", place);
    npu::Buffer& buffer = own(tensor, "freed");
    npu::require(buffer.state != State::queued, npu::queue,
                 "frees a tensor that is queued, before its DeQue");
    buffer.state = State::free;
    buffer.freed = npu::complete(consumer);
  }
  bool HasTensorInQue() const { return !queued_.empty(); }
  int32_t GetTensorCountInQue() const { return static_cast<int32_t>(queued_.size()); }
  bool VacantInQue() const { return queued_.size() < std::max<size_t>(depth, 1); }
  bool HasIdleBuffer() const {
    return std::any_of(buffers_.begin(), buffers_.end(),
                       [](const npu::Buffer* one) { return one->state == State::free; });
  }

  void init(int32_t count, uint32_t bytes, Place place) {
    static_assert(source != target, "opsmith emulates no TQueBind of one position");
    constexpr const char* names[] = {"VECIN", "VECOUT", "VECCALC"};
    constexpr auto name = names[static_cast<int>(position) - static_cast<int>(TPosition::VECIN)];
    buffers_.clear();
    next_ = 0;
    queued_.clear();
    for (int32_t i = 0; i < count; ++i) {
      buffers_.push_back(&npu::new_buffer(this, name, bytes, place));
    }
  }

 private:
  using State = npu::Buffer::State;
  static_assert(position >= TPosition::VECIN, "opsmith emulates no cube cores");
  static constexpr bool copied_in =
      source == TPosition::GM || (source == TPosition::VECIN && target == TPosition::VECOUT);
  static constexpr bool copied_out = target == TPosition::GM || target == TPosition::VECOUT;
  static constexpr npu::Queue producer = copied_in ? npu::Queue::MTE2 : npu::Queue::V;
  static constexpr npu::Queue consumer = copied_out ? npu::Queue::MTE3 : npu::Queue::V;

  template <typename T>
  bool put(const LocalTensor<T>& tensor, npu::Queue by, Place place) {
    npu::issue(npu::Queue::S, "EnQue", place);
    npu::Buffer& buffer = own(tensor, "queued");
    npu::require(buffer.state != State::queued, npu::queue, "queues a tensor that is queued");
    npu::require(queued_.size() < std::max<size_t>(depth, 1), npu::queue,
                 "puts " + std::to_string(queued_.size() + 1) +
                     " tensors into a queue whose depth is " + std::to_string(depth));
    buffer.state = State::queued;
    buffer.queued = npu::complete(by);
    queued_.push_back(&buffer);
    return true;
  }
  template <typename T>
  LocalTensor<T> take(npu::Queue by, Place place) {
    npu::issue(npu::Queue::S, "DeQue", place);
    npu::require(!queued_.empty(), npu::queue, "takes a tensor from an empty queue");
    npu::Buffer* buffer = queued_.front();
    queued_.pop_front();
    buffer->state = State::taken;
    npu::wait_for(by, buffer->queued);
    return {buffer, buffer->data, buffer->size};
  }
  template <typename T>
  npu::Buffer& own(const LocalTensor<T>& tensor, const char* done) const {
    npu::Buffer* buffer = tensor.buffer();
    npu::require(buffer != nullptr && buffer->owner == this, npu::queue,
                 std::string("has a tensor that this queue did not allocate, which is not to be ") +
                     done + " here");
    npu::require(buffer->state != State::free, npu::queue,
                 std::string("has a tensor that was freed, which is not to be ") + done);
    return *buffer;
  }

  std::vector<npu::Buffer*> buffers_;
  size_t next_ = 0;
  std::deque<npu::Buffer*> queued_;
};

// A queue of VECCALC is between two instructions of the vector unit.
template <TPosition position>
inline constexpr TPosition source_of =
    position == TPosition::VECIN ? TPosition::GM
                                 : (position == TPosition::VECCALC ? TPosition::VECIN : position);
template <TPosition position>
inline constexpr TPosition target_of = position == TPosition::VECOUT ? TPosition::GM : position;

template <TPosition position, int32_t depth, auto mask = 0>
class TQue : public TQueBind<source_of<position>, target_of<position>, depth, mask> {};

template <TPosition position = TPosition::VECCALC>
class TBuf {
 public:
  template <typename T>
  LocalTensor<T> Get() const {
    return {buffer_, buffer_->data, buffer_->size};
  }
  template <typename T>
  LocalTensor<T> Get(uint32_t count) const {
    return GetWithOffset<T>(count, 0);
  }
  template <typename T>
  LocalTensor<T> GetWithOffset(uint32_t count, uint32_t bytes) const {
    return {buffer_, buffer_->data + bytes, count * sizeof(T)};
  }

  void init(uint32_t bytes, Place place) {
    buffer_ = &npu::new_buffer(this, "TBuf", bytes, place);
    buffer_->state = npu::Buffer::State::lent;
  }

 private:
  npu::Buffer* buffer_ = nullptr;
};

class TPipe {
 public:
  TPipe() { npu::registers().pipe = this; }

  template <TPosition source, TPosition target, int32_t depth, auto mask>
  bool InitBuffer(TQueBind<source, target, depth, mask>& queue, int32_t count, uint32_t bytes,
                  Place place = here()) {
    queue.init(count, bytes, place);
    return true;
  }
  template <TPosition position>
  bool InitBuffer(TBuf<position>& buffer, uint32_t bytes, Place place = here()) {
    buffer.init(bytes, place);
    return true;
  }
  void Reset() { npu::forget_buffers(); }
  void Destroy() { npu::forget_buffers(); }
  template <HardEvent event>
  TEventID AllocEventID(Place place = here()) {
    npu::issue(npu::Queue::S, "AllocEventID", place);
    const TEventID id = FetchEventID(event);
    npu::require(!is_taken(event, id), npu::queue, "finds none of the 8 events free");
    taken_[static_cast<uint8_t>(event)] |= 1 << id;
    return id;
  }
  template <HardEvent event>
  void ReleaseEventID(TEventID id) {
    taken_[static_cast<uint8_t>(event)] &= ~(1 << id);
  }
  // An event that is not allocated: the same until one is.
  TEventID FetchEventID(HardEvent event) {
    TEventID id = 0;
    while (id < 7 && is_taken(event, id)) ++id;
    return id;
  }
  template <HardEvent event>
  TEventID FetchEventID() {
    return FetchEventID(event);
  }

 private:
  bool is_taken(HardEvent event, TEventID id) const {
    return (taken_[static_cast<uint8_t>(event)] >> id & 1) != 0;
  }

  std::array<uint8_t, 16> taken_{};  // by event, a bit for each id
};

inline TPipe* GetTPipePtr() { return static_cast<TPipe*>(npu::registers().pipe); }

}  // namespace AscendC
