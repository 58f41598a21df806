// The calling convention of PyTorch's dispatcher: arguments arrive on a stack of 64-bit values,
// each owned by the callee, and results leave on the same stack.
#pragma once

#include <opsmith/detail/torch/adapter.h>

namespace opsmith::dispatcher {

using aten::Call;
using aten::Handle;
using aten::Result;

inline StableIValue to_stack(AtenTensorHandle tensor) {
  return reinterpret_cast<StableIValue>(tensor);
}

template <typename T>
T from_stack(StableIValue value) {
  T result;
  static_assert(sizeof(T) <= sizeof(StableIValue));
  std::memcpy(&result, &value, sizeof result);
  return result;
}

// An optional argument, removed from its box; its value is a null handle for None.
struct Optional {
  bool present;
  StableIValue value;
};

inline Optional optional(StableIValue value) {
  auto* box = reinterpret_cast<StableIValue*>(value);
  if (box == nullptr) return {false, 0};
  const Optional found{true, *box};
  delete box;
  return found;
}

// A list on the stack, freed at the end of the scope.
class StackList {
 public:
  explicit StackList(StableIValue value) : list_(reinterpret_cast<StableListHandle>(value)) {
    if (list_ != nullptr) OPSMITH_SHIM(torch_list_size(list_, &size_));
  }
  StackList(const StackList&) = delete;
  StackList& operator=(const StackList&) = delete;
  ~StackList() {
    if (list_ != nullptr) torch_delete_list(list_);
  }

  size_t size() const { return size_; }
  int64_t count() const { return list_ == nullptr ? -1 : static_cast<int64_t>(size_); }
  StableIValue item(size_t i) const {
    StableIValue value = 0;
    OPSMITH_SHIM(torch_list_get_item(list_, i, &value));
    return value;
  }

 private:
  StableListHandle list_;
  size_t size_ = 0;
};

// A number.
template <typename Raw>
class Argument {
 public:
  explicit Argument(StableIValue value) : value_(value) {}
  Raw raw() const { return from_stack<Raw>(value_); }

 private:
  StableIValue value_;
};

template <detail::OptionalNumber Raw>
class Argument<Raw> {
 public:
  explicit Argument(Optional value) : value_(value) {}
  Raw raw() const {
    if (!value_.present) return {};
    return {1, from_stack<decltype(Raw::value)>(value_.value)};
  }

 private:
  Optional value_;
};

// Several numbers; a small number of them without an allocation.
template <detail::Sequence Raw>
class Argument<Raw> {
  using Item = detail::item_of<Raw>;

 public:
  explicit Argument(Optional value) : Argument(value.value) {}
  explicit Argument(StableIValue value) {
    const StackList list(value);
    count_ = list.count();
    if (list.size() > std::size(few_)) {
      many_ = std::make_unique<Item[]>(list.size());
      items_ = many_.get();
    }
    for (size_t i = 0; i < list.size(); ++i) items_[i] = from_stack<Item>(list.item(i));
  }
  Raw raw() const { return {count_, items_}; }

 private:
  int64_t count_ = -1;
  Item few_[8];
  std::unique_ptr<Item[]> many_;
  Item* items_ = few_;
};

template <>
class Argument<raw_string> {
 public:
  explicit Argument(Optional value) : Argument(value.value) {}
  explicit Argument(StableIValue value) : handle_(reinterpret_cast<StringHandle>(value)) {}
  Argument(const Argument&) = delete;
  Argument& operator=(const Argument&) = delete;
  ~Argument() {
    if (handle_ != nullptr) torch_delete_string(handle_);
  }
  raw_string raw() const {
    if (handle_ == nullptr) return {nullptr, 0};
    const char* data = nullptr;
    size_t size = 0;
    OPSMITH_SHIM(torch_string_c_str(handle_, &data));
    OPSMITH_SHIM(torch_string_length(handle_, &size));
    return {data, static_cast<int64_t>(size)};
  }

 private:
  StringHandle handle_;
};

template <bool written>
class OwnedTensor : public aten::TensorArgument<written> {
 public:
  explicit OwnedTensor(Optional value) : OwnedTensor(value.value) {}
  explicit OwnedTensor(StableIValue value)
      : OwnedTensor(reinterpret_cast<AtenTensorHandle>(value)) {}
  AtenTensorHandle release() { return owner_.release(); }  // gives the tensor back

 private:
  explicit OwnedTensor(AtenTensorHandle tensor)
      : aten::TensorArgument<written>(tensor), owner_(tensor) {}

  Handle owner_;
};

template <>
class Argument<const DLTensor*> : public OwnedTensor<false> {
  using OwnedTensor::OwnedTensor;
};

template <>
class Argument<DLTensor*> : public OwnedTensor<true> {
  using OwnedTensor::OwnedTensor;
};

// The tensors of a list, taken from the stack.
struct OwnedTensors {
  explicit OwnedTensors(StableIValue value) {
    const StackList list(value);
    count = list.count();
    tensors = std::make_unique<AtenTensorHandle[]>(list.size());
    owners = std::make_unique<Handle[]>(list.size());
    for (size_t i = 0; i < list.size(); ++i) {
      tensors[i] = reinterpret_cast<AtenTensorHandle>(list.item(i));
      owners[i] = Handle(tensors[i]);
    }
  }

  int64_t count;
  std::unique_ptr<AtenTensorHandle[]> tensors;
  std::unique_ptr<Handle[]> owners;
};

template <bool written>
class OwnedTensorList : OwnedTensors, public aten::TensorListArgument<written> {
 public:
  explicit OwnedTensorList(Optional value) : OwnedTensorList(value.value) {}
  explicit OwnedTensorList(StableIValue value)
      : OwnedTensors(value), aten::TensorListArgument<written>(tensors.get(), count) {}
};

template <>
class Argument<raw_tensors> : public OwnedTensorList<false> {
  using OwnedTensorList::OwnedTensorList;
};

template <>
class Argument<written_tensors> : public OwnedTensorList<true> {
  using OwnedTensorList::OwnedTensorList;
};

// Registers `boxed` for ns::name under a dispatch key, and undoes the registration.
class Registration {
 public:
  bool add(const char* ns, const char* name, const char* key,
           void (*boxed)(StableIValue*, uint64_t, uint64_t)) {
    remove();
    if (aoti_torch_library_init_impl(ns, key, __FILE__, __LINE__, &library_) != 0) return false;
    return torch_library_impl(library_, name, boxed, TORCH_ABI_VERSION) == 0;
  }
  void remove() {
    if (library_ != nullptr) aoti_torch_delete_library_object(std::exchange(library_, nullptr));
  }

 private:
  TorchLibraryHandle library_ = nullptr;
};

}  // namespace opsmith::dispatcher
