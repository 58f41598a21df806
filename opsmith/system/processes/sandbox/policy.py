"""Decide what a sandbox contains, the variables of its processes too, and start commands in it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from opsmith.system.processes.memory import available
from opsmith.system.processes.sandbox import enter, seccomp
from opsmith.untyped import Json

#: Bytes of temporary files, of files in the home folder, and of shared memory.
_TEMPORARY_BYTES, _HOME_BYTES, _SHARED_BYTES = 1 << 30, 256 << 20, 64 << 20
_LARGEST_FILE = 1 << 30
#: The most processes and threads together; compilers and computing threads need dozens.
MOST_PROCESSES = 512
#: The fraction of the machine's available memory that everything in a sandbox may take together.
_SHARE = 0.75
_DEFAULT_MEMORY = 8 << 30
#: Folders that may hold files of other programs and users.
_SHARED_FOLDERS = ("/tmp", "/var/tmp", "/run", "/mnt", "/media")
_SYSTEM = ("/", "/bin", "/etc", "/lib", "/lib64", "/opt", "/sbin", "/usr", "/usr/local", "/var")
_PROBE_SECONDS = 60.0
#: Variables of this process that are passed on: those that compilers and libraries need.
ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CC",
    "CXX",
    "CXXFLAGS",
    "LDFLAGS",
    "CUDA_HOME",
    "OMP_NUM_THREADS",
)


@dataclass(frozen=True)
class Box:
    """A description of a sandbox: the folders that it shows and hides, and its limits.

    Attributes:
        namespaces: whether the machine's namespaces are used; else only limits and the filter of
            system calls hold.
        folder: the folder that the command starts in; it can be written.
        placed: folders to show, read-only, by the places where they are shown.
        memory: the most bytes that all processes may take together.
        last_id: the id after which those of the command and its processes follow, where the
            sandbox has ids of its own.
    """

    namespaces: bool
    folder: Path
    placed: Mapping[Path, Path] = field(default_factory=dict)
    memory: int = 0
    last_id: int = 1

    def plan(self, environment: Mapping[str, str]) -> enter.Plan:
        """Return the folders and limits, as `enter` expects them."""
        temporary = Path(tempfile.gettempdir()).resolve()
        home = Path(environment.get("HOME", "/")).resolve()
        writable = {temporary: _TEMPORARY_BYTES}
        if str(home) not in _SYSTEM and home.is_dir():
            writable.setdefault(home, _HOME_BYTES)
        hidden = {str(path): size for path, size in writable.items()}
        for path in map(Path, _SHARED_FOLDERS):
            real = path.resolve()
            if real.is_dir() and str(real) not in _SYSTEM:
                # This filesystem needs only the folders in which other places are mounted, and
                # folders take no blocks.
                hidden.setdefault(str(real), 64 << 10)
        placed = {str(place): str(folder) for place, folder in self.placed.items()}
        covered = [*hidden, *placed]
        needed = _outermost(map(str, _needed(environment, covered)))
        shown = {path: path for path in needed if _is_below(path, covered)} | placed
        return {
            "hidden": {path: size for path, size in hidden.items() if path not in shown},
            "writable": [*map(str, writable)],
            "shown": shown,
            "made": [str(self.folder)],
            "folder": str(self.folder),
            "shared_bytes": _SHARED_BYTES,
            "memory": self.memory or most_memory(),
            "processes": MOST_PROCESSES,
            "last_id": self.last_id,
            "file_bytes": _LARGEST_FILE,
        }


def most_memory() -> int:
    """Return the bytes that everything in a sandbox may take by default."""
    left = available()
    return _DEFAULT_MEMORY if left is None else int(_SHARE * left)


def hides(path: Path, environment: Mapping[str, str]) -> bool:
    """Return whether a command in a sandbox with these variables cannot see a file of the host."""
    plan = Box(True, Path(tempfile.gettempdir())).plan(environment)
    real = str(path.resolve())
    return _is_below(real, plan["hidden"]) and not _is_below(real, plan["shown"])


def can_be_covered(folder: Path) -> bool:
    """Return whether other contents can be shown at the place of a folder."""
    own = (Path(tempfile.gettempdir()).resolve(), Path.home().resolve())
    return folder not in own and str(folder) not in (*_SYSTEM, *_SHARED_FOLDERS)


def _needed(environment: Mapping[str, str], hidden: Iterable[str]) -> list[Path]:
    """Return what Python, its packages and compilers consist of."""
    hidden = list(hidden)
    names = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path]
    own = Path(__file__).parents[3]
    names += [str(own), str(own.with_name("emulators"))]
    for variable in ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH"):
        names += environment.get(variable, "").split(os.pathsep)
    names += [environment[name] for name in ("CUDA_HOME",) if name in environment]
    for variable in ("CC", "CXX"):
        program = shutil.which(environment.get(variable, ""))
        if program:
            names.append(str(Path(program).resolve().parents[1]))
    links = [str(Path(sys.executable).resolve().parents[1])]
    found = []
    for name in (*names, *links):
        for path in {Path(name), Path(name).resolve()} if name else ():
            above = any(Path(one).is_relative_to(path) for one in hidden)
            if path.is_absolute() and path.exists() and not above:
                found.append(path)
    return found


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that do not lie in another of the paths."""
    kept: list[str] = []
    for path in sorted(set(paths), key=len):
        if not any(Path(path).is_relative_to(one) for one in kept):
            kept.append(path)
    return kept


