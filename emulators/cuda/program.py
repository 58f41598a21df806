"""Compile and run a whole CUDA program on the CPU, and say what it does that a GPU does not allow.

A program is one source with a ``main``, as it is. It is compiled with the runtime, and runs in a
process of its own, which writes what it finds to a file.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emulators.cuda import compiling
from emulators.cuda.obstacles import obstacle_of
from emulators.cuda.own_code import NoParserError, read_own_code
from emulators.cuda.rewriting import rewrite
from emulators.lines import lines_of

#: Exit codes: a fault was found, or the program failed; nothing can be said of all of it.
FAULT, INCOMPLETE = 1, 5
#: Headers of NVIDIA's libraries.
_LIBRARIES = Path(__file__).parent / "libraries"
_BEGINS_WITH = "emulated/cuda.h"
#: The compiler's words for a name of CUDA's that it does not know.
_NAME_OF_CUDA = re.compile(
    r"^(?P<path>[^\n:]+):(?P<line>\d+):\d+: error: [^\n]*?['‘](?:const |struct |class )?"
    r"(?P<name>(?:cuda|cu)[A-Z]\w*|(?:cublas|curand|cufft|cusparse|cusolver|cudnn|nccl|nvtx)\w*"
    r"|CU(?:DA|BLAS)?_\w+|__\w+)(?:['’] has no member named ['‘](?P<member>\w+))?",
    re.MULTILINE,
)
_ERROR = re.compile(r"^([^\n:]+):(\d+):\d+: (?:fatal )?error: ([^\n]+)", re.MULTILINE)
_UNDEFINED = re.compile(r"undefined reference to [`']([^'(]+)")


class NotRunError(Exception):
    """Raised where a program does not run; the message says why.

    Attributes:
        exit_code: the command's exit code.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Options:
    """How a program is compiled and run.

    Attributes:
        flags: ``-I``, ``-D`` and ``-U`` for the compiler.
        seconds: the time limit of the program.
        seed: decides the order of blocks and threads.
        repeats: how often a launch with the same arguments runs; `None` for every time.
        allow_unwritten: whether a kernel may read global memory that nothing had written.
    """

    flags: tuple[str, ...] = ()
    seconds: float = 300
    seed: int = 0
    repeats: int | None = None
    allow_unwritten: bool = False


@dataclass(frozen=True)
class _Found:
    """Holds a record that the program's process wrote: a text with its lines, and a second one."""

    kind: str
    text: str
    places: tuple[str, ...]
    also: str
    also_places: tuple[str, ...]


def run_program(
    source: Path, arguments: Sequence[str] = (), options: Options | None = None
) -> tuple[int, str]:
    """Compile and run a program, and return the exit code and the report.

    The program's own input and output are those of this process.

    Raises:
        NotRunError: the program is not there, does not compile, or is not emulated; or there is no
            compiler, or no parser of CUDA.
    """
    from rich.console import Console  # late: kernels in CUDA are read without it

    options = options or Options()
    if not source.is_file():
        raise NotRunError(f"there is no file {source}", 2)
    with tempfile.TemporaryDirectory(prefix="emulated-") as name:
        folder = Path(name)
        with Console(stderr=True).status(f"compiling {source.name} …"):  # on a terminal
            binary = _compiled(source.resolve(), folder, options)
        report = folder / "report"
        report.touch()
        environment = {
            **os.environ,
            "EMULATED_REPORT": str(report),
            "EMULATED_SEED": str(options.seed),
            "EMULATED_UNWRITTEN": str(int(options.allow_unwritten)),
            **({} if options.repeats is None else {"EMULATED_REPEATS": str(options.repeats)}),
        }
        code = _ran([str(binary), *arguments], environment, options.seconds)
        return _judged(_read(report), code, binary, source.resolve().parent, options)


# --- compiling -----------------------------------------------------------------------------------


def _compiler() -> tuple[list[str], str]:
    """Return the words of the C++ compiler, and what it says of its version."""
    words = shlex.split(os.environ.get("CXX", ""))
    found = next(filter(None, map(shutil.which, ("g++", "clang++", "c++"))), None)
    words = words or [found] if found else words
    if not words or shutil.which(words[0]) is None:
        missing = f"CXX names {words[0]!r}, and there is no such program" if words else "none is"
        raise NotRunError(f"a C++ compiler is needed: {missing} here", INCOMPLETE)
    said = subprocess.run([*words, "--version"], capture_output=True, text=True).stdout
    return words, said


