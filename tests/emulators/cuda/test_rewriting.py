"""CUDA's source as C++: line by line, and refused where it cannot be read."""

import re

import pytest
import torch
from emulated_sources import obstacle, own_code, placed, rewritten

import opsmith
from emulators.cuda.rewriting import rewrite
from gallery.my_add.my_add import my_add
from opsmith.errors import DeclarationError


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
        f"  if (n) ::emulated::Configured({configuration})"
        f'.run("{kernel}", nullptr, {call}{comma}{arguments});\n'
    )


@pytest.mark.parametrize(
    ("before", "kernel", "captured"),
    [
        ("", "table.kernels[n + 1]", "table.kernels[n + 1]"),
        ("", "row.kernel", "row.kernel"),
        ("", "table[n]->kernel", "table[n]->kernel"),
        ("auto kernel = &f<T>; ", "kernel", "kernel"),
        ("extern void (*kernel)(int); ", "kernel", "kernel"),
        ("", "(*kernels)", "(*kernels)"),
        ("template <class F> void g(F kernel, F&& other) { ", "kernel", "kernel"),
        ("template <class F> void g(F kernel, F&& other) { ", "other", "other"),
        ("void g(void (&kernel)(int)) { ", "kernel", "kernel"),
        ("auto g = [](auto kernel) { ", "kernel", "kernel"),
        ("if (kernel == 2) ", "kernel", ""),
        ("void g(int kernel); ", "kernel", ""),
        ("void g(int kernel) {} ", "kernel", ""),
        ("void g() { int kernel = 2; } ", "kernel", ""),
    ],
)
def test_the_name_of_a_kernel_may_be_that_of_a_variable(tmp_path, before, kernel, captured):
    after = " }" * (before.count("{") - before.count("}"))
    result = rewritten(tmp_path, f"{before}{kernel}<<<1, 2>>>(3);{after}\n")
    capture = f"[&, opsmith_kernel = {captured}]" if captured else "[&]"
    called = "opsmith_kernel" if captured else kernel
    assert "::emulated::Configured(1, 2" in result
    assert f'.run("{kernel}", nullptr, {capture}(auto... ' in result
    assert f"{{ {called}(opsmith_arguments...); }}, 3);" in result


def test_a_launch_in_a_macro_has_the_name_that_the_macro_pastes(tmp_path):
    macro = "#define RUN(type, k) run_##type##_##k<T> \\\n <<<1, 2>>>(3)\n"
    result = rewritten(tmp_path, f"{macro}RUN(half, 2);\n")
    assert '.run("run_half_2<T>", nullptr, [&](auto...' in result.splitlines()[2]


def test_an_argument_that_is_null_stays_a_pointer(tmp_path):
    result = rewritten(
        tmp_path, "#include <cstddef>\nf<<<1, 2>>>(NULL, g(NULL), NULLS); h(NULL);\n"
    )
    assert "".join(result.split()).endswith(",nullptr,g(nullptr),NULLS);h(__null);")


def test_a_kernel_has_an_address_where_it_is_asked_for_and_no_other_function_has_its_name(tmp_path):
    kernel = "__global__ void f(int n) {}\n"
    launch = "void g() { f<<<1, 2>>>(3); }\n"
    asked = "void h() { cudaFuncSetAttribute(f, kMost, 9); }\n"
    assert '.run("f", f, ' in rewritten(tmp_path, kernel + launch + asked)
    overload = "void f(int n, int m) {}\n"
    assert '.run("f", nullptr, ' in rewritten(tmp_path, kernel + overload + launch + asked)
    # A header may have a function of that name, as unistd.h has read and write.
    assert '.run("f", nullptr, ' in rewritten(tmp_path, kernel + launch)


def test_lines_stay_where_they_were(tmp_path):
    text = (
        "#define RUN(k) \\\n  k<T> \\\n  <<<1, \\\n  2>>>(x)\n"
        "__global__ void f() {\n  __shared__ float\n    a[2],\n    b[3][4];\n}\n"
        "void g() {\n  f\n    <<<1,\n       2>>>\n  ();\n}\n"
    )
    result = rewritten(tmp_path, text)
    lines = result.splitlines()
    at = {4: '__global__ void f() { ::emulated::kernel_only("f");', 8: "}", 14: "}"}
    assert {number: lines[number] for number in at} == at
    assert len(lines) == 15


