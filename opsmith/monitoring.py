"""`monitor`: compare a sampled share of real calls with the reference, in the background."""

from __future__ import annotations

import atexit
import contextlib
import logging
import math
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from opsmith.compat.torch_dispatch import is_watched
from opsmith.errors import OpsmithError
from opsmith.kernels import HOST, find_device
from opsmith.operators import Operator
from opsmith.operators.core.arguments import dtype_name, flatten, tensors_in
from opsmith.signature.sizes.shapes import show_sizes

_LOGGER = logging.getLogger("opsmith.monitor")
#: Seconds that the end of the program waits for the comparison in progress.
_LAST_SECONDS = 2.0
_PLAIN = (Tensor, torch.nn.Parameter)


@dataclass(frozen=True)
class Difference:
    """A call whose result differs from the reference's.

    Attributes:
        operator: ``namespace::name``.
        problem: the difference, and the result that has it, in the words of `opsmith check`.
        arguments: the arguments by name, as they were before the call; tensors on the CPU.
        results: the results of the call, and the new contents of mutated arguments; on the CPU.
        path: the file of the saved arguments and results; `None` if they were not saved.
    """

    operator: str
    problem: str
    arguments: Mapping[str, Any]
    results: list[Tensor]
    path: Path | None = None

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={_shown(value)}" for name, value in self.arguments.items())
        saved = "" if self.path is None else f", saved as {self.path}"
        return f"<Difference of {self.operator}({given}): {self.problem}{saved}>"


@dataclass(frozen=True)
class Counts:
    """The numbers of calls since the monitor began.

    Attributes:
        calls: number of calls.
        compared: number of calls that were compared with the reference.
        different: number of compared calls that differ.
        dropped: number of sampled calls that were not compared, since too many calls were waiting
            or the call was too large.
        passed_over: number of sampled calls that cannot be compared: under a transform of
            torch.func, under autocast, while tracing, with tensor subclasses, in a forked process,
            with values for which results are `Unspecified`.
        refused: number of sampled calls for which the reference refused the arguments, or failed.
    """

    calls: int = 0
    compared: int = 0
    different: int = 0
    dropped: int = 0
    passed_over: int = 0
    refused: int = 0


def monitor(
    operator: Operator,
    fraction: float = 0.001,
    *,
    on_difference: Callable[[Difference], object] | None = None,
    save: str | Path | None = None,
    most_saved: int = 10,
    most_waiting: int = 8,
    most_bytes: int = 256 << 20,
) -> Monitor:
    """Compare a sampled share of an operator's calls with its reference, in the background.

    Only calls of the operator object from Python are monitored. Compiled graphs, packages and
    ``torch.ops`` call the dispatcher, which is not changed.

    Args:
        operator: the operator to monitor.
        fraction: the share of calls to compare; each call is chosen at random.
        on_difference: called in the background thread with each `Difference`; by default it is
            logged as a warning of the logger ``opsmith.monitor``.
        save: a folder in which to save arguments and results of calls that differ, as files for
            ``torch.load``.
        most_saved: number of files to save.
        most_waiting: number of calls that may wait to be compared; further calls are dropped, and
            counted.
        most_bytes: number of bytes of arguments and results that may wait.

    Returns:
        A `Monitor`. It is also a context manager, which stops it at the end of the block.

    Raises:
        OpsmithError: `operator` is no operator, or is monitored already; `fraction` is not in (0,
            1].

    Example:
        >>> import opsmith
        >>> from jaxtyping import Float
        >>> from torch import Tensor
        >>> @opsmith.op("docs::monitored")
        ... def monitored(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        ...     return x * 2
        >>> with opsmith.monitor(monitored, fraction=1.0) as monitor:
        ...     _ = monitored(torch.ones(3))
        >>> monitor.counts.compared, monitor.counts.different
        (1, 0)
    """
    if not isinstance(operator, Operator):
        raise OpsmithError(f"monitor({operator!r}): expected an operator (opsmith.op)")
    if not 0 < fraction <= 1:
        raise OpsmithError(f"{operator.name}: monitor(fraction={fraction!r}): expected 0 < … <= 1")
    folder = Path(save) if save is not None else None
    return Monitor(operator, fraction, on_difference, folder, most_saved, most_waiting, most_bytes)


@dataclass(frozen=True)
class _Call:
    """A call that waits to be compared."""

    arguments: Mapping[str, Any]
    results: list[Tensor]
    bytes: int