class Sandboxed:
    """A command in a sandbox: the first process of the sandbox tells how the command ended.

    Args:
        command: the command and its arguments; the command is an absolute path.
    """

    pid: int
    #: The command line that the sandbox's first process shows.
    name = "sh"

    def __init__(self, box: Box, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.box = box
        self._told = b""
        self._status, self._tell = os.pipe()
        weakref.finalize(self, os.close, self._status)
        self._given, self._give = os.pipe()
        self._plan = {
            **box.plan(environment),
            "namespaces": box.namespaces,
            "command": list(command),
            "environment": dict(environment),
            "name": self.name,
        }
        self.most = int(self._plan["memory"])

    def _wait_for_end(self) -> None:
        """Wait until the process that entered the sandbox has ended."""
        raise NotImplementedError

    def _hand_over(self, **more: object) -> None:
        """Write the plan, completed, where the process that enters the sandbox reads it."""
        os.write(self._give, json.dumps({**self._plan, **more}).encode())

    def _close(self) -> None:
        """Close the ends of pipes that only the sandbox needs."""
        for descriptor in (self._given, self._give, self._tell):
            os.close(descriptor)

    def ended(self) -> dict[str, Json]:
        """Wait for the end, and return how the command ended.

        Returns:
            ``code``: its exit code, or the negative number of a signal; or ``exceeded``:
            ``memory`` or ``processes``; or ``unavailable``: why there is no sandbox. Empty if the
            processes were killed from outside.
        """
        self._wait_for_end()
        while more := os.read(self._status, 1 << 16):
            self._told += more
        return json.loads(self._told.splitlines()[0]) if self._told else {}

    def failure(self) -> tuple[str, str]:
        """Wait for the end; return which limit was exceeded, or what failed, and its code."""
        ended = self.ended()
        if "unavailable" in ended:
            return f"no sandbox could be made: {ended['unavailable']}", "OPS-CHECK-LOST"
        if ended.get("exceeded") == "memory":
            return self.excess(self.most), "OPS-CALL-MEMORY"
        if "exceeded" in ended:
            return f"had more than {MOST_PROCESSES} processes and threads", "OPS-JUDGE-LIMIT"
        return "", ""

    @staticmethod
    def excess(most: int) -> str:
        """Return the message for processes that took more than `most` bytes of memory."""
        return (
            f"took more than {most / 2**30:.1f} GiB of memory, together with what it started, and "
            "was ended before the machine ran out"
        )

    def size(self) -> int:
        """Return the bytes of memory that all processes of the sandbox take now."""
        return enter.usage(self.pid)[1]

    def outside(self, process: int) -> int | None:
        """Return the id by which this process knows a process of the sandbox, or `None`."""
        found = enter.descendants(self.pid)
        if not self.box.namespaces:
            return process if process in found else None
        for one in found:
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{one}/status").read_text().splitlines():
                    if line.startswith("NSpid:") and line.split()[-1] == str(process):
                        return one
        return None


class Boxed(Sandboxed, subprocess.Popen[bytes]):
    """A new process that enters a sandbox and starts a command in it.

    Args:
        command: the command and its arguments; the command is an absolute path.
        descriptors: file descriptors that the command inherits.
        stdin: as for `subprocess.Popen`.
        stdout: as for `subprocess.Popen`, also for the error output.
    """

    def __init__(
        self,
        box: Box,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        descriptors: Sequence[int] = (),
        stdin: int = subprocess.DEVNULL,
        stdout: int = subprocess.DEVNULL,
    ) -> None:
        Sandboxed.__init__(self, box, command, environment)
        libraries = os.environ.get("LD_LIBRARY_PATH")
        try:
            subprocess.Popen.__init__(
                self,
                [sys.executable, "-I", "-S", enter.__file__, str(self._given)],
                stdin=stdin,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                pass_fds=(self._given, self._tell, *descriptors),
                # Python may need it to start; what else it needs, it finds by its path.
                env={"LD_LIBRARY_PATH": libraries} if libraries else {},
                cwd="/" if box.namespaces else str(box.folder),
                start_new_session=True,
            )
            self._hand_over(status=self._tell, descriptors=list(descriptors), parent=os.getpid())
        finally:
            self._close()

    def _wait_for_end(self) -> None:
        self.wait()


@functools.cache
def unavailable() -> str:
    """Return why this machine grants no sandbox; empty if it does."""
    if not sys.platform.startswith("linux"):
        return "only Linux has one"
    if not seccomp.supported():
        return "system calls of this kind of processor are unknown"
    box = Box(True, Path(tempfile.gettempdir()).resolve() / "probe")
    try:
        probe = Boxed(box, ["/bin/sh", "-c", "exit 7"], {})
    except OSError as error:
        return str(error)
    try:
        probe.wait(_PROBE_SECONDS)
    except subprocess.TimeoutExpired:
        probe.kill()
        return "entering it takes too long"
    said = probe.ended()
    if said.get("code") == 7:
        return ""
    return str(said.get("unavailable") or "its first process ended")


def passed_on() -> dict[str, str]:
    """Return the variables that each process in a sandbox gets."""
    variables = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    # Leave out the folders that an installation has anyway.
    usual = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    extra = [
        path
        for path in dict.fromkeys(sys.path)
        if path and not any(Path(path).resolve().is_relative_to(one) for one in usual)
    ]
    if extra:
        variables["PYTHONPATH"] = os.pathsep.join(extra)
    if tempfile.gettempdir() != "/tmp":
        variables["TMPDIR"] = tempfile.gettempdir()
    return variables
