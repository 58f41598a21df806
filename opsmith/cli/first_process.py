"""Run the command in a child where it would be the first process of a container.

Linux passes SIGTERM to the first process only if that process handles it; and when the first
process ends, Linux kills all others. So ``docker stop`` would wait, kill the command, and leave its
temporary folders.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time

#: The longest time to wait for other processes after the command has ended: the watchdog removes
#: what a killed command leaves.
_PATIENCE_SECONDS = 25.0


def leave_the_first_process() -> None:
    """Go on in a child process if this is the first process of a container."""
    if os.getpid() == 1:
        run_in_child()


def run_in_child() -> None:
    """Return in a child process; the parent hands on signals, and ends after all its children."""
    # A signal that comes before the parent can hand it on waits until then.
    handed_on = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, handed_on)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return

    def hand_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    signal.signal(signal.SIGTERM, hand_on)
    signal.signal(signal.SIGHUP, hand_on)
    # A terminal sends its interrupts to the child as well.
    signal.signal(signal.SIGINT, signal.SIG_IGN if os.isatty(0) else hand_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)
    os._exit(code if code >= 0 else 128 - code)
