"""Run a module in a process that ends with its parent from the first moment on.

The script is run by its path, so that no import comes first: importing torch takes seconds, in
which the end of the parent would go unnoticed::

    python child_main.py MODULE FD FOLDER
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
    """Call `prctl` of Linux; do nothing on other systems."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def signal_at_parents_end(number: int) -> None:
    """Have Linux signal this process when the thread that started it ends; 0 for no signal."""
    prctl(_PR_SET_PDEATHSIG, number)


def main() -> None:
    """Run the module that the command line names; remove the folder if the parent ends."""
    module, folder = sys.argv.pop(1), sys.argv[2]

    def leave(*_: object) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    signal.signal(signal.SIGTERM, leave)
    signal_at_parents_end(signal.SIGTERM)
    # If the parent has already ended, standard input is closed.
    poll = select.poll()
    poll.register(0, 0)
    if poll.poll(0):
        leave()
    # Imported modules live on, and looking for garbage among them takes a fifth of the time of
    # the imports. `supervise` enables the garbage collector again.
    gc.disable()
    del sys.path[0]  # the folder of this file: its modules are not to be imported by bare names
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
