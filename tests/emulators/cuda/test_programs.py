"""Whole programs run as they are: right ones pass, and what cannot be run is refused."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from whole_programs import ADDS, KEEPS, MAIN, marked, program, run

from emulators.cuda.compiling import watching_flags
from emulators.cuda.program import NotRunError, run_program

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[3]


# --- right programs ------------------------------------------------------------------------------

RIGHT = {
    "scans": """#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
__global__ void k(int* y) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  y[threadIdx.x] = cg::inclusive_scan(warp, 1, cg::plus<int>());
  y[64 + threadIdx.x] = cg::exclusive_scan(warp, 2);
}
int main(int, char**) {
  int* y;
  cudaMallocManaged(&y, 128 * 4);
  k<<<1, 64>>>(y);
  cudaDeviceSynchronize();
  std::printf("%d %d %d %d %d %d\\n", y[0], y[31], y[32], y[64], y[65], y[95]);
}
""",
    "wraps": """#include <cuda_profiler_api.h>
__global__ void square(int* x) { *x *= *x; }
int main(int, char**) {
  int* x;
  cudaMallocManaged(&x, 4);
  *x = 65537;
  cudaProfilerStart();
  square<<<1, 1>>>(x);
  cudaDeviceSynchronize();
  std::printf("%d\\n", *x);
}
""",
    "products_of_bytes": """__global__ void k(int* y) {
  y[0] = __dp4a(0x7f80ff01, 0x7f8002fe, 5);
  y[1] = static_cast<int>(__dp4a(0x7f80ff01u, 0x7f8002feu, 5u));
  y[2] = __dp4a(0x7f7f7f7f, 0x7f7f7f7f, 2147483647);
}
int main(int, char**) {
  int* y;
  cudaMallocManaged(&y, 12);
  k<<<1, 1>>>(y);
  cudaDeviceSynchronize();
  std::printf("%d %d %d\\n", y[0], y[1], y[2]);
}
""",
    "an_early_return": """__global__ void turn(int* y, int n) {
  __shared__ int s[64];
  if (threadIdx.x >= n) return;
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = s[n - 1 - threadIdx.x];
}
int main(int, char**) {
  int* y;
  cudaMallocManaged(&y, 40 * 4);
  turn<<<1, 64>>>(y, 40);
  cudaDeviceSynchronize();
  std::printf("%d %d\\n", y[0], y[39]);
}
""",
    "default_stream": ADDS
    + """
int main(int argc, char** argv) {
  float *x, *y, host[100];
  for (float& one : host) one = 2;
  cudaMalloc(&x, sizeof host);
  cudaMalloc((void**)&y, sizeof host);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  cudaMemset(y, 0, sizeof host);
  for (int i = 0; i < 3; ++i) add<<<2, 64>>>(x, y, 100);
  if (cudaGetLastError() != cudaSuccess) return 1;
  cudaMemcpy(host, y, sizeof host, cudaMemcpyDeviceToHost);
  std::printf("%g %d %s\\n", host[99], argc, argv[1]);
  cudaFree(x);
  cudaFree(y);
  return host[99] == 6 ? 0 : 1;
}
""",
    "managed": ADDS
    + """
int main(int, char**) {
  float *x, *y;
  cudaMallocManaged(&x, 400);
  cudaMallocManaged(&y, 400);
  for (int i = 0; i < 100; ++i) x[i] = y[i] = i;
  add<<<1, 128>>>(x, y, 100);
  std::printf("%g", x[3]);  // both may read
  cudaDeviceSynchronize();
  y[0] = 0;
  add<<<1, 128>>>(x, y, 100);
  cudaDeviceSynchronize();
  std::printf(" %g\\n", y[99]);
  cudaFree(x);
  cudaFree(y);
}
""",
    "streams": ADDS
    + """