class Monitor:
    """A monitor of an operator; see `monitor`.

    While it runs, the class of the operator object has a ``__call__`` that counts down to the next
    call to sample. Kernels, the dispatcher and other operators are not changed.
    """

    def __init__(
        self,
        operator: Operator,
        fraction: float,
        on_difference: Callable[[Difference], object] | None,
        folder: Path | None,
        most_saved: int,
        most_waiting: int,
        most_bytes: int,
    ) -> None:
        self._operator = operator
        self._fraction = fraction
        self._on_difference = on_difference or _log
        self._folder = folder
        self._most_saved = most_saved
        self._most_bytes = most_bytes
        self._saved = 0
        self._random = random.Random()
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._counts = Counts()
        self._waiting: queue.Queue[_Call | None] = queue.Queue(most_waiting)
        self._bytes = 0
        self._until = self._gap()
        self._counted = self._until
        self._own = type(operator)
        if getattr(operator, "_opsmith_monitor", None) is not None:
            raise OpsmithError(f"{operator.name} is monitored already; stop() that monitor first")
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(
            target=self._compare_all, name=f"opsmith.monitor {operator.name}", daemon=True
        )
        self._thread.start()
        operator.__class__ = _monitored(self._own, self)
        atexit.register(self._end)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {name}" for name, count in asdict(self.counts).items())
        name = self._operator.name
        return f"<monitor of {name}, a share of {self._fraction:g}: {counts.replace('_', ' ')}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def counts(self) -> Counts:
        """The numbers of calls so far."""
        with self._lock:
            return replace(self._counts, calls=max(0, self._counted - self._until))

    def stop(self, wait: bool = True) -> None:
        """End the monitor, and restore the operator's own calls.

        Args:
            wait: whether to wait until all sampled calls are compared.
        """
        if type(self._operator).__dict__.get("_opsmith_monitor") is self:
            self._operator.__class__ = self._own
        if not wait:
            self._drop_waiting()
        if self._thread.is_alive() and self._process == os.getpid():
            self._waiting.put(None)
            if wait:
                self._thread.join()
        atexit.unregister(self._end)

    def _end(self) -> None:
        """Stop at the end of the program, without waiting long."""
        self.stop(wait=False)
        self._thread.join(_LAST_SECONDS)

    def _drop_waiting(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                if self._waiting.get_nowait() is not None:
                    self._count(dropped=1)

    def _count(self, **more: int) -> None:
        with self._lock:
            known = self._counts
            self._counts = replace(
                known, **{name: getattr(known, name) + count for name, count in more.items()}
            )

    # --- in the thread that calls ------------------------------------------------------------

    def _gap(self) -> int:
        """Return the number of calls up to the next sampled one; each call has the same chance."""
        if self._fraction >= 1:
            return 1
        # The inverse of the geometric distribution avoids a random number for each call.
        exponential = self._random.expovariate(1.0)
        return 1 + int(exponential / -math.log1p(-self._fraction))

    def _sample(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Make a call, and queue its arguments and results for the comparison."""
        gap = self._gap()
        self._until, self._counted = gap, self._counted - self._until + gap
        obstacle = self._obstacle(args, kwargs)
        if obstacle:
            self._count(**{obstacle: 1})
            return call(*args, **kwargs)
        signature = self._operator.signature
        args, kwargs = self._operator.with_drawn(args, kwargs)
        try:
            arguments = self._operator.arguments(args, kwargs)
        except Exception:
            return call(*args, **kwargs)  # which raises the error about the arguments
        before = {name: _copied(value) for name, value in arguments.items()}
        returned = call(*args, **kwargs)
        results = [_copied(result) for result in flatten(signature, returned, arguments)]
        size = sum(tensor.nbytes for tensor in (*tensors_in(before.values()), *results))
        with self._lock:
            self._bytes += size
        try:
            self._waiting.put_nowait(_Call(before, results, size))
        except queue.Full:
            self._done(size)
            self._count(dropped=1)
        return returned

    def _obstacle(self, args: Any, kwargs: Any) -> str:
        """Return the counter of a call that is not compared; empty if the call can be compared."""
        if self._process != os.getpid():
            return "passed_over"  # the thread runs in the parent process only
        tensors = tensors_in((*args, *kwargs.values()))
        if any(type(tensor) not in _PLAIN for tensor in tensors):
            return "passed_over"
        if is_watched():
            return "passed_over"
        if any(torch.is_autocast_enabled(tensor.device.type) for tensor in tensors):
            return "passed_over"
        if any(_captured(tensor) for tensor in tensors):
            return "passed_over"
        # The results do not exist yet; assume that they are as large as the arguments.
        size = 2 * sum(tensor.nbytes for tensor in tensors)
        if self._waiting.full() or self._bytes + size > self._most_bytes:
            return "dropped"
        return ""

    # --- in the background -------------------------------------------------------------------

    def _compare_all(self) -> None:
        _give_way()
        while True:
            call = self._waiting.get()
            if call is None:
                return
            try:
                self._compare(call)
            except Exception:
                _LOGGER.exception("%s: comparing a call failed", self._operator.name)
            finally:
                self._done(call.bytes)

    def _compare(self, call: _Call) -> None:
        from opsmith.checks.numerics.comparison import compare
        from opsmith.checks.numerics.oracle import RefusedError, expected_of

        if _is_unspecified(self._operator, call.arguments):
            self._count(passed_over=1)
            return
        with torch.no_grad():
            try:
                truth = expected_of(self._operator, call.arguments)
            except RefusedError:
                self._count(refused=1)
                return
            problem = compare(call.results, truth).problem
        if problem is None:
            self._count(compared=1)
            return
        self._count(compared=1, different=1)
        found = Difference(self._operator.name, problem, call.arguments, call.results)
        self._on_difference(replace(found, path=self._save(found)))

    def _save(self, found: Difference) -> Path | None:
        if self._folder is None or self._saved >= self._most_saved:
            return None
        self._saved += 1
        name = found.operator.replace("::", "-")
        stamp = time.strftime("%Y%m%d-%H%M%S")
        path = self._folder / f"{name}-{stamp}-{self._process}-{self._saved}.pt"
        document = {
            "operator": found.operator,
            "problem": found.problem,
            "arguments": dict(found.arguments),
            "results": found.results,
        }
        try:
            torch.save(document, path)
        except OSError as error:
            _LOGGER.warning("%s: cannot be saved: %s", path, error)
            return None
        return path

    def _done(self, size: int) -> None:
        with self._lock:
            self._bytes -= size


def _monitored(own: type[Operator], monitor: Monitor) -> type[Operator]:
    """Return a subclass of an operator's class whose calls count down to the next sampled one."""
    call = own.__call__
    compiling = torch.compiler.is_compiling

    def __call__(self: Operator, *args: Any, **kwargs: Any) -> Any:
        if compiling():
            return call(self, *args, **kwargs)
        monitor._until -= 1
        if monitor._until > 0:
            return call(self, *args, **kwargs)
        return monitor._sample(call.__get__(self), args, kwargs)

    members = {"__call__": __call__, "_opsmith_monitor": monitor, "__doc__": own.__doc__}
    return type(own.__name__, (own,), members)


def _log(found: Difference) -> None:
    saved = "" if found.path is None else f" (saved: {found.path})"
    _LOGGER.warning("%s: %s%s", found.operator, found.problem, saved)


def _copied(value: Any) -> Any:
    """Copy to the CPU; the copy from another device waits for that device's work."""
    if isinstance(value, Tensor):
        own = value.detach()
        return own.clone() if own.device.type == HOST else own.cpu()
    if isinstance(value, list | tuple):
        return [_copied(item) for item in value]
    return value


def _is_unspecified(operator: Operator, arguments: Mapping[str, Any]) -> bool:
    """Return whether an argument holds values for which the declaration leaves results open."""
    kinds = {"NaN": Tensor.isnan, "infinity": Tensor.isinf}
    return any(
        bool(kinds[kind](tensor).any())
        for parameter in operator.signature.tensors
        for kind in parameter.unspecified
        for tensor in tensors_in([arguments[parameter.name]])
    )


def _captured(tensor: Tensor) -> bool:
    """Return whether the device records a graph of calls, when nothing may wait for it."""
    device = find_device(tensor.device.type)
    return device is not None and device.is_capturing()


def _give_way() -> None:
    """Give this thread the lowest priority."""
    with contextlib.suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)


def _shown(value: Any) -> str:
    """Describe an argument in one line; of a tensor, dtype and shape without its values."""
    if isinstance(value, Tensor):
        return f"{dtype_name(value.dtype)} {show_sizes(value.shape)}"
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value))}]"
    return repr(value)
