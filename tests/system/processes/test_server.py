"""The loop that answers requests in a child process."""

import json
import subprocess
import sys

_CHILD = """\
import os
from opsmith.system.processes.server import answer_all, take_requests

def reply(request, payload):
    os.write(1, b"called\\n")
    return {"event": "done", "read": os.read(0, 100).decode()}, payload * 2

answer_all(take_requests(), 1, reply)
"""


def test_requests_are_answered_in_order_and_a_kernel_that_reads_the_input_takes_none() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        child.stdin.write(b'{"number": 7, "bytes": 3}\nabc')
        assert child.stdout.readline() == b"called\n"
        child.stdin.write(b'{"number": 8}\n')
        first = json.loads(child.stdout.readline())
        assert first == {"request": 7, "bytes": 6, "event": "done", "read": ""}
        assert child.stdout.readline() == b"abcabccalled\n"
        second = json.loads(child.stdout.readline())
        assert second == {"request": 8, "bytes": 0, "event": "done", "read": ""}
        child.stdin.close()
        assert child.wait() == 0
