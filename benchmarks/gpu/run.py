"""What `make gpu` does, on a machine with a GPU: build, check, sanitise and measure the gallery.

Installs nothing and needs no network; what is missing is said first. The steps, each of which may
be asked for alone (``--only``):

check     `opsmith check --device cuda`: values, gradients, determinism, which kernel ran, refusals;
          under ONNX Runtime's CUDA provider too, where onnxruntime-gpu is installed
values    an index out of range, on a stream of its own: the next call says so, and the one after
          that is right
sanitize  compute-sanitizer's memcheck, racecheck, initcheck and synccheck on every case
bench     bev_pool_v2 at three sizes against the published algorithm and the bandwidth of a copy,
          and deform_conv2d against torchvision's where that is installed
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

OPERATORS = ("identity_conv", "my_add", "bev_pool_v2", "deform_conv2d")
CHECKS = (
    "build,dispatch,reference,layouts,fake,mutation,gradient,determinism,validation,aliasing,"
    "onnxruntime"
)
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
MODULES = ("torch", "jaxtyping", "numpy", "jinja2", "typer", "rich", "filelock", "hypothesis")


def missing() -> list[str]:
    """What is not here that this needs, each with what to do."""
    absent = [name for name in MODULES if importlib.util.find_spec(name) is None]
    found = [f"Python has no {name}: pip install {name}" for name in absent]
    if "torch" not in absent:
        import torch

        if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 10):
            found.append(f"PyTorch is {torch.__version__}: 2.10 or later is needed")
        if not torch.cuda.is_available():
            built = f"PyTorch {torch.__version__}" + (
                "" if torch.version.cuda else ", without CUDA"
            )
            found.append(f"no GPU is to be seen ({built}): run this where nvidia-smi lists one")
    if not absent:
        from opsmith.errors import MissingDependencyError
        from opsmith.kernels.toolchain import compilers as toolchain
        from opsmith.kernels.toolchain.nvcc import usable_nvcc

        for ask in (
            lambda: toolchain.find_compiler("make gpu"),
            lambda: usable_nvcc("make gpu"),
            lambda: toolchain.executable("cmake", "make gpu"),
            lambda: toolchain.executable("ninja", "make gpu"),
        ):
            try:
                ask()
            except MissingDependencyError as error:
                found.append(str(error).removeprefix("make gpu: "))
    return found


def check() -> bool:
    """Check the gallery's kernels on the device."""
    files = [str(ROOT / "gallery" / name / f"{name}.py") for name in OPERATORS]
    words = ["check", *files, "--device", "cuda", "--check", CHECKS]
    run = subprocess.run([sys.executable, "-m", "opsmith", *words], cwd=ROOT)
    return run.returncode == 0


def values() -> bool:
    """Give bev_pool_v2 an index out of range, and look at what the next two calls do."""
    import torch

    from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2
    from gallery.bev_pool_v2.inputs import cases

    right = next(case for case in cases(torch.float32, 0) if case["ranks_depth"].numel())
    there = {k: v.cuda() if isinstance(v, torch.Tensor) else v for k, v in right.items()}
    wrong = {**there, "ranks_depth": there["ranks_depth"].clone()}
    wrong["ranks_depth"][-1] = 1 << 30
    torch.cuda.synchronize()
    said = ""
    with torch.cuda.stream(torch.cuda.Stream()):
        try:
            bev_pool_v2(**wrong)
            torch.cuda.synchronize()
            bev_pool_v2(**there)
        except RuntimeError as error:
            said = str(error)
        after = bev_pool_v2(**there).cpu()
    print(said or "nobody said anything")
    expected = "bev::bev_pool_v2: argument 'ranks_depth' has value 1073741824 at "
    return said.startswith(expected) and torch.allclose(after, bev_pool_v2(**right), atol=1e-4)


def sanitize() -> bool:
    """Run every case under each tool of compute-sanitizer."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(program).exists():
        print("compute-sanitizer is not here: it comes with the CUDA toolkit")
        return False
    good = True
    # With the caching allocator every tensor would lie in one large piece of memory.
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    for tool in TOOLS:
        command = [program, "--tool", tool, "--error-exitcode", "9", "--target-processes", "all"]
        cases = [sys.executable, str(Path(__file__).with_name("sanitized.py"))]
        run = subprocess.run(
            [*command, *cases],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        lines = [line for line in run.stdout.splitlines() if line.strip()]
        print(f"{tool:10}  {'nothing found' if run.returncode == 0 else 'FAILED'}  {lines[-1:]}")
        if run.returncode != 0:
            print("\n".join(lines[-60:]))
            good = False
    return good


def milliseconds(call: Callable[[], object], repeats: int = 50) -> float:
    """The median time of a call on the device, which finds nothing in its cache."""
    import torch

    flushed = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        # It also keeps the device busy until the call is queued.
        flushed.zero_()
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def copy_bandwidth() -> float:
    """Bytes read and written in a second by a copy of 1 GiB."""
    import torch

    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    to = torch.empty_like(source)
    return 2 * source.numel() / (milliseconds(lambda: to.copy_(source), 20) / 1e3)


def sizes() -> dict[str, dict[str, Any]]:
    """The three sizes of bev_pool_v2, as arguments of `camera_case`."""
    from gallery.bev_pool_v2.geometry import Grid

    voxels = Grid((-40.0, -40.0, -1.0), (0.4, 0.4, 0.4), (200, 200, 16))
    cells = Grid((-51.2, -51.2, -5.0), (0.512, 0.512, 8.0), (200, 200, 1))
    return {
        "16x44 D59 C64 -> 1x128x128": {},
        "24x44 D88 C32 -> 16x200x200": {
            "feature_size": (24, 44),
            "bins": 88,
            "channels": 32,
            "grid": voxels,
        },
        "32x88 D160 C128 -> 1x200x200": {
            "feature_size": (32, 88),
            "bins": 160,
            "channels": 128,
            "grid": cells,
        },
    }


def moved(case: dict[str, Any], out: Any, *, backward: bool) -> int:
    """Bytes that must move at least: each index, point's weight, pixel and cell once."""
    size = case["feat"].element_size()
    indices = sum(
        case[name].numel() * 4
        for name in (
            "ranks_depth",
            "ranks_feat",
            "ranks_bev",
            "interval_starts",
            "interval_lengths",
        )
    )
    forward = indices + size * (case["ranks_depth"].numel() + case["feat"].numel() + out.numel())
    if not backward:
        return forward
    return forward + size * (case["depth"].numel() + case["feat"].numel())


