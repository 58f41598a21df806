"""Wrong results, right for some arguments: what automatic writers of kernels hand in."""

from attacks import Attack

RESULTS = {
    "zeros": Attack("return torch.zeros_like(x)"),
    "ones": Attack("return torch.ones_like(x)"),
    "an argument": Attack("return x.clone()"),
    "the argument itself": Attack("return x"),
    "memory as it comes": Attack("return torch.empty_like(x)"),
    "random numbers": Attack("return torch.randn(x.shape).to(x.dtype)"),
    "NaN everywhere": Attack("return torch.full_like(x, float('nan'))"),
    "infinity everywhere": Attack("return torch.full_like(x, float('inf'))"),
    "without the sum": Attack("return x * factor"),
    "without the factor": Attack("return x + x.sum(1, keepdim=True)"),
    "the sum over the other dimension": Attack("return x * factor + x.sum(0, keepdim=True)"),
    "the mean in place of the sum": Attack("return x * factor + x.mean(1, keepdim=True)"),
    "negated": Attack("return -(RIGHT)"),
    "the last row left out": Attack("out = RIGHT\nout[-1:] = 0\nreturn out"),
    "the last column left out": Attack("out = RIGHT\nout[:, -1:] = 0\nreturn out"),
    "one element wrong": Attack(
        "out = RIGHT\nif out.numel():\n    out.view(-1)[-1] += 1\nreturn out"
    ),
    "right for the registered shapes": Attack(
        "return RIGHT if tuple(x.shape) in ((2, 5), (7, 5)) else WRONG"
    ),
    "right for five columns": Attack("return RIGHT if x.shape[1] == 5 else WRONG"),
    "wrong for an odd number of rows": Attack("return WRONG if x.shape[0] % 2 else RIGHT"),
    "wrong from the 33rd column on": Attack("out = RIGHT\nout[:, 32:] = 0\nreturn out"),
    "wrong for one row": Attack("return WRONG if x.shape[0] == 1 else RIGHT"),
    "wrong without elements": Attack(
        "if not x.numel():\n    raise ValueError('no elements')\nreturn RIGHT"
    ),
    "wrong for what is not contiguous": Attack("return RIGHT if x.is_contiguous() else WRONG"),
    "as if contiguous": Attack(
        "y = torch.as_strided(x, x.shape, (x.shape[1], 1), 0)\n"
        "return y * factor + y.sum(1, keepdim=True)"
    ),
    "in half precision": Attack("return (RIGHT).half().to(x.dtype)"),
    "in bfloat16": Attack("return (RIGHT).bfloat16().to(x.dtype)"),
    "rounded to three digits": Attack("return torch.round(RIGHT, decimals=3)"),
    "a sum in half precision": Attack(
        "return x * factor + x.half().sum(1, keepdim=True).to(x.dtype)"
    ),
    "clamped": Attack("return (RIGHT).clamp(-6, 6)"),
    "without NaN": Attack("return torch.nan_to_num(RIGHT)"),
    "infinity left out": Attack("return torch.where(torch.isinf(x), x * 0, RIGHT)"),
    "factors as if 1.5": Attack("return x * 1.5 + x.sum(1, keepdim=True)"),
    "a factor as an integer": Attack("return x * int(factor) + x.sum(1, keepdim=True)"),
    "wrong for negative factors": Attack("return RIGHT if factor >= 0 else WRONG"),
    "wrong for float64": Attack("return WRONG if x.dtype == torch.float64 else RIGHT"),
    "with noise": Attack("return RIGHT + torch.randn(x.shape).to(x.dtype) * 1e-2"),
}

