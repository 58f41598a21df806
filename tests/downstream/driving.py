"""Operators whose kernels are those of DrivingSDK (BSD-3), in Ascend C, included as they are.

With OPSMITH_PADDED=32 in the environment, tensors are in memory as torch_npu's allocator gives it:
so many bytes more, in whole blocks of 512. Whatever reads or writes no further past the end of a
tensor is not named then, and whether results depend on it is seen.
"""

from fetched import sources

import opsmith
from opsmith.operators import Operator

SDK = sources("Ascend/DrivingSDK", "e667017eb751b614c128c9c81812634cae362ee4")
KERNELS = SDK / "kernels"
_INCLUDE = (KERNELS / "common/op_kernel", SDK / "include")

_SOURCE = """
#include <opsmith/ascendc.h>
#include "{name}.h"

#include <cstdlib>
#include <functional>
#include <vector>

// An Atlas A2: its vector cores, and what each has of the unified buffer.
constexpr uint64_t kCores = 40, kMemory = 192 << 10;
struct {struct} {{
  {fields}
}};
static int32_t key = 0;
#define OPSMITH_TILING {struct}
#define OPSMITH_TILING_KEY key
{before}
#include "{file}"

namespace {{
template <typename A, typename B>
uint64_t divided_up(A a, B b) {{ return (uint64_t(a) + b - 1) / b; }}
template <typename A, typename B>
uint64_t rounded_up(A a, B b) {{ return divided_up(a, b) * b; }}
template <typename T>
void zero(const opsmith::Tensor<T>& tensor) {{ std::fill_n(tensor.data(), tensor.numel(), T(0)); }}

struct Memory {{
  const opsmith::Context& ctx;
  const char* padding = std::getenv("OPSMITH_PADDED");
  std::vector<std::function<void()>> results;

  template <typename T>
  GM_ADDR of(const opsmith::Tensor<T>& tensor) {{
    if (padding == nullptr) return opsmith::gm(tensor);
    const uint64_t bytes = tensor.numel() * sizeof(T);
    char* memory = ctx.scratch<char>(rounded_up(bytes + std::atoi(padding), 512)).data();
    std::memcpy(memory, tensor.data(), bytes);
    if constexpr (!std::is_const_v<T>)
      results.push_back([=, &tensor] {{ std::memcpy(tensor.data(), memory, bytes); }});
    return reinterpret_cast<GM_ADDR>(memory);
  }}
  GM_ADDR room(uint64_t bytes) {{
    return reinterpret_cast<GM_ADDR>(ctx.scratch<char>(bytes).data());
  }}
}};
}}  // namespace

void {name}(const opsmith::Context& ctx, const {namespace}::{name}_args& a) {{
  Memory memory{{ctx}};
  {struct} t{{}};
  uint64_t blocks = kCores;
  {tiling}
  {kernel}<<<blocks, nullptr, opsmith::npu_stream(ctx)>>>(
      {arguments}, reinterpret_cast<GM_ADDR>(&t));
  for (const auto& result : memory.results) result();
}}
OPSMITH_KERNEL({namespace}, {name}, npu)
"""


def register(
    operator: Operator,
    path: str,
    *,
    tiling: str,
    fields: str,
    arguments: str,
    struct: str = "",
    kernel: str = "",
    workspace: str = "nullptr",
    before: str = "",
) -> None:
    """Register a kernel of an operator project for an operator.

    Args:
        operator: what the kernel has to compute.
        path: the kernel's file, below `kernels/`.
        tiling: computes the tiling `t`, and `blocks` where these are not all cores, from the
            operator's arguments `a`, as the project's host code does.
        fields: the members of the tiling.
        arguments: the names of the operator's arguments and results in the kernel's order;
            after an @ the names of addresses that the tiling computes.
        struct: the tiling's name, by default the kernel's in CamelCase, and `TilingData`.
        kernel: the function's name, by default the file's.
        workspace: the address of memory besides, as `memory.room(bytes)`.
        before: what the project's build defines before the kernel.
    """
    file = KERNELS / path
    kernel = kernel or file.stem
    camel = "".join(word.capitalize() for word in file.stem.split("_"))
    addresses = [
        name[1:] if name.startswith("@") else f"memory.of(a.{name})" for name in arguments.split()
    ]
    text = _SOURCE.format(
        name=operator.signature.name,
        namespace=operator.signature.namespace,
        struct=struct or f"{camel}TilingData",
        fields=fields,
        before=before,
        file=file,
        tiling=tiling,
        kernel=kernel,
        arguments=",\n      ".join([*addresses, workspace]),
    )
    operator.register_kernel(
        "npu",
        source=opsmith.cpp(text),
        language="ascendc",
        flags=[f"-I{folder}" for folder in _INCLUDE],
    )