def bench_pool() -> bool:
    """Measure bev_pool_v2; false where the published algorithm gives something else."""
    import published
    import torch

    from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2, bev_pool_v2_backward
    from gallery.bev_pool_v2.inputs import camera_case

    bandwidth = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}: a copy moves {bandwidth / 1e12:.2f} TB/s")
    good = True
    for name, arguments in sizes().items():
        for dtype in (torch.float32, torch.float16):
            case = {
                key: value.cuda() if isinstance(value, torch.Tensor) else value
                for key, value in camera_case(dtype, 0, **arguments).items()
            }
            out = bev_pool_v2(**case)
            grad = torch.randn_like(out)
            rest = {key: value for key, value in case.items() if key != "bev_size"}
            ours = bev_pool_v2_backward(grad, **rest)
            theirs = published.backward(case, grad)
            pairs = [(out, published.forward(case)), *zip(ours, theirs, strict=True)]
            same = all(
                torch.allclose(one.float(), other, rtol=2e-2, atol=1e-2) for one, other in pairs
            )
            good &= same
            passes = {
                "forward": (
                    partial(bev_pool_v2, **case),
                    partial(published.forward, case),
                ),
                "backward": (
                    partial(bev_pool_v2_backward, grad, **rest),
                    partial(published.backward, case, grad),
                ),
            }
            for what, (call, other) in passes.items():
                spent, plain = milliseconds(call), milliseconds(other)
                share = moved(case, out, backward=what == "backward") / (spent / 1e3) / bandwidth
                print(
                    f"{name:30} {str(dtype).removeprefix('torch.'):8} {what:8} {spent:8.3f} ms  "
                    f"{share:5.0%} of a copy's bandwidth  {plain / spent:5.2f} x published"
                    f"{'' if same else '  RESULTS DIFFER'}"
                )
    return good


def forward(function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Call without gradients."""
    import torch

    with torch.no_grad():
        return function(**arguments)


def forward_and_backward(function: Callable[..., Any], arguments: dict[str, Any]) -> None:
    """Call, and take the gradient of every tensor."""
    import torch

    leaves = [v.requires_grad_() for v in arguments.values() if isinstance(v, torch.Tensor)]
    torch.autograd.grad(function(**arguments).sum(), leaves)


def bench_deform() -> bool:
    """Measure deform_conv2d."""
    import torch

    from gallery.deform_conv2d.inputs import case
    from gallery.deform_conv2d.module import deform_conv2d

    try:
        from torchvision.ops import deform_conv2d as theirs
    except Exception:
        theirs = None
        print("torchvision is not here: deform_conv2d is measured alone")
    for shape in (
        {"channels": 64, "size": (56, 56)},
        {"batch": 2, "channels": 128, "size": (64, 64), "outputs": 128},
        {"channels": 256, "size": (28, 28), "outputs": 256},
    ):
        arguments = {
            name: value.cuda() if isinstance(value, torch.Tensor) else value
            for name, value in case(torch.float32, 0, **shape).items()
        }
        for what, run in (("forward", forward), ("and backward", forward_and_backward)):
            spent = milliseconds(partial(run, deform_conv2d, arguments))
            ratio = ""
            if theirs is not None:
                other = milliseconds(partial(run, theirs, arguments))
                ratio = f"  {other / spent:5.2f} x torchvision"
            print(f"deform_conv2d {shape} {what:12} {spent:8.3f} ms{ratio}")
    return True


STEPS: dict[str, Callable[[], bool]] = {
    "check": check,
    "values": values,
    "sanitize": sanitize,
    "bench": lambda: bench_pool() & bench_deform(),
}


def main() -> int:
    """Run the steps; 1 where one fails, 2 where something is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=STEPS, default=list(STEPS))
    options = parser.parse_args()
    absent = missing()
    if absent:
        print("make gpu cannot run here:", *absent, sep="\n  ", file=sys.stderr)
        return 2
    failed = []
    for name in options.only:
        print(f"\n{name}", flush=True)
        if not STEPS[name]():
            failed.append(name)
    print(f"\n{'failed: ' + ', '.join(failed) if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
