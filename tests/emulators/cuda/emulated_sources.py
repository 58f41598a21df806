"""Sources of CUDA as the emulation reads them, and what it makes of them."""

import re
from pathlib import Path

import torch

from emulators.cuda.obstacles import obstacle_of
from emulators.cuda.own_code import read_own_code
from emulators.cuda.rewriting import rewrite
from opsmith.kernels.languages.emulated_cuda import INCLUDE
from opsmith.kernels.toolchain import compilers, units


def own_code(folder, text, headers=(), include_dirs=()):
    """Write kernel.cu, and return what the emulation reads of it."""
    path = folder / "kernel.cu"
    path.write_text(text)
    folders = (INCLUDE, *include_dirs, units.INCLUDE)
    theirs = Path(torch.__file__).parent / "include"
    compiler = compilers.find_compiler("a test").path
    command = (compiler, "-std=c++20", *(f"-I{folder}" for folder in folders))
    command = (*command, "-isystem", str(theirs))
    return read_own_code(command, path, headers, others=(units.INCLUDE,))


def obstacle(folder, text, warp=32):
    """Return what is not emulated in a source without PyTorch's host code."""
    return str(obstacle_of(own_code(folder, text), behind_torch=False, warp=warp))


def rewritten(folder, text, **options):
    """Return the lines of a source as C++, each at its place."""
    return placed(rewrite(own_code(folder, text, **options)), folder / "kernel.cu")


def placed(text, path):
    """Return the lines of a file, each at the place where the directives ``#line`` put it."""
    lines, at, here = {}, 0, False
    for line in text.splitlines():
        directive = re.fullmatch(r'#line (\d+) "(.*)"', line)
        if directive is not None:
            at, here = int(directive[1]), directive[2] == str(path)
            continue
        if here and line.strip():
            lines[at] = f"{lines.get(at, '')}{line}"
        at += 1
    return "".join(f"{lines.get(n, '')}\n" for n in range(1, max(lines, default=0) + 1))
