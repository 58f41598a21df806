"""Whole candidates: files whose import, or whose compilation, is the attack."""

KERNEL = "\n\n@scale.register_kernel('cpu')\ndef kernel(x, factor):\n    return x * 0\n"

IMPORTS = {
    "ends with success": "import os\nos._exit(0)\n",
    "ends by exception": "raise SystemExit(0)\n",
    "is no Python": "def kernel(:\n",
    "is no text": "\xff\xfe\x00",
    "has a null byte": "a = 1\0\n",
    "is nested too deeply": "(" * 100_000 + ")" * 100_000,
    "is one endless expression": "a = " + "-" * 1_000_000 + "1\n",
    "never ends its import": "while True:\n    pass\n",
    "stops itself": "import os\nos.kill(os.getpid(), 19)\n",
    "stops its parent": "import os\nos.kill(os.getppid(), 19)\n" + KERNEL,
    "floods the output": "import os\nwhile True:\n    os.write(1, b'accepted\\n' * 10_000)\n",
    "declares the operator again": (
        "import opsmith, torch\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        "@opsmith.op('judged::scale')\n"
        "def scale(x: Float[Tensor, 'N C'], factor: float) -> Float[Tensor, 'N C']:\n"
        "    return x * 0\n" + KERNEL
    ),
    "replaces opsmith": (
        "import sys, types\nfrom spec import scale\nfor name in list(sys.modules):\n"
        "    if name.startswith('opsmith'):\n        sys.modules[name] = types.ModuleType(name)\n"
        + KERNEL
    ),
    "ends in a thread": (
        "import os, threading, time\nfrom spec import scale\n"
        "threading.Thread(target=lambda: (time.sleep(1), os._exit(0))).start()\n" + KERNEL
    ),
    "raises what cannot be shown": (
        "class Bad(BaseException):\n    def __str__(self):\n        return '\\ud800' * 10\n"
        "raise Bad\n"
    ),
    "names an operator by surrogates": (
        "from spec import scale\nobject.__setattr__(scale, 'name', '\\ud800')\n" + KERNEL
    ),
    "says that it has no dtype": (
        "from spec import scale\n"
        + KERNEL
        + "scale.kernels['cpu'].__dict__['dtypes'] = ('\\ud800',)\n"
    ),
}

_REGISTER = "from spec import scale\nscale.register_kernel('cpu', source='scale.cpp')\n"
_BODY = (
    '#include <opsmith/kernel.h>\n#include "scale.h"\n{more}\n'
    "template <typename T>\n"
    "void scale(const opsmith::Context&, const judged::scale_args<T>& a) {{\n"
    "  for (int64_t n = 0; n < a.N * a.C; ++n) a.out[n] = 0;\n  {inside}\n}}\n"
    "OPSMITH_KERNEL(judged, scale, cpu, float, double)\n"
)

SOURCES = {
    "includes what never ends": _BODY.format(more='#include "/dev/zero"', inside=""),
    "compiles for ever": _BODY.format(
        more="template <int N> struct F { static const long v = F<N-1>::v + F<N-2>::v; };\n"
        "template <int N, int M> struct G { static const long v = G<N-1,M>::v + G<N-1,M+N>::v; };\n"
        "template <int M> struct G<0,M> { static const long v = M; };\n"
        "static long forever = G<60,0>::v;",
        inside="",
    ),
    "does not compile": _BODY.format(more="this is no C++", inside=""),
    "ends when it is loaded": _BODY.format(
        more="#include <unistd.h>\n__attribute__((constructor)) void early() { _exit(0); }",
        inside="",
    ),
    "writes beyond its memory": _BODY.format(
        more="", inside="for (int64_t n = 0; n < 100000; ++n) a.out[n] = 1;"
    ),
    "computes nothing": _BODY.format(more="", inside=""),
}
