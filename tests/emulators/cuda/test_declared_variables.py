"""Declarations of CUDA, rewritten: variables, bounds, functions of the host."""

import pytest
from emulated_sources import obstacle, rewritten


@pytest.mark.parametrize(
    ("declaration", "names"),
    [
        ("__device__ unsigned count;", ["count"]),
        ("static __device__ int a = 0, b[4] = {1, 2, 3, 4};", ["a", "b"]),
        ("namespace n { __device__ float2 pairs[8]; }", ["pairs"]),
        ("__device__ volatile int flag;", ["flag"]),
        ("__device__ const float table[2] = {1, 2};", []),
        ("__constant__ float table[2];", []),
        ("__device__ float twice(float x) { return 2 * x; }", []),
        ("template <typename T> __device__ T zero;", []),
        ("extern __device__ int elsewhere;", []),
        ("struct S { __device__ int size() const; };", []),
        ("#include <cstdint>\n__device__ unsigned count;", ["count"]),
        (
            "#define A 1\n#if A\n__device__ unsigned count;\n#else\n__device__ int a;\n#endif",
            ["count"],
        ),
        ("#pragma once\n__device__ unsigned count;", ["count"]),
        ("#define DEVICE(type, name) __device__ type name\nDEVICE(unsigned, count);", ["count"]),
        ("__device__ __attribute__((aligned(8))) float2 pairs[8];", ["pairs"]),
        ("alignas(16) __device__ float2 pairs[8];", ["pairs"]),
        ("__device__ struct { int a; } pairs[2];", ["pairs"]),
        ("unsigned __device__ count;", ["count"]),
        ("__device__ unsigned count, a[2] = {1, 2};", ["count", "a"]),
        ("__device__\\\n unsigned count{0}; // a\n", ["count"]),
        ("__device__ /* a */ const float* table;", ["table"]),
        ("__device__ const float* const table = nullptr;", []),
        ("__device__ float (*table)(float);", ["table"]),
        ("__device__ float a(float);", []),
        (
            "__device__ int count __attribute__((aligned(8))) __attribute__((unused));",
            ["count"],
        ),
        ("__device__ float2 pairs[8] __attribute__((unused)) = {};", ["pairs"]),
        ('extern "C" { __device__ unsigned count; }', ["count"]),
    ],
)
def test_variables_of_the_device_are_registered(tmp_path, declaration, names):
    text = rewritten(tmp_path, declaration)
    found = [n for n in ("count", "a", "b", "pairs", "flag", "table") if f'("{n}", {n})' in text]
    assert found == names
    assert ("opsmith_device" in text) == bool(names)


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("__global__ void __launch_bounds__(256, 2) k(int n) { f(); }", "check_threads(256)"),
        (
            "template <int T>\n__launch_bounds__(T * 32) __global__ void k() {}",
            "check_threads(T * 32)",
        ),
        ("__global__ void __launch_bounds__(256) k(int n);", ""),
    ],
)
def test_bounds_are_compared_in_the_body(tmp_path, text, check):
    out = rewritten(tmp_path, text)
    assert (f"{{ ::emulated::{check};" in out) if check else ("check_threads" not in out)
    assert out.count("\n") == text.count("\n") + 1


MACRO = "#define __CUDACC__ 1\n#include <torch/headeronly/macros/Macros.h>\n"


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("float twice(float x) { return 2 * x; }", True),
        ("namespace {\ntemplate <typename T>\nT twice(T x) {\n  return 2 * x;\n}\n}", True),
        ("__device__ float twice(float x) { return 2 * x; }", False),
        ("__host__ __device__ float twice(float x) { return 2 * x; }", False),
        ("constexpr int twice(int x) { return 2 * x; }", False),
        ("#define BOTH __host__ __device__\nBOTH float twice(float x) { return 2 * x; }", False),
        (f"{MACRO}C10_HOST_DEVICE float twice(float x) {{ return 2 * x; }}", False),
        ("#define API static\nAPI float twice(float x) { return 2 * x; }", True),
        ("__host__ float twice(float x) { return 2 * x; }", True),
        ("__device__ auto f = [](float x) { return x; };", False),
        ("#define KERNEL(f) __global__ void f()\nKERNEL(twice) { out[0] = x[0]; }", False),
        ("struct S { __device__ friend float twice(S x) { return 2; } };", False),
        ("struct S { float twice(float x) { return x; } };", False),
    ],
)
def test_functions_of_the_host_say_that_they_are(tmp_path, text, host):
    out = rewritten(tmp_path, text)
    assert ('host_only("twice")' in out) == host
    assert (out.count("OPSMITH_OF_HOST") == 1) == host


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        (
            "extern float __shared__ s[];",
            "auto* const s = ::emulated::dynamic_shared<float>",
        ),
        ("unsigned int __shared__ s[4];", 'shared<unsigned int [4]>("s", [] {});'),
        ("unsigned __shared__ s[4];", 'shared<unsigned [4]>("s", [] {});'),
        ("[[maybe_unused]] static __shared__ int s[4];", 'shared<int [4]>("s", [] {});'),
        ("__shared__ __align__(16) float s[4];", "[] {}, ::emulated::aligned_as(16));"),
        ("__shared__ float s[4] __align__(f(16) * 2);", "aligned_as(f(16) * 2));"),
        ("__attribute__((unused)) __shared__ __align__(16) float s[4];", "aligned_as(16));"),
    ],
)
def test_shared_memory_keeps_its_type_and_alignment(tmp_path, declaration, expected):
    text = f"__global__ void k() {{\n  {declaration}\n}}"
    out = rewritten(tmp_path, text, headers=("emulated/cuda.h",))
    assert expected in out and "__shared__" not in out


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("__device__ int a[2] 3;", "it has a declaration of the device's memory that opsmith"),
        (
            "void f() {\n__shared__ int a[2] 3;\n}",
            "does not read: __shared__ int a[2] 3;, at kernel.cu:2",
        ),
        (
            "void f() { __shared__ struct { int a; }; }",
            "a declaration of shared memory that opsmith",
        ),
    ],
)
def test_a_declaration_that_is_not_read_is_refused(tmp_path, text, words):
    assert words in obstacle(tmp_path, text)
