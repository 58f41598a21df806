"""A folder that looks like CANN's, whose bisheng is g++ with the stand-in for Ascend C.

So everything around the compiler is what an NPU would get: how it is found and called, what is
linked, dispatch, the stream. The kernel's logic runs on the tests' device. As a program it is that
bisheng: it writes the launch, which g++ does not parse, as a call.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
_LAUNCH = re.compile(r"(\S+)<<<(.+?), nullptr, (.+?)>>>\(")


def install(home: Path) -> None:
    """Make `home` the value of ``ASCEND_HOME_PATH``."""
    framework = home / "compiler" / "tikcpp" / "tikcfw"
    for folder in (home / "bin", home / "include", home / "lib64", framework.parent):
        folder.mkdir(parents=True)
    framework.symlink_to(HERE / "ascendc_stand_in")
    (home / "include" / "acl").symlink_to(HERE / "ascendc_stand_in" / "acl")
    bisheng = home / "bin" / "bisheng"
    bisheng.write_text(f'#!/bin/sh\nexec {sys.executable} {__file__} "$@"\n')
    bisheng.chmod(0o755)
    for name in ("ascendcl", "runtime"):
        library = home / "lib64" / f"lib{name}.so"
        subprocess.run(["g++", "-shared", "-x", "c++", "/dev/null", "-o", library], check=True)


def as_calls(text: str) -> str:
    """A source with its launches as calls of the stand-in."""
    calls = _LAUNCH.sub(r"stand_in::launch(\1, \2, \3, ", text)
    assert calls != text
    return calls


def _compile(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print("the tests' stand-in for bisheng 1.0")
        return 0
    assert arguments[:2] == ["-xcce", "--npu-arch=dav-2201"], arguments
    words = arguments[2:]
    source = Path(words[words.index("-c") + 1])
    rewritten = Path(words[words.index("-o") + 1]).with_suffix(".cpp")
    text = source.read_text()
    rewritten.write_text(f'#line 1 "{source}"\n{as_calls(text)}')
    words[words.index("-c") + 1] = str(rewritten)
    done = subprocess.run(["g++", f"-I{HERE / 'device'}", *words], check=False)
    if done.returncode == 0:
        depends = Path(words[words.index("-MF") + 1])
        depends.write_text(depends.read_text().replace(str(rewritten), str(source)))
    return done.returncode


if __name__ == "__main__":
    sys.exit(_compile(sys.argv[1:]))