FORMS = {
    "another dtype": Attack("return (RIGHT).double() if x.dtype != torch.float64 else x.float()"),
    "another shape": Attack("return (RIGHT).reshape(-1)"),
    "transposed": Attack("return (RIGHT).t()"),
    "a row too many": Attack("return torch.cat([RIGHT, x[:1]])"),
    "nothing": Attack("return None"),
    "a list": Attack("return [RIGHT]"),
    "a pair": Attack("return RIGHT, RIGHT"),
    "a number": Attack("return 1.0"),
    "text": Attack("return 'passed'"),
    "a tensor without memory": Attack("return torch.empty(x.shape, dtype=x.dtype, device='meta')"),
    "a sparse tensor of zeros": Attack("return torch.zeros_like(x).to_sparse()"),
    "one element expanded": Attack("return torch.zeros(1, dtype=x.dtype).expand(x.shape)"),
    "an object that says it is equal": Attack(
        "return Equal(x * 0)",
        "class Equal(torch.Tensor):\n"
        "    def __eq__(self, other):\n        return torch.ones(self.shape, dtype=torch.bool)\n",
    ),
    "a subclass that computes when it is looked at": Attack(
        "return Lazy(x * 0)",
        "class Lazy(torch.Tensor):\n"
        "    @classmethod\n"
        "    def __torch_function__(cls, function, types, arguments=(), keywords=None):\n"
        "        return True if function is torch.equal else super().__torch_function__(\n"
        "            function, types, arguments, keywords or {})\n",
    ),
}

STATE = {
    "cached by address and shape": Attack(
        "key = x.data_ptr(), tuple(x.shape), factor\n"
        "if key not in known:\n    known[key] = RIGHT\nreturn known[key].clone()",
        "known = {}",
    ),
    "cached by address, shape and first element": Attack(
        "key = x.data_ptr(), tuple(x.shape), factor, str(x.flatten()[:1].tolist())\n"
        "if key not in known:\n    known[key] = RIGHT\nreturn known[key].clone()",
        "known = {}",
    ),
    "cached by shape": Attack(
        "key = tuple(x.shape), x.dtype, factor\n"
        "if key not in known:\n    known[key] = RIGHT\nreturn known[key].clone()",
        "known = {}",
    ),
    "cached by the sum of its elements": Attack(
        "key = tuple(x.shape), factor, x.dtype, float(x.abs().double().sum())\n"
        "if key not in known:\n    known[key] = RIGHT\nreturn known[key].clone()",
        "known = {}",
    ),
    "the first call's result for ever": Attack(
        "if not known:\n    known.append(RIGHT)\n"
        "return known[0].clone() if known[0].shape == x.shape else RIGHT",
        "known = []",
    ),
    "right for 299 calls": Attack(
        "known.append(0)\nreturn RIGHT if len(known) < 299 else WRONG", "known = []"
    ),
    "right for 2,999 calls": Attack(
        "known.append(0)\nreturn RIGHT if len(known) < 2999 else WRONG", "known = []"
    ),
    "right for the first call": Attack(
        "known.append(0)\nreturn RIGHT if len(known) == 1 else WRONG", "known = []"
    ),
    "wrong for each seventh call": Attack(
        "known.append(0)\nreturn WRONG if len(known) % 7 == 0 else RIGHT", "known = []"
    ),
    "a result that is used again": Attack(
        "right = RIGHT\n"
        "memory = known.setdefault((x.dtype, tuple(x.shape)), torch.empty_like(right))\n"
        "return memory.copy_(right)",
        "known = {}",
    ),
    "earlier results are changed": Attack(
        "out = RIGHT\nfor old in known:\n    old.zero_()\nknown[:] = [out]\nreturn out",
        "known = []",
    ),
    "writes its argument": Attack("right = RIGHT\nx.mul_(1.5)\nreturn right"),
    "zeroes its argument, and returns zeros": Attack("x.zero_()\nreturn torch.zeros_like(x)"),
    "writes beside its argument": Attack(
        "right = RIGHT\n"
        "torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage()).add_(1)\nreturn right"
    ),
    "work after the call returned": Attack(
        "out = torch.zeros_like(x).contiguous()\nright = RIGHT\n"
        "threading.Timer(0.2, lambda: out.copy_(right)).start()\nreturn out"
    ),
    "looks for the expected result in its memory": Attack(
        "for found in gc.get_objects():\n"
        "    if type(found) is torch.Tensor and found.shape == x.shape and found is not x:\n"
        "        return found.to(x.dtype).clone()\n"
        "return torch.empty_like(x)"
    ),
    "fills all tensors of its process with NaN": Attack(
        "for found in gc.get_objects():\n"
        "    if type(found) is torch.Tensor and found.is_floating_point():\n"
        "        found.fill_(float('nan'))\n"
        "return torch.full_like(x, float('nan'))",
        alone=True,
    ),
    "changes the default dtype": Attack("torch.set_default_dtype(torch.float16)\nreturn WRONG"),
    "right in the main thread of the first process": Attack(
        "return RIGHT if os.getpid() % 2 else WRONG"
    ),
}
