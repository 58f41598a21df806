"""Find features of a CUDA source that the emulator does not support.

What the preprocessor takes out is no obstacle; what it includes is one, whoever includes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from emulators.cuda.own_code import OwnCode, UnreadableError
from emulators.cuda.rewriting import rewrite

_CUB = (
    r"(?:Block|Warp)(?:Reduce|Scan)|Block(?:Load|Store)(?:Algorithm)?|Block(?:Reduce|Scan)Algorithm"
    r"|BLOCK_\w+|Sum|Max|Min|ArgMax|ArgMin|KeyValuePair|Uninitialized"
    r"|Device(?:Reduce|Scan|Select|RadixSort|SegmentedReduce)|DoubleBuffer"
)
_THRUST = (
    r"copy(?:_n|_if)?|count(?:_if)?|fill(?:_n)?|for_each(?:_n)?|gather|scatter|inner_product"
    r"|(?:transform_)?reduce|reduce_by_key|remove_if|(?:inclusive|exclusive)_scan|sequence|tabulate"
    r"|(?:stable_)?sort(?:_by_key)?|transform|unique(?:_by_key)?|(?:min|max)_element"
    r"|device(?:_ptr|_pointer_cast)?|raw_pointer_cast|host|cuda|(?:make_)?pair|complex"
    r"|(?:make_)?(?:counting|constant|transform)_iterator"
    r"|plus|minus|multiplies|divides|maximum|minimum|less|less_equal|greater|greater_equal"
    r"|equal_to|not_equal_to|logical_(?:and|or|not)|negate|identity"
)
_LIBCUXX = (
    r"std|atomic_ref|atomic_thread_fence|memory_order\w*|thread_scope\w*"
    r"|(?:make_)?pipeline|pipeline_(?:shared_state|role|consumer_wait_prior)|memcpy_async"
    r"|aligned_size_t|maximum|minimum|proclaim_return_type"
)
#: Headers that are not there, by what they begin with.
_ABSENT = (
    (r"cub/", "a part of CUB that is not emulated"),
    (r"thrust/", "a part of Thrust that is not emulated"),
    (r"cuda/(?:std/)?\w+\Z", "a part of libcu++ that is not emulated"),
    (r"crt/mma", "tensor cores (crt/mma.h)"),
    (r"cute/|cutlass/", "CUTLASS"),
    (
        r"cublas|cudnn|cusparse|cufft|cusolver|curand|nccl|nvshmem",
        "a library of NVIDIA's",
    ),
    (r"cuda_fp6|cuda_fp4", "numbers of less than 8 bits"),
    (r"cooperative_groups/", "a part of cooperative groups that is not emulated"),
    (r"Python\.h", "Python's C interface"),
    (r"(?:ATen|c10|nv\w+)/|(?:cu|nv)\w+\.h\Z", "{}"),
)
_TORCH = (r"torch/(?!headeronly)|ATen/|c10/", "PyTorch's C++ interface")
#: Headers of PyTorch's host code that are there, and are not emulated.
_BEHIND_TORCH = (
    (r"ATen/cuda/(?:CUDABlas|CUDASparse\w*)\.h", "a library of NVIDIA's, through ATen"),
    (r"ATen/cuda/(?:cub|ScanUtils)", "CUB, through ATen"),
    (r"ATen/cuda/ThrustAllocator", "Thrust, through ATen"),
    (r"ATen/cuda/(?:CUDAGraph|Philox|CUDAGenerator)", "random numbers or graphs of CUDA's"),
    (r"torch/csrc/stable/", "PyTorch's stable C++ interface, whose CUDA part is missing here"),
    (r"Python\.h", "Python's C interface"),
)
_BEHIND_TORCH_WORDS = (
    (r"\bgetCurrentCUDA(?:Blas|Sparse|SolverDn)\w*\s*\(", "a library of NVIDIA's, through ATen"),
    (r"\bCUDAGeneratorImpl\b|\bPhiloxCudaState\b", "random numbers of CUDA's"),
)
_WORDS = (
    (r"\bwmma\s*::\s*(?:experimental|bmma\w*)\b|\b__[a-z]*mma_\w*", "tensor cores below 8 bits"),
    (r"\bthis_multi_grid\s*\(|\bmulti_grid_group\b", "groups over several grids"),
    (
        r"\bcoalesced_(?:threads\s*\(|group\b)|\b(?:binary|labeled)_partition\s*\(",
        "groups of the threads that happen to be active",
    ),
    (r"\bthis_cluster\s*\(|\bcluster_group\b", "clusters of blocks"),
    (r"\bcudaLaunchCooperative\w+", "a cooperative launch over the grid"),
    (
        r"\bcudaLaunchKernel\b",
        "cudaLaunchKernel, which does not say the types of arguments; write kernel<<<…>>>(…)",
    ),
    (rf"\bcub\s*::\s*(?!(?:{_CUB})\b)\w+", "a part of CUB that is not emulated"),
    (rf"\bthrust\s*::\s*(?!(?:{_THRUST})\b)\w+", "a part of Thrust that is not emulated"),
    (
        r"\bcurand(?:Direction|Discrete|Generat|State(?!Philox))\w*|\bcurand_(?:poisson|log_normal)\w*"
        r"|\bcurand_\w+_double\w*",
        "a part of cuRAND beside Philox's single precision",
    ),
    (r"\b__cluster_dims__\b|\bcudaLaunchKernelEx\w*", "clusters of blocks"),
    (
        rf"(?<!::)\bcuda\s*::\s*(?!(?:{_LIBCUXX})\b)\w+"
        r"|\bcuda\s*::\s*std\s*::\s*(?:atomic(?!_)|atomic_ref|barrier|latch|\w+_semaphore)\b",
        "a part of libcu++ that is not emulated",
    ),
    (r"\btex(?:1D|2D|3D)\w*\s*[<(]|\btexture\s*<|\bcudaTextureObject_t\b", "textures"),
    (r"\b__cp_async\w*|\b__pipeline_arrive_on\b|\b__mbarrier_\w+", "asynchronous barriers"),
    (r"\bcudaGraph\w+|\bcudaStreamBeginCapture\b", "CUDA graphs"),
)
_TILES = r"\b(?:tiled_partition|thread_block_tile)\s*<\s*(?:{sizes})\b|\bblock_tile_memory\b"


@dataclass(frozen=True)
class Obstacle:
    """A feature of a source that is not emulated.

    Attributes:
        path: the file that uses it.
        line: the number of the line, from 1.
    """

    what: str
    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.what}, at {self.path.name}:{self.line}"


def obstacle_of(code: OwnCode, *, behind_torch: bool, warp: int) -> Obstacle | None:
    """Return the first feature of a source that is not emulated.

    Args:
        code: the source, behind the preprocessor.
        behind_torch: whether its host code may use PyTorch's C++ interface.
        warp: number of threads in a warp.
    """
    found = [
        (at, what)
        for header, at in code.included
        for pattern, what in (_BEHIND_TORCH if behind_torch else (_TORCH,))
        if re.match(pattern, header[1:-1])
    ]
    sizes = "|".join(str(size) for size in (64, 128, 256, 512) if size > warp)
    tiles = (_TILES.format(sizes=sizes), "cooperative groups of several warps")
    ptx = () if warp == 32 else ((r"\b(?:__)?asm(?:__)?\b", "inline PTX, for warps of 32 threads"),)
    for pattern, what in (*_WORDS, tiles, *ptx, *(_BEHIND_TORCH_WORDS if behind_torch else ())):
        match = re.search(pattern, code.plain)
        if match is not None:
            found.append((match.start(), what))
    if found:
        at, what = min(found)
        return Obstacle(f"it uses {what}", *code.place(at))
    if code.absent is not None:
        header, path, line = code.absent
        for pattern, what in (*_ABSENT, *(() if behind_torch else (_TORCH,))):
            if re.match(pattern, header):
                return Obstacle(f"it uses {what.format(header)}", path, line)
    try:
        rewrite(code)
    except UnreadableError as error:
        return Obstacle(f"it has {error}", error.path, error.line)
    return None
