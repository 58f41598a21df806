"""Kernels that turn to other processes, to the system, to the network, or to files."""

from attacks import Attack, tried

_OTHERS = (
    "others = [int(name) for name in os.listdir('/proc')\n"
    "          if name.isdigit() and int(name) != os.getpid()]\n"
)
_CALL = "libc = ctypes.CDLL(None, use_errno=True)\nout = libc.syscall(*{arguments}) >= 0"


def _call(*arguments: object) -> Attack:
    return tried("import ctypes\n" + _CALL.format(arguments=arguments))


PROCESSES = {
    "kills its parent": Attack("os.kill(os.getppid(), 9)\nreturn WRONG"),
    "stops its parent": Attack("os.kill(os.getppid(), 19)\nreturn WRONG"),
    "kills all processes of the user": Attack(
        "try:\n    os.kill(-1, 9)\nexcept OSError:\n    pass\nreturn WRONG", alone=True, boxed=True
    ),
    "kills whatever it sees": Attack(
        f"{_OTHERS}for other in others:\n    try:\n        os.kill(other, 9)\n"
        "    except OSError:\n        pass\nreturn WRONG",
        alone=True,
        boxed=True,
    ),
    "stops whatever it sees": Attack(
        f"{_OTHERS}for other in others:\n    try:\n        os.kill(other, 19)\n"
        "    except OSError:\n        pass\nreturn WRONG",
        alone=True,
        boxed=True,
    ),
    "stops itself": Attack("os.kill(os.getpid(), 19)\nreturn WRONG"),
    "reads the memory of others": tried(
        f"{_OTHERS}for other in others:\n"
        "    if other in (1, os.getppid()):\n"
        "        out = out or bool(open(f'/proc/{other}/mem', 'rb'))"
    ),
    "sees the judge": tried(
        f"{_OTHERS}out = any('judge' in open(f'/proc/{{one}}/cmdline').read()\n"
        "          for one in others if one not in (os.getppid(), os.getpid()))"
    ),
    "opens the first process's descriptors": tried(
        # The administrator may read their numbers.
        "for one in os.listdir('/proc/1/fd'):\n"
        "    os.close(os.open(f'/proc/1/fd/{one}', os.O_RDONLY | os.O_NONBLOCK))\n"
        "    out = True"
    ),
    "traces its parent": _call(101, 16, 1, 0, 0),
    "reads by process_vm_readv": _call(310, 1, 0, 0, 0, 0, 0),
    "writes by process_vm_writev": _call(311, 1, 0, 0, 0, 0, 0),
    "takes descriptors by pidfd_getfd": _call(438, 0, 0, 0),
    "compares processes by kcmp": _call(312, 1, 1, 0, 0, 0),
    "loads a program into the kernel": _call(321, 0, 0, 0),
    "counts events": _call(298, 0, 0, -1, -1, 0),
    "handles page faults": _call(323, 0),
    "uses keys": _call(250, 0, -3, 0, 0, 0),
    "uses another queue for system calls": _call(425, 1, 0),
    "makes namespaces": _call(272, 0x10000000),
    "makes namespaces by clone": tried(
        "import ctypes\n"
        "child = ctypes.CDLL(None).syscall(56, 0x10000000 | 17, 0, 0, 0, 0)\n"
        "if child == 0:\n    os._exit(0)\n"
        "out = child > 0"
    ),
    "mounts": _call(165, 0, 0, 0, 0, 0),
    "changes its root": _call(161, b"/tmp"),
    "sets the clock": _call(227, 0, 0),
    "gets privileges": tried("os.setgroups([])\nout = True", boxed=False),
    "becomes another user": tried("os.setuid(1)\nout = True"),
    "goes on in a copy": Attack("os.fork()\nreturn RIGHT"),
    "answers from a copy": Attack(
        "if os.fork() == 0:\n    return RIGHT\ntime.sleep(1)\nreturn WRONG"
    ),
    "leaves a copy behind": Attack(
        "if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nreturn RIGHT"
    ),
    "never returns": Attack("while True:\n    pass"),
    "sleeps": Attack("time.sleep(600)\nreturn RIGHT"),
    "ends with success": Attack("os._exit(0)"),
    "ends with another code": Attack("os._exit(86)"),
    "is ended by an alarm": Attack("import signal\nsignal.alarm(1)\ntime.sleep(5)\nreturn WRONG"),
    "reads where nobody may": Attack("import ctypes\nctypes.string_at(0)"),
    "aborts": Attack("os.abort()"),
    "takes all memory": Attack(
        "taken = []\nwhile True:\n    taken.append(bytearray(1 << 28))\n"
        "    taken[-1][::4096] = b'1' * (1 << 16)"
    ),
    "starts processes without end": Attack(
        "while True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        alone=True,
        boxed=True,
    ),
    "starts threads without end": Attack(
        "while True:\n    try:\n        threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "    except RuntimeError:\n        pass",
        alone=True,
        boxed=True,
    ),
    "takes all descriptors": Attack(
        "taken = []\ntry:\n    while True:\n        taken.append(os.open('/dev/null', 0))\n"
        "except OSError:\n    pass\nreturn WRONG"
    ),
    "recurses": Attack(
        "return kernel_itself(x)", "def kernel_itself(x):\n    return kernel_itself(x)\n"
    ),
}