def _compiled(source: Path, folder: Path, options: Options) -> Path:
    """Compile a program in a folder, and return it."""
    words, version = _compiler()
    gcc = compiling.is_gcc(version)
    shared = ["-std=c++20", "-DOPSMITH_WHOLE_PROGRAM", "-w", f"-I{compiling.INCLUDE}"]
    compiler = [*words, *shared, f"-I{_LIBRARIES}", f"-iquote{source.parent}", *options.flags]
    try:
        code = read_own_code(compiler, source, [_BEGINS_WITH], (_LIBRARIES,))
    except NoParserError as error:
        get = "Get them: pip install tree-sitter tree-sitter-cuda"
        raise NotRunError(f"{error}. {get}", INCOMPLETE) from error
    obstacle = obstacle_of(code, behind_torch=False, warp=32)
    if obstacle is not None:
        raise NotRunError(f"not emulated: {obstacle}", INCOMPLETE)
    text = folder / f"{source.stem}.cpp"
    text.write_text(f"#include <{_BEGINS_WITH}>\n{rewrite(code)}", errors="surrogateescape")
    library, binary, made = _runtime(words), folder / source.stem, folder / "program.o"
    # Programs rely on integers that wrap, and no tool of CUDA's minds.
    as_nvcc, wraps = (compiling.ALIASING, "-fwrapv"), ("-fno-sanitize=signed-integer-overflow",)
    watched = (*compiling.line_flags(gcc=gcc), *compiling.watching_flags(version))
    wrapped = (f"--wrap={name}" for name in ("memcpy", "memmove", "memset"))
    words_of_link = (*wrapped, *compiling.APART, f"-rpath,{library.parent}")
    linked = [f"-Wl,{word}" for word in words_of_link]
    # The link is a step of its own, without the sanitizers' libraries.
    for command in (
        [*compiler, "-O1", "-fPIE", *as_nvcc, *watched, *wraps, "-c", str(text), "-o", str(made)],
        [*words, "-pie", str(made), "-o", str(binary), str(library), *linked],
    ):
        run = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if run.returncode != 0:
            raise _refusal(run.stderr, source)
    return binary


def _refusal(said: str, source: Path) -> NotRunError:
    """Return the error for a program that does not compile."""
    undefined = _UNDEFINED.search(said)
    if undefined is not None and undefined[1] == "main":
        return NotRunError(f"{source.name} has no main: a whole program is needed", 2)
    name = _NAME_OF_CUDA.search(said)
    if name is not None:
        whole = f"{name['name']}::{name['member']}" if name["member"] else name["name"]
        where = f"{Path(name['path']).name}:{name['line']}"
        what = f"{whole}, at {where}, which is not emulated, or no name of CUDA's"
        return NotRunError(f"not emulated: it uses {what}", INCOMPLETE)
    if undefined is not None:
        what = f"{undefined[1]} is declared, and in no file of this program's"
        return NotRunError(f"{source.name} does not link: {what}", FAULT)
    shown = [
        line
        for path, number, what in _ERROR.findall(said)
        if Path(path).parent == source.parent
        for line in (f"{path}:{number}: {what}", *_shown(f"{path}:{number}")[1:])
    ]
    return NotRunError("\n".join([f"{source.name} does not compile:", *(shown or [said])]), FAULT)


