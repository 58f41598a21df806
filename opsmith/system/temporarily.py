"""Change this process for a block: its environment, its collector, other packages' loggers."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process during the block."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update({name: before[name] for name in variables if name in before})


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the cyclic garbage collector while long-lived objects are created.

    Python collects after a number of new objects, sometimes among all objects. PyTorch creates so
    many that one such collection takes 60 ms, more than importing a package of operators does.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@contextmanager
def silenced(*names: str) -> Iterator[None]:
    """Let loggers print errors only, in a block whose exceptions say what matters.

    Args:
        names: the names of the loggers.
    """
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
