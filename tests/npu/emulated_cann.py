"""A folder that looks like CANN's, whose bisheng is g++ with the emulation of Ascend C.

So everything around the compiler is what an NPU would get: how it is found and called, what is
linked, dispatch, the stream. The kernel runs on the tests' device. As a program it is that bisheng:
it writes the launch, which g++ does not parse, as a call.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

from emulators.ascendc import compiling

HERE = Path(__file__).parent
#: What device code and its launches find: the device, then the emulation behind a header of ours.
INCLUDE = (HERE / "device", HERE / "cann", *compiling.INCLUDE)
_LAUNCH = re.compile(r"(\S+)<<<(.+?), nullptr, (.+?)>>>\(")


def install(home: Path) -> None:
    """Make `home` the value of ``ASCEND_HOME_PATH``."""
    for folder in ("bin", "include", "lib64"):
        (home / folder).mkdir(parents=True)
    bisheng = home / "bin" / "bisheng"
    bisheng.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n')
    bisheng.chmod(0o755)
    build = ["g++", "-shared", "-fPIC", "-std=c++20", "-O2", "-x", "c++", "-"]
    build += [f"-I{folder}" for folder in (*compiling.INCLUDE, *compiling.RUNTIME)]
    for name, text in (("ascendcl", ""), ("runtime", compiling.runtime_source())):
        library = home / "lib64" / f"lib{name}.so"
        command = [*build, f"-Wl,-soname,{library.name}", "-o", library]
        subprocess.run(command, input=text, text=True, check=True)
        ctypes.CDLL(str(library))  # CANN's set_env.sh has the linker find it


def as_calls(text: str) -> str:
    """A source with its launches as calls."""
    calls = _LAUNCH.sub(r"on_device::launch(\1, \2, \3, ", text)
    assert calls != text
    return calls


def _compile(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print("the tests' bisheng 1.0")
        return 0
    assert arguments[:2] == ["-xcce", "--npu-arch=dav-2201"], arguments
    words = arguments[2:]
    source = Path(words[words.index("-c") + 1])
    rewritten = Path(words[words.index("-o") + 1]).with_suffix(".cpp")
    text = source.read_text()
    rewritten.write_text(f'#line 1 "{source}"\n{as_calls(text)}')
    words[words.index("-c") + 1] = str(rewritten)
    include = [f"-I{folder}" for folder in INCLUDE]
    done = subprocess.run(["g++", *compiling.FLAGS, *include, *words], check=False)
    if done.returncode == 0:
        depends = Path(words[words.index("-MF") + 1])
        depends.write_text(depends.read_text().replace(str(rewritten), str(source)))
    return done.returncode


if __name__ == "__main__":
    sys.exit(_compile(sys.argv[1:]))
