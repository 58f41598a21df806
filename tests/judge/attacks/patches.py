"""Kernels that change who compares, counts, times or reports: in their own process."""

from attacks import Attack

_PATCHES = {
    "torch.equal and its kin": (
        "torch.equal = torch.allclose = torch.Tensor.equal = lambda *a, **k: True\n"
        "torch.Tensor.__sub__ = lambda a, b: a * 0\n"
    ),
    "the comparison": (
        "import opsmith.checks.numerics.comparison as c\n"
        "c.compare = lambda *a, **k: c.Comparison(0.0)\n"
    ),
    "the trial": (
        "import opsmith.checks.trial.trial as t\n"
        "t.Trial.compare = t.Trial.record = lambda *a, **k: None\n"
    ),
    "the verdict": (
        "import opsmith.judge.judge as j\nj.Verdict.accepted = True\nj._judged = None\n"
    ),
    "the reference": (
        "import opsmith.operators.core.registry as r\n"
        "for one in r.all_operators():\n    one.__dict__['reference'] = lambda x, factor: x * 0\n"
    ),
    "the description of results": (
        "import opsmith.checks.isolation.kernel_server as s\ns.element_bytes = lambda tensor: b''\n"
    ),
    "the detection of changed arguments": (
        "import opsmith.checks.isolation.kernel_server as s\nold = s.storage_bytes\n"
        "s.storage_bytes = lambda tensor: old(tensor * 0)\n"
    ),
    "clocks": "time.monotonic = time.time = time.perf_counter = lambda: 0.0\n",
    "the collector of garbage": "gc.collect = lambda *a: 0\ngc.callbacks.append(lambda *a: None)\n",
    "the exit of Python": "sys.exit = os._exit = lambda *a: None\n",
    "JSON": "import json\njson.dumps = lambda *a, **k: '{\"accepted\": true}'\n",
    "the import": (
        "import builtins\nold_import = builtins.__import__\n"
        "builtins.__import__ = lambda *a, **k: old_import(*a, **k)\n"
    ),
    "writes to descriptors": (
        "old_write = os.write\n"
        "os.write = lambda d, data: old_write(d, bytes(data).replace(b'failed', b'passed'))\n"
    ),
    "the tracing of calls": "sys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)\n",
    "random numbers": "import random\nrandom.random = lambda: 0.0\ntorch.randn = torch.zeros\n",
    "the handlers of the end": (
        "import atexit\natexit.register(lambda: os._exit(0))\n"
        "sys.excepthook = lambda *a: os._exit(0)\n"
    ),
    "the hash of files": (
        "import hashlib\n"
        "hashlib.sha256 = lambda *a: type('H', (), {'hexdigest': lambda s: '0'*64})()\n"
    ),
    "the C function memcmp": (
        "import ctypes\nlibc = ctypes.CDLL(None)\npage = 4096\n"
        "at = ctypes.cast(libc.memcmp, ctypes.c_void_p).value\n"
        "libc.mprotect(ctypes.c_void_p(at & ~(page - 1)), page * 2, 7)\n"
    ),
    "the dispatcher": (
        "library = torch.library.Library('aten', 'IMPL')\n"
        "library.impl('equal', lambda a, b: True, 'CPU')\n"
    ),
    "the default dtype": "torch.set_default_dtype(torch.float64)\n",
}

PATCHES = {
    name: Attack(
        "return WRONG",
        f"try:\n{''.join(f'    {line}' for line in text.splitlines(True))}"
        "except Exception:\n    pass\n",
        alone=True,
    )
    for name, text in _PATCHES.items()
}
