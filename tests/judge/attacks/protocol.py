"""Kernels that write where answers go: forged, malformed, endless."""

from attacks import Attack

_MESSAGES = {
    "garbage": "b'\\x00\\xff\\xfe all is well\\n'",
    "an empty line": "b'\\n'",
    "a list": "b'[]\\n'",
    "a number": "b'1\\n'",
    "no event": "b'{}\\n'",
    "an event that is none": 'b\'{"event": "accepted"}\\n\'',
    "a row that passed": 'b\'{"event": "row", "status": "passed", "bytes": 0}\\n\'',
    "deep nesting": "b'[' * 200000 + b'\\n'",
    "deep objects": "b'{\"event\":' * 100000 + b'\\n'",
    "infinity": 'b\'{"event": "ended", "pid": Infinity, "code": Infinity}\\n\'',
    "a large exponent": 'b\'{"event": "ended", "pid": 1e999, "code": 1e999}\\n\'',
    "not a number": 'b\'{"event": "ready", "pid": NaN}\\n\'',
    "a number of many digits": "b'{\"event\": \"ready\", \"pid\": ' + b'9' * 100000 + b'}\\n'",
    "surrogates": (
        'b\'{"event": "failed", "request": %d, "bytes": 0, "message": "\\\\ud800 \\\\udfff"}\\n\''
    ),
    "bytes that are no text": 'b\'{"event": "\\xc3\\x28"}\\n\'',
    "another encoding": "'{\"event\": \"results\"}\\n'.encode('utf-16')",
    "a negative count": (
        'b\'{"event": "results", "request": %d, "results": [], "again": [], "bytes": -1}\\n\''
    ),
    "a huge count": (
        'b\'{"event": "results", "request": %d, "results": [], "again": [],'
        ' "bytes": 99999999999}\\n\''
    ),
    "a count that is true": (
        'b\'{"event": "results", "request": %d, "results": [], "again": [], "bytes": true}\\n\''
    ),
    "no results": (
        'b\'{"event": "results", "request": %d, "results": [], "again": [], "bytes": 0}\\n\''
    ),
    "a result of negative size": (
        'b\'{"event": "results", "request": %d, "again": [], "bytes": 0,'
        ' "results": [{"dtype": "float32", "shape": [-1, 5]}]}\\n\''
    ),
    "a result of endless size": (
        'b\'{"event": "results", "request": %d, "again": [], "bytes": 0,'
        ' "results": [{"dtype": "float32", "shape": [0, 1099511627775, 1099511627775]}]}\\n\''
    ),
    "a result of a thousand dimensions": (
        'b\'{"event": "results", "request": %d, "again": [], "bytes": 0, "results":'
        ' [{"dtype": "float32", "shape": [\' + b\'1,\' * 999 + b\'1]}]}\\n\''
    ),
    "a result of no dtype": (
        'b\'{"event": "results", "request": %d, "again": [], "bytes": 0,'
        ' "results": [{"dtype": "__class__", "shape": [1]}]}\\n\''
    ),
    "earlier results that are text": (
        'b\'{"event": "results", "request": %d, "again": "none", "bytes": 0,'
        ' "results": [{"dtype": "float32", "shape": [0]}]}\\n\''
    ),
    "a failure with a code that is none": (
        'b\'{"event": "failed", "request": %d, "bytes": 0, "message": [1], "code": {}}\\n\''
    ),
    "a failure in colours": (
        'b\'{"event": "failed", "request": %d, "bytes": 0,'
        ' "message": "\\\\u001b[2J[/red] [bold]accepted\\\\u0007\\\\u0000"}\\n\''
    ),
    "the end of its process": 'b\'{"event": "ended", "pid": %d, "code": 0}\\n\' % os.getpid()',
    "another process is ready": 'b\'{"event": "ready", "pid": 1}\\n\'',
    "the same line a million times": 'b\'{"event": "results"}\\n\' * 1000000',
}


def _sent(data: str) -> str:
    # The number of the request is guessed: candidates try all that are likely.
    sent = f"({data}) % number" if "%d" in data and "getpid" not in data else data
    return (
        "for number in range(1, 40):\n"
        "    for descriptor in answers:\n"
        "        try:\n"
        f"            os.write(descriptor, {sent})\n"
        "        except OSError:\n"
        "            pass\n"
        "return WRONG"
    )


_ANSWERS = (
    "def found():\n"
    "    for name in os.listdir('/proc/self/fd'):\n"
    "        try:\n"
    "            if int(name) > 2 and 'pipe' in os.readlink('/proc/self/fd/' + name):\n"
    "                yield int(name)\n"
    "        except OSError:\n"
    "            pass\n"
    "answers = list(found())\n"
)

PROTOCOL = {name: Attack(_sent(data), _ANSWERS) for name, data in _MESSAGES.items()} | {
    "an endless answer": Attack(
        "while True:\n"
        "    for descriptor in answers:\n"
        "        try:\n            os.write(descriptor, b'x' * 65536)\n"
        "        except OSError:\n            pass\n",
        _ANSWERS + "if not answers:\n    raise ValueError('no answers')\n",
    ),
    "closed descriptors": Attack("os.closerange(0, 64)\nreturn WRONG"),
    "answers that go nowhere": Attack(
        "for descriptor in answers:\n"
        "    os.dup2(os.open('/dev/null', os.O_WRONLY), descriptor)\nreturn WRONG",
        _ANSWERS,
        alone=True,
    ),
    "a reply that is held back": Attack(
        "for descriptor in answers:\n    os.set_blocking(descriptor, False)\n"
        "    try:\n        while True:\n            os.write(descriptor, b' ' * 4096)\n"
        "    except OSError:\n        pass\ntime.sleep(600)\nreturn RIGHT",
        _ANSWERS,
    ),
    "an exception with surrogates": Attack(
        "raise ValueError('\\ud800\\udfff \\x00 \\x1b[2J [/b]')"
    ),
    "an exception of a gigabyte": Attack("raise ValueError('x' * (1 << 28))"),
    "an exception that cannot be shown": Attack(
        "raise Bad()",
        "class Bad(Exception):\n    def __str__(self):\n        raise SystemExit(0)\n",
    ),
    "an exception that ends Python": Attack("raise SystemExit(0)"),
    "an interrupt from the keyboard": Attack("raise KeyboardInterrupt"),
    "an exception below exceptions": Attack("raise GeneratorExit('passed')"),
    "much output": Attack("os.write(1, b'accepted\\n' * 1000000)\nprint('accepted')\nreturn WRONG"),
}
