"""Quiet the loggers of other packages for a while."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silenced(*names: str, below: int = logging.ERROR) -> Iterator[None]:
    """Raise the level of loggers in a block whose exceptions say what matters.

    Args:
        names: the names of the loggers.
        below: the lowest level that still passes.
    """
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(below)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
