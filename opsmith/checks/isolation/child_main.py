"""Runs a module in a process that ends with its parent from the first moment on.

It is run by its path, so that nothing is imported before: importing torch takes seconds, in which
nobody looks whether the parent is still there::

    python start.py MODULE FD FOLDER
"""

import contextlib
import ctypes
import gc
import os
import runpy
import select
import shutil
import signal
import sys

_PR_SET_PDEATHSIG = 1


def prctl(option: int, value: int) -> None:
    """Ask Linux for something; elsewhere there is no such thing."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def signal_at_parents_end(number: int) -> None:
    """Have the system send this process a signal when the thread that started it ends; 0: none."""
    prctl(_PR_SET_PDEATHSIG, number)


def main() -> None:
    """Run the module that the command line names; remove the folder if the parent ends."""
    module, folder = sys.argv.pop(1), sys.argv[2]

    def leave(*_: object) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    signal.signal(signal.SIGTERM, leave)
    signal_at_parents_end(signal.SIGTERM)
    # A parent that ended before that has closed standard input.
    poll = select.poll()
    poll.register(0, 0)
    if poll.poll(0):
        leave()
    # What is imported stays; to look for garbage among it is a fifth of the time that it takes.
    # `supervise` has it collected again.
    gc.disable()
    del sys.path[0]  # the folder of this file, whose modules nobody means by their bare names
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
