"""Filters of system calls, as programs of the classic Berkeley Packet Filter.

The file is also run by its path, without the package: it imports nothing but Python's own modules.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterable, Sequence

#: Forbidden system calls by name: their numbers on x86-64, and on 64-bit Arm (-1: there is none).
#: They look into other processes or change them, change the machine or its mounts, or have often
#: been the way out of a sandbox.
_FORBIDDEN = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    "open_by_handle_at": (304, 265),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "fanotify_init": (300, 262),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "iopl": (172, -1),
    "ioperm": (173, -1),
    "vhangup": (153, 58),
}
#: Calls that get a process or its group as first argument, and may end or stop it.
_SIGNALLING = {
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
    "prlimit64": (302, 261),
}
_CLONE, _CLONE3 = (56, 220), (435, 435)
#: Flags of `clone` that create namespaces.
_NEW_NAMESPACES = 0x7E020080
#: By machine: Linux's number of the architecture, and the column of `_FORBIDDEN`.
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_X32 = 0x40000000

_LOAD, _EQUAL, _GREATER_OR_EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38


def supported() -> bool:
    """Return whether the tables have this machine's system calls."""
    return platform.machine() in _MACHINES


def program(protected: Iterable[int] = ()) -> bytes:
    """Return the filter for this machine.

    Args:
        protected: ids of processes that must get no signal; if there are any, no signal goes to
            all processes, or to the process groups of these, either.

    Returns:
        Instructions of eight bytes each.
    """
    architecture, column = _MACHINES[platform.machine()]
    made = [
        _op(_LOAD, _ARCHITECTURE),
        _op(_EQUAL, architecture, 1, 0),
        _op(_RETURN, _KILL),
        _op(_LOAD, _NUMBER),
        # The same calls have other numbers in the x32 ABI, so refuse all of its numbers.
        _op(_GREATER_OR_EQUAL, _X32, 0, 1),
        _op(_RETURN, _ERROR | _ENOSYS),
    ]
    for numbers in _FORBIDDEN.values():
        if numbers[column] >= 0:
            made += [_op(_EQUAL, numbers[column], 0, 1), _op(_RETURN, _ERROR | _EPERM)]
    # The flags of clone3 lie in memory, where a filter cannot read. C libraries then call clone.
    made += [_op(_EQUAL, _CLONE3[column], 0, 1), _op(_RETURN, _ERROR | _ENOSYS)]
    made += _on_argument(
        _CLONE[column], [_op(_ANY_BIT, _NEW_NAMESPACES, 0, 1), _op(_RETURN, _ERROR | _EPERM)]
    )
    spared = [one & 0xFFFFFFFF for each in protected for one in (each, -each)]
    if spared:
        forbidden = [
            step
            for one in (*spared, 0xFFFFFFFF)
            for step in (_op(_EQUAL, one, 0, 1), _op(_RETURN, _ERROR | _EPERM))
        ]
        for numbers in _SIGNALLING.values():
            made += _on_argument(numbers[column], forbidden)
    made.append(_op(_RETURN, _ALLOW))
    return b"".join(made)


def _on_argument(number: int, steps: Sequence[bytes]) -> list[bytes]:
    """Return instructions that apply `steps` to the first argument of a system call."""
    return [
        _op(_EQUAL, number, 0, len(steps) + 2),
        _op(_LOAD, _FIRST_ARGUMENT),
        *steps,
        _op(_LOAD, _NUMBER),
    ]


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
