"""Write whole programs, run them, and find their marked lines in what is said."""

from emulators.cuda.program import Options, run_program

KEEPS = "__global__ void k(float* y) { y[threadIdx.x] = 1; }\n"
ADDS = """
__global__ void add(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i];
}
"""
#: Launches a kernel `k` on zeros.
MAIN = """
int main(int, char**) {
  float* y;
  cudaMalloc(&y, 256);
  cudaMemset(y, 0, 256);
  k<<<2, 64>>>(y);  // LAUNCH
  cudaDeviceSynchronize();
}
"""


def program(folder, text):
    path = folder / "program.cu"
    path.write_text(f"#include <cstdio>\n#include <cuda_runtime.h>\n{text}")
    return path


def run(folder, text, *arguments, **options):
    """Return the exit code and the report."""
    path = program(folder, text)
    return run_program(path, arguments, Options(**{"seconds": 60, **options}))


def marked(path, mark):
    """Return the place of the line that ends in a comment."""
    lines = path.read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if line.endswith(f"// {mark}")]
    return f"  at {path}:{number}\n"