def _runtime(compiler: Sequence[str]) -> Path:
    """Build the library of the emulation in the user's cache, and return its path."""
    sources = sorted(path for path in compiling.RUNTIME.parent.rglob("*") if path.is_file())
    version = subprocess.run([*compiler, "--version"], capture_output=True).stdout
    seen = hashlib.sha256(version + " ".join(compiler).encode())
    for path in sources:
        if path.suffix in (".h", ".cpp"):
            seen.update(path.read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("EMULATORS_CACHE") or Path(home) / "emulators")
    library = cache / seen.hexdigest()[:24] / "libemulation.so"
    if library.is_file():
        return library
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        unit, made = Path(folder) / "emulation.cpp", Path(folder) / library.name
        unit.write_text(compiling.runtime_source())
        flags = ("-std=c++20", "-O2", "-g1", "-fPIC", "-shared", "-w", "-fvisibility=hidden")
        places = (f"-I{compiling.INCLUDE}", f"-I{compiling.RUNTIME}", str(unit), "-o", str(made))
        run = subprocess.run([*compiler, *flags, *places], capture_output=True, text=True)
        if run.returncode != 0:
            raise NotRunError(f"the emulation does not compile:\n{run.stderr}", INCOMPLETE)
        made.replace(library)
    return library


# --- running -------------------------------------------------------------------------------------


def _ran(command: Sequence[str], environment: dict[str, str], seconds: float) -> int:
    """Run a program, and return its exit code; a signal's is negative."""
    with subprocess.Popen(command, env=environment) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGXCPU)  # it says where it is
        except BaseException:
            process.kill()
            raise
        try:
            return process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _read(report: Path) -> list[_Found]:
    parts = report.read_bytes().decode(errors="replace").split("\0")[:-1]
    records = [parts[at : at + 5] for at in range(0, len(parts), 5)]
    return [
        _Found(kind, text, tuple(places.split("\x1f")[:-1]), also, tuple(more.split("\x1f")[:-1]))
        for kind, text, places, also, more in records
    ]


def _judged(
    found: list[_Found], code: int, binary: Path, folder: Path, options: Options
) -> tuple[int, str]:
    """Return the command's exit code and the report, of what a program's process wrote."""
    lines = []
    # What is found comes before notes of what may have led to it.
    for one in sorted(found, key=lambda one: one.kind == "note"):
        if one.kind in ("end", "time"):
            continue
        kind = "not emulated" if one.kind == "absent" else one.kind
        lines.append(f"{kind}: {one.text.removeprefix('a race: ')}")
        lines += _shown(_line(one.places, binary, folder))
        if one.also:
            lines += [f"  {one.also}", *_shown(_line(one.also_places, binary, folder))]
    last = found[-1] if found else _Found("", "", (), "", ())
    if last.kind == "absent":
        return INCOMPLETE, "\n".join([*lines, "nothing is said of the rest"])
    if last.kind == "time":
        where = [f"cut short after {options.seconds:g} s, which --seconds raises: {last.text}"]
        return INCOMPLETE, "\n".join([*lines, *where, *_shown(_line(last.places, binary, folder))])
    if last.kind not in ("", "note", "end"):
        return FAULT, "\n".join(lines)
    if last.kind != "end":
        how = f"was ended by signal {-code}" if code < 0 else f"left by _exit with code {code}"
        return FAULT if code else INCOMPLETE, "\n".join([*lines, f"the program {how}"])
    launches, skipped = map(int, last.text.split())
    ran = f"{launches} launch{'' if launches == 1 else 'es'}"
    ran += f", and {skipped} repeated ones skipped" if skipped else ""
    if code != 0:
        return FAULT, "\n".join([*lines, f"the program ended with exit code {code}; {ran}"])
    if launches == 0:
        return INCOMPLETE, "\n".join([*lines, "no kernel was launched: nothing was looked at"])
    return 0, "\n".join([*lines, f"nothing found in {ran}"])


def _line(places: Sequence[str], binary: Path, folder: Path) -> str:
    """Return the innermost line in the program's folder; else one that is known."""
    known = [place[1:] for place in places if place.startswith("=")]
    addresses = [int(place, 16) for place in places if not place.startswith("=")]
    lines = lines_of(binary, addresses)
    users = [line for line in lines if Path(line.rpartition(":")[0]).parent == folder]
    ours = compiling.RUNTIME.parent
    others = [line for line in lines if not Path(line).is_relative_to(ours)]
    return next(iter((*users, *known, *others)), "")


def _shown(line: str) -> list[str]:
    """Return a place, and its line of the source, to print."""
    path, _, number = line.rpartition(":")
    linecache.checkcache(path)
    text = linecache.getline(path, int(number)).strip() if number.isdigit() else ""
    return [f"  at {line}", *([f"    {text}"] if text else [])] if line else []