int main(int, char**) {
  cudaStream_t stream;
  cudaEvent_t start, end;
  float *x, *y, *pinned, time;
  cudaStreamCreate(&stream);
  cudaEventCreate(&start);
  cudaEventCreate(&end);
  cudaMallocHost((void**)&pinned, 400);
  cudaMallocAsync(&x, 400, stream);
  cudaMallocAsync(&y, 400, stream);
  for (int i = 0; i < 100; ++i) pinned[i] = i;
  cudaMemcpyAsync(x, pinned, 400, cudaMemcpyHostToDevice, stream);
  cudaMemcpyAsync(y, x, 400, cudaMemcpyDeviceToDevice, stream);
  cudaEventRecord(start, stream);
  add<<<4, 32, 0, stream>>>(x, y, 100);
  cudaEventRecord(end, stream);
  cudaMemcpyAsync(pinned, y, 400, cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  cudaEventElapsedTime(&time, start, end);
  std::printf("%g\\n", pinned[99]);
  cudaFreeAsync(x, stream);
  cudaFreeAsync(y, stream);
  cudaFreeHost(pinned);
  cudaStreamDestroy(stream);
  return cudaDeviceReset();
}
""",
    "shared_and_constant": """
__constant__ float scale[2];
__device__ int calls;
struct Buffer {  // made before main begins
  float* data;
  Buffer() { cudaMalloc(&data, 4); }
  ~Buffer() { cudaFree(data); }
} buffer;
__global__ void total(const float* x, float* out, int n) {
  __shared__ float part[128];
  extern __shared__ float more[];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += scale[1] * x[i];
  part[threadIdx.x] = more[threadIdx.x] = sum;
  __syncthreads();
  for (int half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = part[0];
  if (threadIdx.x == 0) atomicAdd(&calls, 1);
}
__global__ void twice(float* x) { *x *= 2; }
int main(int, char**) {
  float host[300], two[] = {0, 2}, *x, sum;
  int called;
  for (float& one : host) one = 1;
  cudaMalloc(&x, sizeof host);
  cudaMemcpyToSymbol(scale, two, sizeof two);
  cudaMemcpy(x, host, sizeof host, cudaMemcpyHostToDevice);
  total<<<1, 128, 128 * sizeof(float)>>>(x, buffer.data, 300);
  twice<<<1, 1>>>(buffer.data);
  cudaMemcpy(&sum, buffer.data, sizeof sum, cudaMemcpyDeviceToHost);
  cudaMemcpyFromSymbol(&called, calls, sizeof called);
  std::printf("%g %d\\n", sum, called);
}
""",
    "an_error_that_is_looked_at": KEEPS
    + """
int main(int, char**) {
  float* y;
  if (cudaMalloc(&y, size_t{1} << 40) != cudaErrorMemoryAllocation) return 1;
  if (cudaGetLastError() != cudaErrorMemoryAllocation) return 2;
  cudaMalloc(&y, 8192);
  k<<<1, 2048>>>(y);
  cudaError_t error = cudaGetLastError();
  std::puts(cudaGetErrorString(error));
  if (error == cudaSuccess || cudaGetLastError() != cudaSuccess) return 3;
  k<<<1, 1024>>>(y);
  return cudaDeviceSynchronize();
}
""",
    "a_fence_beside_a_shuffle": """
__asm__(".globl opsmith_of_the_host");
__global__ void k(int* y) {
  __shared__ int s[32];
  s[threadIdx.x] = threadIdx.x;
  __threadfence_block();
  const int first = __shfl_sync(~0u, 3, 0);
  y[threadIdx.x] = s[threadIdx.x ^ 1] + first;
}
int main(int, char**) {
  int *y, host[32];
  cudaMalloc(&y, 128);
  k<<<1, 32>>>(y);
  cudaMemcpy(host, y, 128, cudaMemcpyDeviceToHost);
  std::printf("%d %d\\n", host[0], host[31]);
}
""",
    "numbers_handed_over_by_a_volatile_flag": """
__global__ void k(int* y) {
  __shared__ int slot;
  __shared__ volatile int full;
  if (threadIdx.x == 0) full = 0;
  __syncthreads();
  for (int i = 0; i < 20 && threadIdx.x % 32 == 0; ++i) {
    while (full != (threadIdx.x != 0)) {
    }
    __threadfence_block();
    if (threadIdx.x == 0) slot = i; else *y += slot;
    __threadfence_block();
    full = threadIdx.x == 0;
  }
}
int main(int, char**) {
  int* y;
  cudaMallocManaged(&y, 4);
  *y = 0;
  k<<<1, 64>>>(y);
  cudaDeviceSynchronize();
  std::printf("%d\\n", *y);
}
""",
}
SAID = {
    "a_fence_beside_a_shuffle": ("4 33\n", "nothing found in 1 launch"),
    "numbers_handed_over_by_a_volatile_flag": ("190\n", "nothing found in 1 launch"),
    "scans": ("1 32 1 0 2 62\n", "nothing found in 1 launch"),
    "wraps": ("131073\n", "nothing found in 1 launch"),
    "products_of_bytes": ("32514 33282 -2147419133\n", "nothing found in 1 launch"),
    "an_early_return": ("39 0\n", "nothing found in 1 launch"),
    "default_stream": ("6 2 --fast\n", "nothing found in 3 launches"),
    "managed": ("3 297\n", "nothing found in 2 launches"),
    "streams": ("198\n", "nothing found in 1 launch"),
    "shared_and_constant": ("1200 1\n", "nothing found in 2 launches"),
    "an_error_that_is_looked_at": ("invalid configuration argument\n", "nothing found in 1 launch"),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", [0, 2])
def test_a_right_program_runs_to_its_end(tmp_path, capfd, name, seed):
    code, report = run(tmp_path, RIGHT[name], "--fast", seed=seed)
    said, found = SAID[name]
    assert (code, capfd.readouterr().out) == (0, said)
    assert report.splitlines()[-1] == found


REPEATS = """
__global__ void k(int* y, int step) { *y += step; }
int main(int, char**) {
  int* y;
  cudaMallocManaged(&y, 4);
  *y = 0;
  for (int i = 0; i < 5; ++i) k<<<1, 1>>>(y, 1);
  for (int i = 0; i < 2; ++i) k<<<1, 1>>>(y, 10);
  cudaDeviceSynchronize();
  std::printf("%d", *y);
}"""


@pytest.mark.parametrize(
    ("repeats", "result", "said"),
    [(None, "25", "7 launches"), (1, "11", "2 launches, and 5 repeated ones skipped")],
)
def test_repeated_launches_are_skipped_where_this_is_asked_for(
    tmp_path, capfd, repeats, result, said
):
    code, report = run(tmp_path, REPEATS, repeats=repeats)
    assert (code, capfd.readouterr().out) == (0, result)
    assert report == f"nothing found in {said}"


# --- what is not emulated, and what does not run -------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cudaTextureObject_t t;\nint main() {}", "it uses textures, at program.cu:3"),
        ("#include <nccl.h>\nint main() {}", "it uses a library of NVIDIA's, at program.cu:3"),
        (
            "int main() {\n  return cudaDeviceProp().surfaceAlignment;\n}",
            "it uses cudaDeviceProp::surfaceAlignment, at program.cu:4, which is not emulated",
        ),
        (
            "int main() {\n  cudaMemcpy3DParms p;\n}",
            "it uses cudaMemcpy3DParms, at program.cu:4, which is not emulated, or no name of",
        ),
        ('__global__ void k() {\n  asm("bar.red.popc.u32;");\n}\nint main() {}', "inline PTX"),
    ],
)
def test_what_is_not_emulated_is_refused_by_name_and_line(tmp_path, text, said):
    with pytest.raises(NotRunError, match="not emulated") as raised:
        run(tmp_path, text)
    assert said in str(raised.value)
    assert raised.value.exit_code == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "#include <cublasLt.h>\nint main() {\n  cublasLtMatmul(1, 2);  // HERE\n}",
            "not emulated: cublasLtMatmul is called, which is not emulated",
        ),
        (
            "#include <thread>\nint main() {\n  std::thread([] {}).join();  // HERE\n}",
            "not emulated: pthread_create, which starts a second thread of the host,",
        ),
    ],
)
def test_what_is_not_emulated_is_refused_where_it_is_called(tmp_path, text, said):
    code, report = run(tmp_path, text)
    assert code == 5
    assert said in report
    assert marked(tmp_path / "program.cu", "HERE") in report


def test_a_program_without_a_launch_is_not_green(tmp_path):
    found = run(tmp_path, KEEPS + "int main() { return 0; }")
    assert found == (5, "no kernel was launched: nothing was looked at")


def test_the_exit_code_of_the_program_is_told(tmp_path):
    text = KEEPS + MAIN.replace("<<<2", "<<<1").replace("\n}\n", "\n  return 3;\n}\n")
    assert run(tmp_path, text) == (1, "the program ended with exit code 3; 1 launch")


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ("k<<<1, 1>>>(nullptr);", "thread (0, 0, 0) of block (0, 0, 0), in the launch of k"),
        ("for (volatile int i = 0;; i = 1) {}", "the host"),
    ],
)
def test_an_endless_loop_ends_with_the_time_limit(tmp_path, body, where, monkeypatch):
    begun, wait = tmp_path / "begun", subprocess.Popen.wait
    text = f"""__global__ void k(float*) {{
  for (volatile int i = 0;; i = 1) {{}}
}}
int main() {{
  std::fclose(std::fopen("{begun}", "w"));
  {body}
}}"""

    def wait_from_main(process, timeout=None):
        # A busy machine starts the program late.
        while timeout == 1 and not begun.exists() and process.poll() is None:
            time.sleep(0.01)
        return wait(process, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_from_main)
    code, report = run(tmp_path, text, seconds=1)
    assert code == 5
    assert report.startswith(f"cut short after 1 s, which --seconds raises: {where}\n  at ")


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (KEEPS, 2, "program.cu has no main: a whole program is needed"),
        (
            "int main() {\n  return 1 + unknown;\n}",
            1,
            "program.cu:4: ‘unknown’ was not declared in this scope",
        ),
        (KEEPS + "int main() { k<<<1, 1>>>(1.5); }", 1, "cannot convert ‘double’ to ‘float*’"),
        ("int other();\nint main() { return other(); }", 1, "does not link: other is declared"),
        ("#error no such thing\nint main() {}", 1, "#error no such thing"),
    ],
)
def test_a_program_that_does_not_compile_is_told_by_its_own_lines(tmp_path, text, code, said):
    with pytest.raises(NotRunError) as raised:
        run(tmp_path, text)
    assert said in str(raised.value)
    assert "emulators" not in str(raised.value)
    assert raised.value.exit_code == code


def test_headers_beside_the_program_and_macros_are_found(tmp_path, capfd):
    (tmp_path / "common.h").write_text(KEEPS)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "size.h").write_text("#pragma once\nconstexpr int size = SIZE;\n")
    text = f'#include "common.h"\n#include <size.h>\n{MAIN}'.replace("<<<2", "<<<size")
    assert run(tmp_path, text, flags=(f"-I{tmp_path / 'more'}", "-DSIZE=1"))[0] == 0


PRODUCT = """
#include <cublas_v2.h>
int main(int argc, char**) {
  cublasHandle_t handle;
  cublasCreate(&handle);
  float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 2, 1, 1, 3}, c[4] = {10, 10, 10, 10}, one = 1;
  float *x, *y, *z;
  cudaMalloc(&x, sizeof a);
  cudaMalloc(&y, sizeof b);
  cudaMalloc(&z, 4 * sizeof(float));
  cudaMemcpy(x, a, sizeof a, cudaMemcpyHostToDevice);
  cudaMemcpy(y, b, sizeof b, cudaMemcpyHostToDevice);
  cudaMemcpy(z, c, sizeof c, cudaMemcpyHostToDevice);
  cublasSgemm(handle, CUBLAS_OP_T, CUBLAS_OP_N, 2, 2, 3, &one, x, 3, y, 3, &one, z, argc + 1);
  cudaMemcpy(c, z, sizeof c, cudaMemcpyDeviceToHost);
  std::printf("%g %g %g %g", c[0], c[1], c[2], c[3]);
  cublasSgemv(handle, CUBLAS_OP_T, 3, 2, &one, x, 3, y, 1, &one, x, 1);  // ALIAS
}
"""


def test_products_of_cublas_are_computed_and_watched(tmp_path, capfd):
    # a' b for the columns (1 2 3), (4 5 6) and (1 0 2), (1 1 3), to which 10 is added.
    code, report = run(tmp_path, PRODUCT)
    assert capfd.readouterr().out == "17 26 22 37"
    assert code == 1
    assert report.startswith("race: cublasSgemv, for item ")
    assert marked(tmp_path / "program.cu", "ALIAS") in report


@pytest.mark.parametrize("module", ["emulators", "opsmith"])
def test_it_is_a_command_of_its_own_and_one_of_opsmith(tmp_path, module):
    path = program(tmp_path, RIGHT["default_stream"])
    words = [sys.executable, "-m", module, *(["emulate"] if module == "opsmith" else [])]
    command = [*words, "--seconds", "60", str(path), "--fast"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CXX": ""})
    assert (done.returncode, done.stdout) == (0, "6 2 --fast\n")
    assert done.stderr == "== emulate: nothing found in 3 launches\n"


def test_a_file_that_is_not_there_is_a_mistake_on_the_command_line(tmp_path):
    with pytest.raises(NotRunError, match=r"there is no file .*none\.cu") as raised:
        run_program(tmp_path / "none.cu")
    assert raised.value.exit_code == 2


PAGES = [REPOSITORY / "docs" / folder / "emulate.md" for folder in ("how-to", "zh/how-to")]


@pytest.mark.parametrize("page", PAGES, ids=["english", "chinese"])
def test_the_page_shows_what_its_program_says(tmp_path, capfd, page):
    text = page.read_text()
    (source,) = re.findall(r"^```cuda\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    shown = re.findall(r"^```\n\$ opsmith emulate reverse\.cu\n(.*?)^```$", text, re.M | re.DOTALL)
    right = source.replace("part[i] = data[i];", "part[i] = data[i];\n  __syncthreads();")
    for written, expected, code in ((source, shown[0], 1), (right, shown[1], 0)):
        path = tmp_path / "reverse.cu"
        path.write_text(written)
        found, report = run_program(path)
        said = f"{capfd.readouterr().out}== emulate: {report}\n"
        assert (found, said.replace(str(tmp_path), "/home/me")) == (code, expected)


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("g++ (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0\n… Free Software Foundation", False),
        ("g++ (GCC) 11.4.1 20231218 (Red Hat 11.4.1-3)\n… Free Software Foundation", False),
        ("g++ (Debian 12.2.0-14) 12.2.0\n… Free Software Foundation", True),
        ("Ubuntu clang version 14.0.0-1ubuntu1.1", True),
    ],
)
def test_an_early_compiler_gets_no_flag_that_it_does_not_know(version, known):
    assert any("auto-var-init" in flag for flag in watching_flags(version)) == known
