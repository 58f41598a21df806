"""Right kernels of unusual kinds, which must be accepted."""

RIGHT_ONES = {
    "plain": ("return x * factor + x.sum(1, keepdim=True)", ""),
    "prints": ("print('hello')\nreturn RIGHT", ""),
    "prints at its import": ("return RIGHT", "print('hello ' * 1000)"),
    "warns": ("import warnings\nwarnings.warn('slow')\nreturn RIGHT", ""),
    "logs": ("import logging\nlogging.getLogger('k').error('a \\ud800 line')\nreturn RIGHT", ""),
    "reads the environment": ("return RIGHT if os.environ.get('PATH') else WRONG", ""),
    "a temporary file": (
        "import tempfile\nwith tempfile.TemporaryFile() as file:\n    file.write(b'1')\n"
        "return RIGHT",
        "",
    ),
    "a file in its folder": ("open('note.txt', 'a').write('1')\nreturn RIGHT", ""),
    "a file at home": ("open(os.path.expanduser('~/.note'), 'a').write('1')\nreturn RIGHT", ""),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(2) as pool:\n    return pool.submit(lambda: RIGHT).result()",
        "",
    ),
    "a thread that stays": (
        "return RIGHT",
        "threading.Thread(target=time.sleep, args=(900,), daemon=True).start()",
    ),
    "a program that it starts": (
        "import subprocess\nassert subprocess.run(['true']).returncode == 0\nreturn RIGHT",
        "",
    ),
    "a pipe": ("r, w = os.pipe()\nos.close(r)\nos.close(w)\nreturn RIGHT", ""),
    "NumPy": (
        "import numpy\nif x.dtype == torch.bfloat16:\n    return RIGHT\n"
        "return torch.from_numpy(numpy.asarray(RIGHT))",
        "",
    ),
    "by einsum": ("return x * factor + torch.einsum('nc->n', x.double()).to(x.dtype)[:, None]", ""),
    "in double precision": (
        "y = x.double()\nreturn (y * factor + y.sum(1, keepdim=True)).to(x.dtype)",
        "",
    ),
    "by rows": (
        "rows = [row * factor + row.sum() for row in x]\n"
        "return torch.stack(rows) if rows else x.clone()",
        "",
    ),
    "a matrix product": (
        "y = x.double()\n"
        "ones = torch.ones(x.shape[1], 1, dtype=torch.float64)\n"
        "return (y * factor + (y * 1).sum(1, keepdim=True) + 0 * ones.sum()).to(x.dtype)",
        "",
    ),
    "into memory that it allocates": (
        "out = torch.empty(x.shape, dtype=x.dtype)\nout.copy_(RIGHT)\nreturn out",
        "",
    ),
    "a result that is not contiguous": ("return (RIGHT).t().contiguous().t()", ""),
    "a cache by value": (
        "own = x.clone(memory_format=torch.contiguous_format)\n"
        "data = own.view(torch.uint8).numpy().tobytes() if x.numel() else b''\n"
        "key = data, factor, x.dtype, tuple(x.shape)\n"
        "if len(known) > 50:\n    known.clear()\n"
        "return known.setdefault(key, RIGHT).clone()",
        "known = {}",
    ),
    "a counter": ("known.append(0)\nreturn RIGHT", "known = []"),
    "a lock": ("with lock:\n    return RIGHT", "lock = threading.Lock()"),
    "without gradients": ("with torch.no_grad():\n    return RIGHT", ""),
    "a closure": (
        "return made(2)(x, factor)",
        (
            "def made(n):\n    def inner(x, factor):\n"
            "        return x * factor + x.sum(1, keepdim=True)\n    return inner\n"
        ),
    ),
    "looks at the clock": ("time.perf_counter()\nreturn RIGHT", ""),
    "collects garbage": ("gc.collect(0)\nreturn RIGHT", ""),
    "a name that looks like a check": (
        "return check_opsmith(x, factor)",
        ("def check_opsmith(x, factor):\n    return x * factor + x.sum(1, keepdim=True)\n"),
    ),
}