@pytest.mark.parametrize(
    ("declaration", "becomes"),
    [
        ("__shared__ float a[2][N + 1];", 'shared<float [2][N + 1]>("a", [] {});'),
        ("__shared__ volatile int n;", 'shared<volatile int >("n", [] {});'),
        ("volatile __shared__ int n;", 'shared<volatile int >("n", [] {});'),
        ("__shared__ Pair<int, T> p[4];", 'shared<Pair<int, T> [4]>("p", [] {});'),
        ("extern __shared__ __align__(16) char s[];", 'dynamic_shared<char>("s");'),
        ("extern __shared__ half s[][K + 8];", 'dynamic_shared<half[K + 8]>("s");'),
        ("__shared__ int *p, (*q)[4];", 'shared<int (*)[4]>("q", [] {});'),
        ("__shared__ __attribute__((aligned(16))) float a[4];", "aligned_as(16));"),
    ],
)
def test_shared_memory_is_asked_of_the_runtime(tmp_path, declaration, becomes):
    text = f"__global__ void f() {{ {declaration} }}"
    result = rewritten(tmp_path, text, headers=("emulated/cuda.h",))
    assert f"::emulated::{becomes}" in result and "__shared__" not in result


@pytest.mark.parametrize(
    ("declaration", "type_", "variable"),
    [
        ("__shared__ union {\n A a;\n B b;\n} room;", "union  OpsmithShared", "room"),
        ("__shared__ struct Rooms { A a; } room, second[2];", "struct Rooms {", "room"),
        (
            "__shared__ union alignas(16) { A a; } room;",
            "union alignas(16)  OpsmithShared",
            "room",
        ),
    ],
)
def test_a_type_may_be_defined_with_a_shared_variable(tmp_path, declaration, type_, variable):
    text = f"__global__ void f() {{ {declaration} }}"
    result = rewritten(tmp_path, text)
    assert type_ in result
    name = re.search(r"Rooms|OpsmithShared\d+", result)[0]
    asked = f'auto& {variable} = ::emulated::shared<{name} >("{variable}", [] {{}});'
    assert asked in result
    assert result.count("\n") == text.count("\n") + 1
    assert ("second" in declaration) == (f"shared<{name} [2]>" in result)


def test_dynamic_shared_memory_may_be_declared_outside(tmp_path):
    result = rewritten(tmp_path, "namespace a {\nextern __shared__ float s[];\n}\n")
    assert 'static constexpr ::emulated::DynamicShared<float> s{"s"};' in result


def test_headers_of_the_user_are_rewritten_with_the_source_and_others_stay(tmp_path):
    (tmp_path / "tile.cuh").write_text(
        "#pragma once\n#define N 3\n#include <cstdint>\n"
        "__device__ void f() { __shared__ int n[N]; }\n"
    )
    text = '#include "tile.cuh"\n#include "tile.cuh"\n#include <cuda_fp8.h>\nint n = N;\n'
    assert rewritten(tmp_path, text).splitlines()[3].endswith("int n = 3;")
    made = rewrite(own_code(tmp_path, text))
    of_header = placed(made, tmp_path / "tile.cuh").splitlines()
    assert 'shared<int [3]>("n"' in of_header[3]
    # What the user defines may decide what a header of others declares.
    assert "#define N 3\n#include <cstdint>\n#undef N\n" in made
    assert "#include <cuda_fp8.h>" in made and "tile.cuh>" not in made


def test_a_header_that_is_there_already_stays_unless_it_is_the_users(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "tile.cuh").write_text("#pragma once\n__device__ int a;\n")
    text = '#include <cstdint>\n#include "a/tile.cuh"\n#include <cstdint>\n#include <tile.cuh>\n'
    folders = (tmp_path / "a",)
    code = own_code(tmp_path, text, headers=("cstdint",), include_dirs=folders)
    assert [name for name, _ in code.included] == ["<cstdint>", "<cstdint>"]
    made = rewrite(code)
    assert made.count("#include <cstdint>\n") == 2 and "tile.cuh>" not in made
    assert [code.place(at)[1] for _, at in code.included] == [1, 3]


def test_a_header_of_a_folder_of_the_user_is_rewritten_too(tmp_path):
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "tile.cuh").write_text("#define SHARED __shared__\n")
    text = "#include <tile.cuh>\n__global__ void f() { SHARED int n; }\n"
    result = rewritten(tmp_path, text, include_dirs=(tmp_path / "include",))
    assert 'shared<int >("n"' in result


