"""Faults of whole programs are told with their lines, and unwritten memory as a fault or a note."""

import pytest
from whole_programs import KEEPS, MAIN, marked, run

pytestmark = pytest.mark.slow

#: By name: the program, what is said, and the marks of its lines.
FAULTS = {
    "race_in_shared_memory": (
        """__global__ void k(float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = threadIdx.x;  // WRITE
  float other = s[63 - threadIdx.x];  // READ
  if (other < 0) *y = other;
}"""
        + MAIN,
        "shared memory 's', which thread (",
        ("WRITE", "READ"),
    ),
    "race_between_blocks": (
        "__global__ void k(float* y) {\n  if (threadIdx.x == 0) y[0] += 1;  // HERE\n}" + MAIN,
        "with no order of these blocks between",
        ("HERE",),
    ),
    "missing_barrier": (
        """__global__ void k(float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = 1;
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {
    if (threadIdx.x < half) s[threadIdx.x] += s[threadIdx.x + half];  // HERE
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) y[0] = s[0];
}"""
        + MAIN,
        "neither __syncwarp nor __syncthreads between",
        ("HERE",),
    ),
    "divergent_barrier": (
        """__global__ void k(float* y) {
  if (threadIdx.x < 40) __syncthreads();  // HERE
  __syncthreads();
}"""
        + MAIN,
        "barrier: threads of a block wait at different places",
        ("HERE",),
    ),
    "read_out_of_bounds": (
        """__global__ void k(float* y) {
  if (blockIdx.x == 0 && y[threadIdx.x + 1] > 5) y[0] = 1;  // HERE
}"""
        + MAIN,
        "read 1 element past the end of memory of cudaMalloc at program.cu:",
        ("HERE",),
    ),
    "write_out_of_bounds": (
        "__global__ void k(float* y) {\n  y[blockIdx.x * 64 + threadIdx.x] = 1;  // HERE\n}" + MAIN,
        "past the end of memory of cudaMalloc at program.cu:",
        ("HERE",),
    ),
    "memcpy_by_a_kernel": (
        """#include <cstring>
__global__ void k(float* y) {
  float own[65] = {};
  if (blockIdx.x + threadIdx.x == 0) std::memcpy(y, own, 260 * gridDim.x / 2);  // HERE
}"""
        + MAIN,
        "thread (0, 0, 0) of block (0, 0, 0) wrote 1 element past the end of memory of cudaMalloc",
        ("HERE",),
    ),
    "unwritten": (
        KEEPS
        + """__global__ void reads(float* y) {
  y[threadIdx.x] += 1;  // HERE
}
int main(int, char**) {
  float* y;
  cudaMalloc(&y, 256);
  k<<<1, 32>>>(y);
  reads<<<1, 64>>>(y);
}""",
        "which nothing had written",
        ("HERE",),
    ),
    "used_by_the_host_after_its_end": (
        """int main(int, char**) {
  float* y;
  cudaMallocManaged(&y, 256);
  y[3] = 1;
  cudaFree(y);  // FREE
  return y[3] == 1;  // HERE
}""",
        "the host read element 3 of memory of cudaMallocManaged at program.cu:5, which was freed "
        "at program.cu:7",
        ("HERE",),
    ),
    "used_by_a_kernel_after_its_end": (
        KEEPS.replace("1; }", "1;  // HERE\n}")
        + "int main() {\n  float* y;\n  cudaMalloc(&y, 256);\n  cudaFree(y);\n  k<<<1, 1>>>(y);\n}",
        "wrote element 0 of memory of cudaMalloc at program.cu:7, which was freed at program.cu:8",
        ("HERE",),
    ),
    "freed_twice": (
        "int main() {\n  int* y;\n  cudaMalloc(&y, 4);\n  cudaFree(y);\n  cudaFree(y);  // HERE\n}",
        "cudaFree takes element 0 of memory of cudaMalloc at program.cu:5, which was freed at",
        ("HERE",),
    ),
    "read_by_the_host": (
        KEEPS
        + """int main(int, char**) {
  float* y;
  cudaMalloc(&y, 256);
  k<<<1, 64>>>(y);
  cudaDeviceSynchronize();
  std::printf("%f", y[2]);  // HERE
}""",
        "host: the host read element 2 of memory of cudaMalloc at program.cu:6, which is in the "
        "memory of the device",
        ("HERE",),
    ),
    "copied_by_the_host": (
        """#include <cstring>
int main(int argc, char**) {
  float *y, host[64];
  cudaMalloc(&y, 256);
  std::memcpy(y, host, 64 * argc);  // HERE
}""",
        "host: the host wrote element 0 of memory of cudaMalloc",
        ("HERE",),
    ),
    "not_waited_for": (
        KEEPS
        + """int main(int, char**) {
  float* y;
  cudaMallocManaged(&y, 256);
  k<<<1, 64>>>(y);  // LAUNCH
  std::printf("%f", y[2]);  // HERE
}""",
        "which the launch of k may still be writing: call cudaDeviceSynchronize first",
        ("HERE", "LAUNCH"),
    ),
    "copy_not_waited_for": (
        """int main(int, char**) {
  float *y, *pinned;
  cudaMalloc(&y, 256);
  cudaMallocHost(&pinned, 256);
  pinned[0] = 1;
  cudaMemcpyAsync(y, pinned, 256, cudaMemcpyHostToDevice);  // COPY
  pinned[0] = 2;  // HERE
}""",
        "the host wrote element 0 of memory of cudaMallocHost at program.cu:6, which "
        "cudaMemcpyAsync may still be reading",
        ("HERE", "COPY"),
    ),
    "wrong_direction": (
        """int main(int, char**) {
  float *y, host[64];
  cudaMalloc(&y, 256);
  cudaMemcpy(host, y, 256, cudaMemcpyHostToDevice);  // HERE
}""",
        "cudaMemcpy copies with cudaMemcpyHostToDevice, and its source is element 0 of memory of",
        ("HERE",),
    ),
    "copy_too_long": (
        """int main(int, char**) {
  float *y, host[65] = {};
  cudaMalloc((void**)&y, 256);
  cudaMemcpy(y, host, sizeof host, cudaMemcpyHostToDevice);  // HERE
}""",
        "bounds: cudaMemcpy wrote 4 bytes past the end of memory of cudaMalloc",
        ("HERE",),
    ),
    "kernel_without_a_launch": (
        KEEPS.replace("1; }", "1;  // HERE\n}")
        + """template <typename Kernel>
void measure(Kernel kernel, float* y) { kernel(y); }
int main() {
  float* y;
  cudaMalloc(&y, 256);
  measure(k, y);
}""",
        "host: the host calls k, which is a kernel, without <<<...>>>",
        ("HERE",),
    ),
    "memory_of_the_host": (
        KEEPS.replace("1; }", "1;  // HERE\n}") + "int main() { k<<<1, 1>>>(new float[4]); }",
        "host: thread (0, 0, 0) of block (0, 0, 0) wrote memory of the host, at 0x",
        ("HERE",),
    ),
    "null_pointer": (
        KEEPS.replace("1; }", "1;  // HERE\n}") + "int main() { k<<<1, 1>>>(nullptr); }",
        "host: thread (0, 0, 0) of block (0, 0, 0) wrote memory behind a null pointer, at ",
        ("HERE",),
    ),
    "launch_that_nobody_asks_for": (
        KEEPS
        + """int main(int, char**) {
  float *y, host[64];
  cudaMalloc(&y, 8192);
  k<<<1, 2048>>>(y);  // HERE
  k<<<1, 32>>>(y);
  cudaMemcpy(host, y, 256, cudaMemcpyDeviceToHost);
}""",
        "is refused: a block has at most 1024 threads, and this one has 2048, and the program does "
        "not ask for the error",
        ("HERE",),
    ),
    "launch_that_leads_to_another": (
        KEEPS
        + """__global__ void reads(float* y) { y[threadIdx.x] += 1; }  // THEN
int main(int, char**) {
  float* y;
  cudaMalloc(&y, 8192);
  k<<<1, 2048>>>(y);  // HERE
  reads<<<1, 32>>>(y);
}""",
        "launch: the launch of k with grid (1, 1, 1) and block (2048, 1, 1) is refused",
        ("HERE", "THEN"),
    ),
    "race_beside_a_shuffle": (
        """__global__ void k(float* y) {
  __shared__ int s[64];
  s[threadIdx.x] = threadIdx.x;  // WRITE
  int last = __shfl_up_sync(~0u, 1, 1) + __any_sync(~0u, 1) + __ballot_sync(~0u, 1);
  int other = s[threadIdx.x ^ 1];  // READ
  if (other + last < 0) *y = other;
}"""
        + MAIN,
        "neither __syncwarp nor __syncthreads between",
        ("WRITE", "READ"),
    ),
    "wait_in_a_vote": (
        """__global__ void k(float* y) {
  volatile int* ready = (volatile int*)y;
  if (threadIdx.x >= 32) return;
  while (__any_sync(~0u, ready[0] == 0)) {  // HERE
  }
}"""
        + MAIN,
        "waits for another value of element 0 of memory",
        ("HERE",),
    ),
    "shift_by_a_whole_word": (
        """__global__ void k(float* y) {
  const int lane = threadIdx.x % 32;
  y[threadIdx.x] = (1u << (lane + 1)) - 1;  // HERE
}"""
        + MAIN,
        "an integer is shifted by as many bits as it has, or more, or fewer than 0",
        ("HERE",),
    ),
    "copy_past_a_symbol": (
        """__constant__ float weights[8];
__global__ void k(float* y) { y[threadIdx.x] = weights[threadIdx.x % 8]; }
int main(int, char**) {
  float host[64] = {};
  cudaMemcpyToSymbol(weights, host, 4 * sizeof(float), 4 * sizeof(float));
  cudaMemcpyToSymbol(weights, host, 5 * sizeof(float), 4 * sizeof(float));  // HERE
  k<<<1, 64>>>(nullptr);
}""",
        "the copy goes past the end of its symbol, which a GPU refuses",
        ("HERE",),
    ),
    "failed_assertion": (
        "#include <cassert>\n__global__ void k(float*) {\n  assert(threadIdx.x < 5);  // HERE\n}"
        + MAIN,
        "of block (",
        ("HERE",),
    ),
    "crash_of_the_host": (
        KEEPS + "int main() {\n  volatile int* volatile none = nullptr;\n  *none = 1;  // HERE\n}",
        "crash: the host crashed with Segmentation fault: it wrote at (nil)",
        ("HERE",),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_with_its_lines(tmp_path, name):
    text, said, marks = FAULTS[name]
    code, report = run(tmp_path, text)
    assert code == 1, report
    assert said in report
    for mark in marks:
        assert marked(tmp_path / "program.cu", mark) in report


def test_the_line_itself_is_shown_and_what_was_printed_before_stays(tmp_path, capfd):
    text = (
        'int main() {\n  std::printf("before");\n  int* y;\n  cudaMalloc(&y, 4);\n  return *y;\n}'
    )
    code, report = run(tmp_path, text)
    assert (code, capfd.readouterr().out) == (1, "before")
    assert report.endswith("program.cu:7\n    return *y;")


UNWRITTEN = """
__global__ void k(float* y) {
  __shared__ float s[4];
  y[1] = y[0];
  y[2] = s[3];
}
int main(int, char**) {
  float* y;
  cudaMalloc(&y, 12);
  k<<<1, 1>>>(y);
}"""


def test_unwritten_memory_may_be_allowed_and_is_noted(tmp_path):
    code, report = run(tmp_path, UNWRITTEN, allow_unwritten=True)
    assert code == 0
    assert report.startswith("note: thread (0, 0, 0) of block (0, 0, 0) read element 0 of memory")


def test_unwritten_shared_memory_is_noted(tmp_path):
    code, report = run(tmp_path, UNWRITTEN.replace("  y[1] = y[0];\n", ""))
    assert code == 0
    assert "read element 3 of shared memory 's', which nothing had written" in report
