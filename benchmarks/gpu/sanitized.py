"""Run the cases of a gallery's operators on the device, forward and backward.

compute-sanitizer runs this:  compute-sanitizer --tool racecheck python benchmarks/gpu/sanitized.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

import opsmith
from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2
from gallery.bev_pool_v2.inputs import cases as points
from gallery.deform_conv2d.deform_conv2d import deform_conv2d
from gallery.deform_conv2d.inputs import cases as images
from gallery.identity_conv.identity_conv import identity_conv
from gallery.my_add.my_add import my_add


def on_device(value: object) -> object:
    return value.cuda() if isinstance(value, torch.Tensor) else value


def run(operator: opsmith.Operator, case: dict[str, object]) -> None:
    leaves = {
        name: value.requires_grad_()
        for name, value in ((name, on_device(value)) for name, value in case.items())
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    rest = {name: on_device(value) for name, value in case.items() if name not in leaves}
    out = operator(**leaves, **rest)
    if leaves and out.requires_grad:
        torch.autograd.grad(out, list(leaves.values()), torch.ones_like(out), allow_unused=True)
    torch.cuda.synchronize()


count = 0
for dtype in (torch.float32, torch.float16):
    for operator, all_cases in ((bev_pool_v2, points), (deform_conv2d, images)):
        for case in all_cases(dtype, 0):
            run(operator, case)
            count += 1
    for size in (0, 1, 255, 257, 1000):
        x = torch.rand(size).to(dtype)
        run(my_add, {"a": x, "b": x.clone()})
        run(identity_conv, {"x": torch.rand(size, 3, 2, 2).to(dtype)})
        count += 2
print(f"{count} cases ran on {torch.cuda.get_device_name()}")
