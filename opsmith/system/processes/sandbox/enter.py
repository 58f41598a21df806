"""Enter a sandbox, and run a command in it.

The script is run by its path, and imports nothing but Python's own modules. A plan comes as JSON on
a file descriptor, see `policy.Box.plan`::

    python -I -S enter.py FD

Three processes remain: this one, which keeps a way in for signals from outside; the first process
of the sandbox, which watches memory, and whose end ends all others in it; and the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import runpy
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

_NEW_USER, _NEW_MOUNTS, _NEW_PROCESSES = 0x10000000, 0x00020000, 0x20000000
_NEW_NETWORK, _NEW_IPC, _NEW_NAMES = 0x40000000, 0x08000000, 0x04000000
_ALL = _NEW_USER | _NEW_MOUNTS | _NEW_PROCESSES | _NEW_NETWORK | _NEW_IPC | _NEW_NAMES
_NO_SETUID, _NO_DEVICES, _NO_PROGRAMS, _BIND, _RECURSIVE, _PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_SET_PARENT_DEATH, _SET_DUMPABLE, _SET_NAME, _DROP_BOUND = 1, 4, 15, 24
_SUBREAPER, _NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 36, 38, 22, 2
_AMBIENT, _CLEAR_ALL = 47, 4
_MOUNT_SETATTR = 442  # the number of the system call, on every machine
_HERE, _EVERYTHING_BELOW = -100, 0x8000
_READ_ONLY = 1
_DEVICES = ("null", "zero", "full", "random", "urandom")
_LOOK_SECONDS = 0.03
_MOST_DESCRIPTORS = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)

Plan = dict[str, Any]  # the JSON of `policy.Box.plan`; this program imports nothing of opsmith


class SandboxError(Exception):
    """A step into the sandbox failed."""


def main() -> None:
    """Carry out the plan on the file descriptor that the command line names."""
    with os.fdopen(int(sys.argv[1]), "rb") as given:
        enter(json.loads(given.read()))


def enter(plan: Plan, become: Callable[[], object] | None = None) -> NoReturn:
    """Carry out a plan, and end this process with the command.

    Args:
        plan: see `policy.Box.plan`.
        become: function that takes the place of the plan's command; it must not return.
    """
    _libc.prctl(_SET_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != plan["parent"]:
        os._exit(1)
    status = plan["status"]
    namespaces = plan["namespaces"]
    try:
        if namespaces:
            _unshare()
        else:
            _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        alive, hold = os.pipe()
        outer = os.getpid()
        inner = os.fork()
        if not inner:
            os.close(hold)
            _be_first(plan, alive, outer, become)
    except (SandboxError, OSError) as error:
        _tell(status, unavailable=str(error))
        os._exit(1)
    _close_all_but(hold)
    _, ended = os.waitpid(inner, 0)
    _end_children()
    os._exit(os.waitstatus_to_exitcode(ended) & 0xFF)


def _be_first(plan: Plan, alive: int, outer: int, become: Callable[[], object] | None) -> NoReturn:
    """Be the first process of the sandbox: set it up, run the command, and watch it."""
    status = plan["status"]
    try:
        # Other processes may neither read this one's memory nor trace it.
        _libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
        protected = [plan["parent"], outer, os.getpid()]
        if plan["namespaces"]:
            protected = []
            # Its end ends all others in the sandbox.
            _libc.prctl(_SET_PARENT_DEATH, signal.SIGKILL, 0, 0, 0)
            _mount(plan)
        else:
            # It notices the end of the process outside, and then ends the others itself.
            _libc.prctl(_SUBREAPER, 1, 0, 0, 0)
        os.chdir(plan["folder"])
        name = plan["name"].encode()
        take_name(name, name)
        command = os.fork()
        if not command:
            try:
                os.close(alive)
                _run(plan, protected, become)
            except BaseException as error:
                _tell(status, unavailable=f"{plan['command'][0]}: {error}")
            os._exit(127)
        _close_all_but(alive, status)
        _tell(status, **_watched(plan, alive, command))
    except BaseException as error:
        _tell(status, unavailable=str(error))
    _end_children()
    os._exit(0)


def _watched(plan: Plan, alive: int, command: int) -> dict[str, object]:
    """Wait for the command's end, and return how it ended."""
    poll = select.poll()
    poll.register(alive, 0)
    while True:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == command:
                    return {"code": os.waitstatus_to_exitcode(ended[1])}
        if poll.poll(_LOOK_SECONDS * 1000):
            return {"code": -signal.SIGKILL}  # the process outside is gone
        count, size = usage(None if plan["namespaces"] else os.getpid())
        if size > plan["memory"]:
            return {"exceeded": "memory"}
        if count > plan["processes"]:
            return {"exceeded": "processes"}


