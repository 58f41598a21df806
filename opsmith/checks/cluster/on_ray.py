"""Lanes on the machines of a cluster of Ray."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Future
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import Any

from opsmith.checks.cluster.lanes import Lanes
from opsmith.errors import LoadError, MissingDependencyError

#: The address of a cluster that is started on this machine, and ends with the command.
LOCAL = "local"
_PATIENCE_SECONDS = 10.0


@contextmanager
def lanes_of(address: str, jobs: int | None) -> Iterator[Lanes]:
    """Connect to a cluster, and yield how lanes are opened there; meanwhile nothing is printed.

    Args:
        address: what ``ray.init`` takes, as ``"auto"``, ``"HOST:6379"`` or ``"local"``.
        jobs: the most lanes; by default as many as the cluster has processors now.

    Raises:
        MissingDependencyError: ray is not installed.
        LoadError: no cluster answers.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError(
            "--ray needs the package ray: pip install 'opsmith[ray]'"
        ) from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    local: dict[str, Any] = (
        {"num_cpus": jobs, "include_dashboard": False} if address == LOCAL else {}
    )
    host, _, port = address.rpartition(":")
    try:
        if port.isdigit() and "/" not in host:  # Ray itself would wait for minutes
            socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_SECONDS).close()
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **local)
    except (OSError, ValueError, RuntimeError) as error:
        raise LoadError(f"no cluster of Ray answers at {address}: {error}") from error
    try:
        sizes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        count = jobs or max(1, sum(sizes))
        # Ray prints the logs of a node that dies.
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            yield Lanes(RayLane, count, max(1, min(count, max(sizes))))
    finally:
        ray.shutdown()


class RayLane:
    """A process on some machine of the cluster: an actor, which takes one processor of it."""

    def __init__(self) -> None:
        import ray

        # Pickled by value, since a module of opsmith would import torch before `__init__`.
        class Actor:
            def __init__(self) -> None:
                # Ray sets it to 1, and kernels are to run with the threads that others run with.
                os.environ.pop("OMP_NUM_THREADS", None)

            def call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
                return function(*arguments)

        made = ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(Actor)
        self._actor: Any = made.remote()
        self._kill = ray.kill

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:
        """Have the process call a function that opsmith has there too."""
        answer: Future[Any] = Future()
        reference = self._actor.call.remote(function, arguments)
        reference.future().add_done_callback(partial(_pass_on, answer))
        return answer

    def end(self) -> None:
        """End the process, whatever it does."""
        self._kill(self._actor)


def _pass_on(answer: Future[Any], done: Future[Any]) -> None:
    """Give a future what another has; the end of a process is that of an executor's."""
    from ray.exceptions import RayError, RayTaskError

    error = done.exception()
    if error is None:
        answer.set_result(done.result())
    elif isinstance(error, RayTaskError):
        answer.set_exception(error.cause)
    else:
        ended = isinstance(error, RayError)
        answer.set_exception(BrokenExecutor(" ".join(str(error).split())) if ended else error)
