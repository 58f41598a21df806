"""Times torchvision's deformable convolution, in an environment of its own.

Started by `deform_conv2d.py`. Each line of the input names a file of arguments, a pass and how many
calls to time; each line of the output is the fastest call's seconds. The results of the first call
are left beside the arguments.
"""

import json
import sys
import time

import torch
from torchvision.ops import deform_conv2d


def prepared(path, passes):
    saved = torch.load(path)
    names = ("input", "offset", "weight", "bias", "stride", "padding", "dilation", "mask")
    arguments = {name: saved[name] for name in names}
    if passes == "forward":

        def forward():
            with torch.no_grad():
                return (deform_conv2d(**arguments),)

        return forward
    leaves = [arguments[name].requires_grad_() for name in ("input", "offset", "weight", "bias")]
    leaves.append(arguments["mask"].requires_grad_())
    out = deform_conv2d(**arguments)
    return lambda: torch.autograd.grad(out, leaves, saved["grad"], retain_graph=True)


def main():
    torch.set_num_threads(int(sys.argv[1]))
    ready = {}
    for line in sys.stdin:
        path, passes, calls = json.loads(line)
        if (path, passes) not in ready:
            call = ready[path, passes] = prepared(path, passes)
            torch.save([result.detach() for result in call()], f"{path}.{passes}")
        call = ready[path, passes]
        spent = []
        call()
        for _ in range(calls):
            started = time.perf_counter()
            call()
            spent.append(time.perf_counter() - started)
        print(json.dumps(min(spent)), flush=True)


main()
