"""Sources of CUDA as the emulation reads them, and what it makes of them."""

import re

from opsmith.kernels.cuda_emulator.language import INCLUDE
from opsmith.kernels.cuda_emulator.obstacles import obstacle_of
from opsmith.kernels.cuda_emulator.own_code import read_own_code
from opsmith.kernels.cuda_emulator.rewriting import rewrite
from opsmith.kernels.toolchain.units import Generated, Unit


def own_code(folder, text, headers=(), include_dirs=()):
    """Write kernel.cu, and return what the emulation reads of it."""
    path = folder / "kernel.cu"
    path.write_text(text)
    unit = Unit("kernel", path, Generated.of(None), include_dirs=(INCLUDE, *include_dirs))
    return read_own_code(unit, headers, "a test")


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
