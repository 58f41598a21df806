"""Settings of the process that a call must not change."""

from __future__ import annotations

import gc
import os
import pickle
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Read = Callable[[], Any]
Restore = Callable[[Any], object]


def _set_output(value: Any) -> None:
    sys.stdout = value


#: The settings: their names in messages, and the functions that read and restore them.
_SETTINGS: dict[str, tuple[Read, Restore]] = {
    "whether gradients are recorded": (torch.is_grad_enabled, torch.set_grad_enabled),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "whether denormal numbers are kept": (
        lambda: bool((torch.tensor(1e-40, dtype=torch.float32) * 1.0) != 0),
        lambda kept: torch.set_flush_denormal(not kept),
    ),
    "whether deterministic algorithms are asked for": (
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    "whether garbage is collected": (
        gc.isenabled,
        lambda enabled: gc.enable() if enabled else gc.disable(),
    ),
    "the working directory": (os.getcwd, os.chdir),
    "Python's standard output": (lambda: sys.stdout, _set_output),
    "the state of Python's random numbers": (random.getstate, random.setstate),
    "the state of NumPy's random numbers": (
        lambda: pickle.dumps(np.random.get_state()),
        lambda state: np.random.set_state(pickle.loads(state)),
    ),
    "which of NumPy's floating-point errors are told": (np.geterr, lambda told: np.seterr(**told)),
    "the number of Python's threads": (threading.active_count, lambda count: None),
}
_SHOWN = bool | int | str | torch.dtype


class Surroundings:
    """A block that records the settings of the process, and restores them at the end.

    Example:
        >>> torch.set_num_threads(2)
        >>> with Surroundings() as before:
        ...     torch.set_num_threads(1)
        ...     before.changes()
        ['the number of threads (2 → 1)']
    """

    def __enter__(self) -> Surroundings:
        self._values = {what: read() for what, (read, _) in _SETTINGS.items()}
        self._random = torch.get_rng_state()
        return self

    def __exit__(self, *error: object) -> None:
        for what, (read, restore) in _SETTINGS.items():
            if read() != self._values[what]:
                restore(self._values[what])

    def changes(self) -> list[str]:
        """Describe the settings that changed."""
        found = []
        for what, (read, _) in _SETTINGS.items():
            before, now = self._values[what], read()
            if before != now:
                shown = f" ({before} → {now})" if isinstance(now, _SHOWN) else ""
                found.append(f"{what}{shown}")
        return found

    @property
    def drew_random_numbers(self) -> bool:
        """Return whether the state of PyTorch's global random generator changed."""
        return not torch.equal(torch.get_rng_state(), self._random)
