// Continues a text by an artifact of `main.py`, without Python: generate FOLDER COUNT PROMPT
#include "opsmith_artifact.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <chrono>
#include <iostream>
#include <string>

namespace {

// The shape of an input that the artifact's manifest says in numbers.
std::vector<int64_t> shape_of(const opsmith::TensorSpec& input) {
  std::vector<int64_t> sizes;
  for (const std::string& size : input.shape) sizes.push_back(std::stoll(size));
  return sizes;
}

at::Tensor one(int64_t number) {
  at::Tensor tensor = at::empty({1}, at::kLong);
  *tensor.mutable_data_ptr<int64_t>() = number;
  return tensor;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4 || !*argv[3]) {
    std::cerr << "usage: generate FOLDER COUNT PROMPT\n";
    return 2;
  }
  const size_t count = std::stoul(argv[2]);
  const std::string prompt = argv[3];
  opsmith::Artifact model(argv[1]);
  const c10::InferenceMode mode;

  // Keys and values of all layers: inputs and results of each step.
  at::Tensor keys = at::zeros(shape_of(model.inputs()[2]));
  at::Tensor values = at::zeros(shape_of(model.inputs()[3]));
  std::string added;
  const auto begun = std::chrono::steady_clock::now();
  for (size_t place = 0; place + 1 < prompt.size() + count; ++place) {
    const char last = place < prompt.size() ? prompt[place] : added.back();
    const auto results = model.run({one(last), one(static_cast<int64_t>(place)), keys, values});
    keys = results[1];
    values = results[2];
    if (place + 1 >= prompt.size())
      added += static_cast<char>(*results[0].const_data_ptr<int64_t>());
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  std::cout << added;
  std::cerr << static_cast<double>(prompt.size() + count - 1) / seconds.count();
} catch (const std::exception& error) {
  std::cerr << "generate: " << error.what() << '\n';
  return 1;
}