def test_a_source_that_the_preprocessor_refuses_is_left_to_the_compiler(tmp_path):
    text = '#include "missing.cuh"\nint a;\n'
    assert obstacle(tmp_path, text) == "None"
    assert rewrite(own_code(tmp_path, text)) == f'#include "{tmp_path}/kernel.cu"\n'


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
            "auto g = cooperative_groups::this_multi_grid();",
            "it uses groups over several grids, at kernel.cu:1",
        ),
        ("auto g = cg::coalesced_threads();", "it uses groups of the threads that happen to be"),
        ("auto g = cg::tiled_partition<64>(b);", "it uses cooperative groups of several warps, at"),
        ("cg::block_tile_memory<N> m;", "it uses cooperative groups of several warps, at"),
        ("#include <cooperative_groups/details/info.h>\n", "it uses a part of cooperative groups"),
        (
            "\nf<<<1, a>>>>(x);",
            "it has '<<<' in code that opsmith does not read; write opsmith::launch",
        ),
        (
            "void f() { __shared__ struct { int n; } s = {1}; }",
            "it has a declaration of shared memory",
        ),
    ],
)
def test_what_cannot_be_emulated_is_named_with_its_line(tmp_path, text, words):
    assert obstacle(tmp_path, text).startswith(words)


def test_what_the_preprocessor_takes_out_is_no_obstacle(tmp_path):
    text = "#ifdef WITH_CUB\n#include <cub/no.cuh>\n#endif\n#if 0\ncub::BlockShuffle a;\n#endif\n"
    assert obstacle(tmp_path, text) == "None"
    assert "at kernel.cu:3" in obstacle(tmp_path, f"#define WITH_CUB\n{text}")


def test_a_folder_of_the_user_that_is_not_found_is_no_library(tmp_path):
    assert obstacle(tmp_path, '#include "cuda/x.cuh"\n') == "None"
    found = obstacle(tmp_path, "#include <cuda_profiler_api.h>\n")
    assert found == "it uses cuda_profiler_api.h, at kernel.cu:1"
    assert "libcu++" in obstacle(tmp_path, "#include <cuda/barrier>\n")
    assert "libcu++" in obstacle(tmp_path, "#include <cuda/std/mdspan>\n")


def test_a_folder_of_the_user_may_have_the_name_of_a_library(tmp_path):
    for name in ("cuda", "cub", "thrust"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.cuh").write_text("__device__ int f();\n")
        assert obstacle(tmp_path, f'#include "{name}/x.cuh"\n') == "None"


def test_a_header_that_another_of_the_user_includes_is_named_with_its_line(tmp_path):
    (tmp_path / "sorts.cuh").write_text("\n#include <cub/device/device_merge_sort.cuh>\n")
    found = obstacle(tmp_path, '#include "sorts.cuh"\n')
    assert found == "it uses a part of CUB that is not emulated, at sorts.cuh:2"


def test_a_word_that_a_macro_makes_is_an_obstacle_where_the_macro_is_used(tmp_path):
    macro = "#define SHUFFLE(T) cub::BlockShuffle<T>\n"
    assert obstacle(tmp_path, macro) == "None"
    assert obstacle(tmp_path, f"{macro}SHUFFLE(int) a;\n").endswith("at kernel.cu:2")


def test_a_tile_of_64_threads_is_one_warp_where_warps_have_64(tmp_path):
    assert obstacle(tmp_path, "auto g = cg::tiled_partition<64>(b);", warp=64) == "None"
    found = obstacle(tmp_path, "auto g = cg::tiled_partition<128>(b);", warp=64)
    assert "of several warps" in found


def test_words_in_comments_and_texts_are_no_obstacle(tmp_path):
    text = '// asm, cub::\n/* #include <cub/cub.cuh> */ const char* s = "thrust::";\n'
    assert obstacle(tmp_path, text) == "None"


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
    with pytest.raises(DeclarationError, match="expected 'cuda'"), opsmith.emulate("tpu"):
        pass


def test_a_folder_may_have_any_name(tmp_path):
    folder = tmp_path / '用户 "x'
    folder.mkdir()
    (folder / "h.cuh").write_text("__device__ int from_header;\n")
    text = '#include "h.cuh"\nvoid f() { __shared__ int a; }\n__shared__ int b = 3;\n'
    code = own_code(folder, text)
    assert code.place(code.text.index("b = 3")) == (folder / "kernel.cu", 3)
    assert code.place(code.text.index("from_header")) == (folder / "h.cuh", 1)
    assert obstacle(folder, text).endswith("at kernel.cu:3")
