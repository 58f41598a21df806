"""CUDA's source as C++: line by line, and refused where it cannot be read."""

import re
from pathlib import Path

import pytest
import torch

import opsmith
from gallery.my_add.my_add import my_add
from opsmith.errors import DeclarationError
from opsmith.kernels.cuda_emulator import find_obstacle
from opsmith.kernels.cuda_emulator.rewriting import rewrite


def rewritten(tmp_path: Path, text: str) -> str:
    source = tmp_path / "kernel.cu"
    source.write_text(text)
    first, _, rest = rewrite(source, "kernel.cpp").files["kernel.cpp"].partition("\n")
    assert first == f'#line 1 "{source}"'
    return rest


@pytest.mark.parametrize(
    ("launch", "kernel", "configuration", "arguments"),
    [
        ("add<<<g, b>>>(x, n)", "add", "g, b", "x, n"),
        ("add<T><<<g, b, 0, s>>>(x)", "add<T>", "g, b, 0, s", "x"),
        (
            "ns::add<T, (A > 1)>  <<< dim3(g, 2), b >>> (x)",
            "ns::add<T, (A > 1)>",
            " dim3(g, 2), b ",
            "x",
        ),
        ("add<Pack<Half<T>>><<<f<int>(g), b>>>()", "add<Pack<Half<T>>>", "f<int>(g), b", ""),
    ],
)
def test_a_launch_becomes_a_call(tmp_path, launch, kernel, configuration, arguments):
    call = f"[&](auto... opsmith_arguments) {{ {kernel}(opsmith_arguments...); }}"
    comma = ", " if arguments else ""
    assert rewritten(tmp_path, f"  if (n) {launch}; // a <<< b\n") == (
        f"  if (n) ::opsmith::emulated::Configured({configuration})"
        f'.run("{kernel}", nullptr, {call}{comma}{arguments}); // a <<< b\n'
    )


@pytest.mark.parametrize(
    ("before", "kernel", "captured"),
    [
        ("", "run_##type##_##k<T>", ""),
        ("", "run_##type##2d_kernel<T, A / 2>", ""),
        ("", "ns::run_ ## \\\n type", ""),
        ("", "table.kernels[n + 1]", "table.kernels[n + 1]"),
        ("", "row.kernel", "row.kernel"),
        ("", "table[n]->kernel", "table[n]->kernel"),
        ("auto kernel = &f<T>; ", "kernel", "kernel"),
        ("extern void (*kernel)(int); ", "kernel", "kernel"),
        ("if (kernel == 2) ", "kernel", ""),
    ],
)
def test_the_name_of_a_kernel_may_be_pasted_or_in_a_variable(tmp_path, before, kernel, captured):
    result = rewritten(tmp_path, f"{before}{kernel}<<<1, 2>>>(3);\n")
    name = " ".join(kernel.replace("\\\n", " ").split())
    capture = f"[&, opsmith_kernel = {captured}]" if captured else "[&]"
    called = "opsmith_kernel" if captured else name
    assert result.replace("\\\n", "").startswith(f"{before}::opsmith::emulated::Configured(1, 2")
    assert f'.run("{name}", nullptr, {capture}(auto... ' in result
    assert f"{{ {called}(opsmith_arguments...); }}, 3);" in result


def test_an_argument_that_is_null_stays_a_pointer(tmp_path):
    result = rewritten(tmp_path, "f<<<1, 2>>>(NULL, g(NULL), NULLS); h(NULL);\n")
    assert result.endswith(", nullptr, g(nullptr), NULLS); h(NULL);\n")


def test_a_kernel_beside_a_function_of_its_name_has_no_address(tmp_path):
    kernel = "__global__ void f(int n) {}\n"
    launch = "void g() { f<<<1, 2>>>(3); }\n"
    assert '.run("f", f, ' in rewritten(tmp_path, kernel + launch)
    assert '.run("f", nullptr, ' in rewritten(
        tmp_path, f"{kernel}void f(int n, int m) {{}}\n{launch}"
    )


def test_lines_stay_where_they_were(tmp_path):
    text = (
        "#define RUN(k) \\\n  k<T> \\\n  <<<1, \\\n  2>>>(x)\n"
        "__global__ void f() {\n  __shared__ float\n    a[2],\n    b[3][4];\n}\n"
        "void g() {\n  f\n    <<<1,\n       2>>>\n  ();\n}\n"
    )
    result = rewritten(tmp_path, text)
    assert result.count("\n") == text.count("\n")
    assert result.splitlines()[-1] == "}"
    assert [line.endswith("\\") for line in result.splitlines()[:4]] == [True] * 3 + [False]


@pytest.mark.parametrize(
    ("declaration", "becomes"),
    [
        ("__shared__ float a[2][N + 1];", 'shared<float [2][N + 1]>("a", [] {});'),
        ("__shared__ volatile int n;", 'shared<volatile int >("n", [] {});'),
        ("volatile __shared__ int n;", 'shared<volatile int >("n", [] {});'),
        ("__shared__ Pair<int, T> p[4];", 'shared<Pair<int, T> [4]>("p", [] {});'),
        ("extern __shared__ __align__(16) char s[];", 'dynamic_shared<char>("s");'),
        ("extern __shared__ half s[][K + 8];", 'dynamic_shared<half[K + 8]>("s");'),
    ],
)
def test_shared_memory_is_asked_of_the_runtime(tmp_path, declaration, becomes):
    result = rewritten(tmp_path, f"__global__ void f() {{ {declaration} }}")
    assert f"::opsmith::emulated::{becomes}" in result