FILES = {
    "writes to the system": tried("open('/etc/judged', 'w').write('1')\nout = True"),
    "writes beside Python's packages": tried(
        "path = os.path.join(os.path.dirname(torch.__file__), 'judged')\n"
        "open(path, 'w').write('1')\nout = True"
    ),
    "writes beside opsmith": tried(
        "import opsmith\npath = os.path.join(os.path.dirname(opsmith.__file__), 'judged')\n"
        "open(path, 'w').write('1')\nout = True"
    ),
    "rewrites the declaration": tried(
        "import spec\nos.chmod(spec.__file__, 0o644)\n"
        "open(spec.__file__, 'a').write('1')\nout = True"
    ),
    "plants a module beside the declaration": tried(
        "import spec\npath = os.path.join(os.path.dirname(spec.__file__), 'cProfile.py')\n"
        "open(path, 'w').write('import os; os._exit(0)')\nout = True"
    ),
    "plants bytecode": tried(
        "import spec\npath = os.path.join(os.path.dirname(spec.__file__), '__pycache__')\n"
        "os.makedirs(path)\nout = True"
    ),
    "plants a hook of Python's start": tried(
        "import site\nfor path in site.getsitepackages():\n"
        "    open(os.path.join(path, 'judged.pth'), 'w').write('import os; os._exit(0)')\n"
        "out = True"
    ),
    "fills the disk": tried(
        "with open('/tmp/full', 'wb') as file:\n"
        "    for _ in range(40):\n        file.write(bytes(1 << 26))\nout = True"
    ),
    "opens a disk": tried("out = bool(open('/dev/vda', 'rb'))"),
    "opens the kernel's memory": tried("out = bool(open('/dev/mem', 'rb'))"),
    "opens the terminal": tried("out = bool(open('/dev/tty', 'w'))", boxed=False),
    "changes a setting of the kernel": tried(
        "open('/proc/sys/kernel/domainname', 'w').write('judged')\nout = True"
    ),
    "asks the kernel to restart": tried("open('/proc/sysrq-trigger', 'w').write('')\nout = True"),
    "makes a device": tried("os.mknod('/tmp/disk', 0o60600, os.makedev(254, 0))\nout = True"),
    "leaves a message for its next process": tried(
        "path = '/tmp/left' if os.access('/tmp', os.W_OK) else os.environ['TMPDIR'] + '/left'\n"
        "out = os.path.exists(path)\n"
        "import __main__\n"
        "if 'opsmith.judge.candidate' not in sys.orig_argv:\n"
        "    open(path, 'w').write('1')\n"
        "else:\n    out = True"
    ),
    "makes a deep tree of folders": Attack(
        "place = os.getcwd()\n"
        "for _ in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\n"
        "os.chdir(place)\nreturn WRONG"
    ),
    "makes folders that nobody may enter": Attack(
        "os.makedirs('no/inner', exist_ok=True)\nos.chmod('no', 0)\nreturn WRONG"
    ),
    "a link in place of a file": Attack(
        "for name in ('output', 'results.json', 'results.bin'):\n"
        "    try:\n        os.symlink('/dev/zero', name)\n    except OSError:\n        pass\n"
        "return WRONG"
    ),
    "a pipe in place of a file": Attack(
        "for name in ('output', 'results.json', 'results.bin'):\n"
        "    try:\n        os.mkfifo(name)\n    except OSError:\n        pass\nreturn WRONG"
    ),
}

NETWORK = {
    "calls out": tried("import socket\nsocket.create_connection(('1.1.1.1', 53), 2)\nout = True"),
    "sees an interface": tried(
        "import socket\nout = any(name != 'lo' for _, name in socket.if_nameindex())"
    ),
    "talks to its machine": tried(
        "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname(), 2)\nout = True"
    ),
    "finds a socket of the machine": tried(
        "import socket\nout = any(line.strip().endswith(('bus_socket', 'notify'))\n"
        "          for line in open('/proc/net/unix'))"
    ),
}
