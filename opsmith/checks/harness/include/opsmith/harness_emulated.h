// Watches a CUDA kernel that is emulated on the CPU.
#pragma once

#include <emulated/runtime.h>
#include <opsmith/harness_runtime.h>

#include <string>

namespace opsmith::harness {

class Watch final : public emulated::Watcher {
 public:
  explicit Watch(Runtime& runtime) : runtime_(runtime) {}

  uint64_t seed() override { return runtime_.seed(); }
  uint8_t fill() override { return runtime_.fill(); }
  uint64_t region_count() override { return runtime_.memory_count(); }
  emulated::Region region(uint64_t number) override {
    const Memory memory = runtime_.memory(number);
    return {memory.name,  memory.data,    memory.size,      memory.element,
            memory.guard, memory.written, memory.read_only, memory.vast};
  }
  void fault(const char* kind, const char* text, emulated::Place place, const char* also,
             emulated::Place also_place) override {
    const std::string words = std::string(kind) + "|" + text;
    runtime_.fault(words.c_str(), convert(place), also, convert(also_place));
  }
  void remark(const char* text, emulated::Place place) override {
    runtime_.remark(text, convert(place));
  }

 private:
  static Place convert(emulated::Place place) { return {place.file, place.line, place.address}; }

  Runtime& runtime_;
};

// Calls the kernel's entry point while its memory accesses are watched.
template <typename Body>
int32_t watched(Runtime& runtime, Body body) {
  Watch watch(runtime);
  const emulated::Call call(&watch);
  return body();
}

}  // namespace opsmith::harness