def usage(ancestor: int | None) -> tuple[int, int]:
    """Return the number of tasks, and the bytes of memory that they share with no file.

    Args:
        ancestor: the process whose descendants are counted; all that are visible by default.
    """
    found = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    if ancestor is not None:
        found = descendants(ancestor)
    tasks = pages = 0
    for process in found:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{process}/statm").read_text().split()
            pages += int(fields[1]) - int(fields[2])
            tasks += len(os.listdir(f"/proc/{process}/task"))
    return tasks, pages * resource.getpagesize()


def descendants(process: int) -> list[int]:
    """Return the ids of the processes that a process and its descendants started."""
    found: list[int] = []
    left = [process]
    while left:
        one = left.pop()
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):
                children = Path(f"/proc/{one}/task/{task}/children").read_text().split()
                left += map(int, children)
                found += map(int, children)
    return found


def _end_children() -> None:
    """End the remaining processes; the children that they leave become this process's children."""
    deadline = time.monotonic() + 5.0
    while (left := descendants(os.getpid())) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.001)


def _run(plan: Plan, protected: list[int], become: Callable[[], object] | None) -> None:
    """Become the command, without privileges."""
    os.setsid()
    _limit(plan)
    filtered = runpy.run_path(str(Path(__file__).with_name("seccomp.py")))["program"](protected)
    for capability in range(64):
        _libc.prctl(_DROP_BOUND, capability, 0, 0, 0)
    _libc.prctl(_AMBIENT, _CLEAR_ALL, 0, 0, 0)
    # Version 3, this process; then effective, permitted and inheritable, twice 32 bits.
    _require(_libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24)), "capset")
    _require(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")
    memory = ctypes.create_string_buffer(filtered, len(filtered))
    head = struct.pack("HxxxxxxP", len(filtered) // 8, ctypes.addressof(memory))
    _require(_libc.prctl(_SET_SECCOMP, _FILTER, head, 0, 0), "seccomp")
    _close_all_but(0, 1, 2, *plan["descriptors"])
    for descriptor in plan["descriptors"]:
        os.set_inheritable(descriptor, True)
    if become is not None:
        # A new program could be looked at by its own user, so let the user look at this process.
        _libc.prctl(_SET_DUMPABLE, 1, 0, 0, 0)
        become()
        return
    # Python ignores these, and an ignored signal stays ignored.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execve(plan["command"][0], plan["command"], plan["environment"])


def _limit(plan: Plan) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    most = plan["file_bytes"]
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    if plan["namespaces"]:
        # Linux counts the user's processes in this namespace, the first process included. It does
        # not count those of the administrator.
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        most = plan["processes"]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def _unshare() -> None:
    user, group = os.getuid(), os.getgid()
    done = _libc.unshare(_ALL)
    if done < 0 and ctypes.get_errno() == errno.ENOSPC:
        # Linux's own words for it are "No space left on device".
        raise SandboxError("namespaces: as many as user.max_user_namespaces allows are in use")
    _require(done, "namespaces")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def _mount(plan: Plan) -> None:
    """Make everything read-only, and hide folders below which only some places remain."""
    _bind("none", "/", _RECURSIVE | _PRIVATE)
    shown = {path: os.open(source, os.O_PATH) for path, source in plan["shown"].items()}
    devices = {name: os.open(f"/dev/{name}", os.O_PATH) for name in _DEVICES}
    # Mount a folder before the folders inside it: mounted later, it would cover them.
    for path in sorted([*plan["hidden"], *shown], key=len):
        if path in shown and not os.path.isdir(f"/proc/self/fd/{shown[path]}"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            Path(path).touch()
        else:
            os.makedirs(path, exist_ok=True)
        if path in shown:
            _bind(f"/proc/self/fd/{shown[path]}", path, _BIND | _RECURSIVE)
        else:
            options = f"size={plan['hidden'][path]},mode=755"
            _bind("tmpfs", path, _NO_SETUID | _NO_DEVICES, "tmpfs", options)
    _bind("tmpfs", "/dev", _NO_SETUID | _NO_PROGRAMS, "tmpfs", "size=64k,mode=755")
    for name, descriptor in devices.items():
        Path("/dev", name).touch()
        _bind(f"/proc/self/fd/{descriptor}", f"/dev/{name}", _BIND)
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"/dev/{name}")
    os.symlink("/proc/self/fd", "/dev/fd")
    os.mkdir("/dev/shm")
    _bind("tmpfs", "/dev/shm", _NO_SETUID | _NO_DEVICES, "tmpfs", f"size={plan['shared_bytes']}")
    for descriptor in (*shown.values(), *devices.values()):
        os.close(descriptor)
    _bind("proc", "/proc", _NO_SETUID | _NO_DEVICES | _NO_PROGRAMS, "proc")
    with contextlib.suppress(OSError):  # some kernels are built without it
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(plan["last_id"]))
    _set("/", _READ_ONLY | _NO_SETUID | _NO_DEVICES, 0, _EVERYTHING_BELOW)
    for name in _DEVICES:
        _set(f"/dev/{name}", 0, _NO_DEVICES)
    for path in (*plan["writable"], "/dev/shm"):
        _set(path, 0, _READ_ONLY)
    for path in plan["made"]:
        os.makedirs(path, exist_ok=True)


def _bind(source: str, target: str, flags: int, kind: str = "none", options: str = "") -> None:
    done = _libc.mount(
        source.encode(), os.fsencode(target), kind.encode(), flags, options.encode() or None
    )
    _require(done, f"mount {target}")


def _set(path: str, added: int, removed: int, flags: int = 0) -> None:
    """Change the attributes of a mount, or of all mounts below it."""
    attributes = struct.pack("=QQQQ", added, removed, 0, 0)
    done = _libc.syscall(
        _MOUNT_SETATTR, _HERE, os.fsencode(path), flags, attributes, len(attributes)
    )
    _require(done, f"attributes of {path}")


def take_name(line: bytes, name: bytes) -> None:
    """Replace the command line and the name of this process that other processes see."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        text = line[: end - start - 1]
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))
    _libc.prctl(_SET_NAME, name[:15], 0, 0, 0)


def _close_all_but(*kept: int) -> None:
    first = 0
    for descriptor in (*sorted(kept), _MOST_DESCRIPTORS):
        if first < descriptor:  # closerange closes everything if it gets an empty range at 0
            os.closerange(first, descriptor)
        first = descriptor + 1


def _tell(status: int, **message: object) -> None:
    with contextlib.suppress(OSError):
        os.write(status, (json.dumps(message) + "\n").encode())


def _require(done: int, what: str) -> None:
    if done < 0:
        number = ctypes.get_errno()
        name = errno.errorcode.get(number, str(number))
        raise SandboxError(f"{what}: {os.strerror(number)} ({name})")


if __name__ == "__main__":
    main()
