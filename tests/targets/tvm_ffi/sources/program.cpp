// A program that calls an exported module without Python: prints a result, and an error.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/module.h>

#include <iostream>

namespace ffi = tvm::ffi;

int main(int, char** arguments) {
  const ffi::Module module = ffi::Module::LoadFromFile(arguments[1]);
  const ffi::Function cube = module->GetFunction("cube").value();
  float values[] = {1, 2, 3}, memory[3];
  int64_t size = 3;
  DLTensor x{values, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &size, nullptr, 0};
  DLTensor out = x;
  out.data = memory;
  cube(&x, 2.0, 1, &out);
  const auto made = cube(&x, 2.0, 1).cast<ffi::Tensor>();
  const float* found = static_cast<const float*>(made.data_ptr());
  for (int i = 0; i < 3; ++i) std::cout << memory[i] << ' ' << found[i] << '\n';
  try {
    cube(&x, "two", 1);
  } catch (const ffi::Error& error) {
    std::cout << error.kind() << ": " << error.message() << '\n';
  }
}
