"""Take everything from a process that runs kernels for an answer, or for its failure."""

import json
import os
import threading
import time
from types import SimpleNamespace

import pytest
import torch

from opsmith.bench.timer import NotTimedError, Stopwatch
from opsmith.checks.cases.failure import Failure
from opsmith.checks.isolation import kernel_server
from opsmith.checks.isolation.kernel_client import Caller
from opsmith.checks.isolation.wire import Reader, WireError
from opsmith.system.processes import supervisor_client
from opsmith.system.processes.supervisor_client import printable


class _Process:
    """A supervisor that has sent some bytes, and reads nothing."""

    pid = os.getpid()

    def __init__(self, channel, data: bytes, ends: bool) -> None:
        self._answers, self._requests = os.dup(channel.answers), os.dup(channel.requests)
        self._writing = threading.Thread(target=self._write, args=(data, ends), daemon=True)
        self._writing.start()

    def _write(self, data: bytes, ends: bool) -> None:
        try:
            while data:
                data = data[os.write(self._answers, data) :]
        except OSError:
            ends = True
        if ends:
            os.close(self._answers)

    def wait(self, timeout=None) -> int:
        return 0

    def kill(self) -> None:
        """Do nothing."""

    def outside(self, process: int) -> int:
        return 999_999_999

    def failure(self) -> tuple[str, str]:
        return "", ""


READY = b'{"event": "ready", "pid": 7}\n'
HEAD = b'{"event": "loaded", "request": 1, "bytes": '


def failure_for(data: bytes, ends: bool = True, limit: float = 20.0) -> Failure:
    with Caller(lambda channel: _Process(channel, data, ends), limit / 10, setup={}) as caller:
        with pytest.raises(Failure) as raised:
            caller.load()
        str(raised.value).encode("utf-8")
        return raised.value


MALFORMED = {
    "garbage": b"\x00\xff all is well\n",
    "nothing": b"\n",
    "a list": b"[]\n",
    "deep lists": b"[" * 500_000 + b"\n",
    "deep objects": b'{"event":' * 200_000 + b"\n",
    "infinity": b'{"event": "ended", "pid": Infinity, "code": Infinity}\n',
    "a large exponent": b'{"event": "ended", "pid": 7, "code": 1e999}\n',
    "not a number": b'{"event": "ended", "pid": NaN}\n',
    "many digits": b'{"event": "ended", "pid": ' + b"9" * 100_000 + b"}\n",
    "a code that is text": b'{"event": "ended", "pid": 7, "code": "\\ud800"}\n',
    "an event of surrogates": b'{"event": "\\ud800", "request": 1, "bytes": 0}\n',
    "another encoding": '{"event": "loaded"}\n'.encode("utf-16"),
    "another request": b'{"event": "loaded", "request": 2, "bytes": 0}\n',
    "no count": b'{"event": "loaded", "request": 1}\n',
    "a negative count": HEAD + b"-1}\n",
    "a count that is true": HEAD + b"true}\n",
    "a broken count": HEAD + b"1.5}\n",
    "a huge count": HEAD + b"9" * 30 + b"}\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_an_answer_that_is_none_is_a_failure(data):
    failure = failure_for(READY + data)
    assert "cannot be read" in str(failure)
    assert failure.code == "OPS-CHECK-LOST"


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED)
def test_an_answer_that_is_none_is_no_timing(data):
    with Stopwatch() as watch:
        watch._launch = lambda channel: _Process(channel, READY + data, ends=True)
        watch.turn_to(SimpleNamespace(to_json=lambda: {"name": "a::b"}))
        with pytest.raises(
            NotTimedError, match=r"timed process gave an answer that cannot be read"
        ):
            watch.entries()


@pytest.mark.parametrize("data", [b"", b"garbage\n", b'{"event": "ready", "pid": Infinity}\n'])
def test_a_process_that_is_never_ready_is_a_failure(data):
    assert failure_for(data).code == "OPS-CHECK-LOST"


def test_a_message_without_end_is_a_failure(monkeypatch):
    monkeypatch.setattr(supervisor_client, "_LINE_BYTES", 1 << 16)
    started = time.monotonic()
    assert "without end" in str(failure_for(READY + b"x" * (1 << 24), ends=False, limit=600.0))
    assert time.monotonic() - started < 60


def test_an_answer_that_does_not_come_is_a_failure():
    assert failure_for(READY, ends=False, limit=1.0).code == "OPS-CALL-HANG"
    assert failure_for(READY + HEAD + b"9}\n1234", ends=False, limit=1.0).code == "OPS-CALL-HANG"
    assert failure_for(READY + HEAD + b"9}\n1234").code == "OPS-CHECK-LOST"


def test_the_text_of_a_failure_is_escaped():
    said = b'{"event": "failed", "request": 1, "bytes": 0, '
    said += b'"message": "\\ud800 \\u001b[2J\\u0007 ok"}\n'
    assert str(failure_for(READY + said)) == r"\ud800 \x1b[2J\x07 ok"
    assert printable("a\tb\nc é \u202e") == "a\tb\nc é \\u202e"


def test_of_a_long_message_the_place_is_shown_and_what_is_left_out_is_counted():
    def fails(_):
        raise ValueError("said " * 4000)

    calls = kernel_server._KernelCalls(SimpleNamespace(operator=fails))
    reply, _ = calls.reply({"event": "call", "operator": "a::b"}, b"")
    said = json.dumps({**reply, "request": 1, "bytes": 0}).encode() + b"\n"
    first, counted, *last = str(failure_for(READY + said)).splitlines()
    assert first.startswith("raised ValueError: said said ")
    assert counted == f"… {len(reply['message']) - 8000} characters …"
    assert last[-1].startswith(f"  at {__file__}:")


SHAPES = [[-1], [1.0], [True], ["1"], [2**40], [1] * 65, [0, 2**39, 2**39], None, {}, [[1]]]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_result_of_no_shape_is_refused(shape):
    with pytest.raises(WireError):
        Reader(b"").result({"dtype": "float32", "shape": shape})


@pytest.mark.parametrize("dtype", ["", "__class__", "Float32", 1, None, ["float32"]])
def test_a_result_of_no_dtype_is_refused(dtype):
    with pytest.raises(WireError):
        Reader(b"").result({"dtype": dtype, "shape": [0]})
    assert Reader(b"").result({"dtype": "float32", "shape": [0, 3]}).dtype == torch.float32