@pytest.mark.parametrize(
    ("declaration", "type_", "variable"),
    [
        ("__shared__ union {\n A a;\n B b;\n} room;", "union OpsmithShared1 {", "room"),
        ("__shared__ struct Rooms { A a; } room, second[2];", "struct Rooms {", "room"),
        (
            "__shared__ union alignas(16) { A a; } room;",
            "union alignas(16) OpsmithShared1 {",
            "room",
        ),
    ],
)
def test_a_type_may_be_defined_with_a_shared_variable(tmp_path, declaration, type_, variable):
    text = f"__global__ void f() {{ {declaration} }}"
    result = rewritten(tmp_path, text)
    name = re.sub(r"alignas\(\d+\)", "", type_).split()[1]
    assert type_ in result
    asked = f'auto& {variable} = ::opsmith::emulated::shared<{name} >("{variable}", [] {{}});'
    assert asked in result
    assert result.count("\n") == text.count("\n")
    assert ("second" in declaration) == (f"shared<{name} [2]>" in result)


def test_dynamic_shared_memory_may_be_declared_outside(tmp_path):
    result = rewritten(tmp_path, "namespace a {\nextern __shared__ float s[];\n}\n")
    assert 'static constexpr ::opsmith::emulated::DynamicShared<float> s{"s"};' in result


def test_headers_beside_the_source_are_rewritten_too(tmp_path):
    (tmp_path / "tile.cuh").write_text("__device__ void f() { __shared__ int n; }\n")
    source = tmp_path / "kernel.cu"
    source.write_text('#include "tile.cuh"\n#include "generated.h"\n')
    result = rewrite(source, "kernel.cpp")
    (name,) = [name for name in result.files if name != "kernel.cpp"]
    assert f'#include "{name}"\n#include "generated.h"\n' in result.files["kernel.cpp"]
    assert 'shared<int >("n"' in result.files[name]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "\n#include <cub/device/device_merge_sort.cuh>\n",
            "it uses a part of CUB that is not emulated, at kernel.cu:2",
        ),
        ("\n#include <thrust/device_vector.h>\n", "it uses a part of Thrust that is not emulated"),
        (
            "thrust::set_union(a, b);",
            "it uses a part of Thrust that is not emulated, at kernel.cu:1",
        ),
        ("cub::BlockHistogram<int, 8>", "it uses a part of CUB that is not emulated, at"),
        ("wmma::experimental::bmma_sync(", "it uses tensor cores below 8 bits, at kernel.cu:1"),
        (
            "auto g = cooperative_groups::this_grid();",
            "it uses groups over the grid, at kernel.cu:1",
        ),
        ("auto g = cg::coalesced_threads();", "it uses groups of the threads that happen to be"),
        ("auto g = cg::tiled_partition<64>(b);", "it uses cooperative groups of several warps, at"),
        ("cg::block_tile_memory<N> m;", "it uses cooperative groups of several warps, at"),
        ("#include <cooperative_groups/scan.h>\n", "it uses cooperative groups' scans, at"),
        ("\nf<<<1, a>>>>(x);", "it has a launch whose '>>>' cannot be told from the end of"),
        (
            "void f() { __shared__ struct { int n; } s = {1}; }",
            "it has a declaration of shared memory",
        ),
    ],
)
def test_what_cannot_be_emulated_is_named_with_its_line(tmp_path, text, words):
    source = tmp_path / "kernel.cu"
    source.write_text(text)
    assert str(find_obstacle(source)).startswith(words)


def test_a_tile_of_64_threads_is_one_warp_where_warps_have_64(tmp_path):
    source = tmp_path / "kernel.cu"
    source.write_text("auto g = cg::tiled_partition<64>(b);")
    assert find_obstacle(source, warp=64) is None
    source.write_text("auto g = cg::tiled_partition<128>(b);")
    assert "of several warps" in str(find_obstacle(source, warp=64))


def test_words_in_comments_and_texts_are_no_obstacle(tmp_path):
    source = tmp_path / "kernel.cu"
    source.write_text('// asm, cub::\n/* #include <cub/cub.cuh> */ const char* s = "thrust::";\n')
    assert find_obstacle(source) is None


@pytest.mark.slow
def test_emulate_takes_tensors_of_the_cpu_through_the_cuda_kernel_and_puts_the_other_back():
    a, b = torch.rand(7), torch.rand(7)
    with opsmith.emulate("cuda"):
        before = my_add.kernels["cpu"].calls
        torch.testing.assert_close(my_add(a, b), 2 * a + b)
        x = torch.rand(7, requires_grad=True)
        my_add(x, b).sum().backward()
        assert x.grad.tolist() == [2.0] * 7
        assert my_add.kernels["cpu"].calls == before
    torch.testing.assert_close(my_add(a, b), 2 * a + b)
    assert my_add.kernels["cpu"].calls == 1


def test_emulate_knows_no_other_device():
    with pytest.raises(DeclarationError, match="expected 'cuda'"), opsmith.emulate("npu"):
        pass
