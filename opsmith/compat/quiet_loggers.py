"""Other packages' loggers, quiet for a while."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def silenced(*names: str, below: int = logging.ERROR) -> Iterator[None]:
    """Let loggers pass nothing on, in a block whose exceptions say what matters.

    Args:
        names: the loggers'.
        below: the first level that still passes.
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
