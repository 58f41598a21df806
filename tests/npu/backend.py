"""A PrivateUse1 device for the tests, as a vendor's extension would bring one.

Importing this builds it, names it ``npu`` (or what ``OPSMITH_TEST_DEVICE`` says) and registers it,
as ``import torch_npu`` does. It has two devices. Their memory is in pages that the host cannot
touch, and their work is done later, by threads: what reads memory of the device on the host dies,
and what does not wait reads NaN. ``device/device.h`` is what a kernel's source sees of it.

PyTorch has one PrivateUse1 per process, and it changes how others behave, so tests use it in a
process of its own: see ``on_device.py``.
"""

from __future__ import annotations

import ctypes
import os
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from opsmith.kernels import Recipe

NAME = os.environ.get("OPSMITH_TEST_DEVICE", "npu")
INCLUDE = Path(__file__).parent / "device"


def _library() -> ctypes.CDLL:
    sources = [INCLUDE / "runtime.cpp", INCLUDE / "backend.cpp"]
    path = Recipe(
        "npu_backend", sources, torch="full", flags=("-O1",), what="the test device"
    ).build()
    library = ctypes.CDLL(str(path))
    library.npu_hold.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_bool]
    library.npu_tell_streams.argtypes = [ctypes.c_bool]
    library.npu_pushed.argtypes = [ctypes.c_int, ctypes.c_int64]
    library.npu_pushed.restype = ctypes.c_uint64
    return library


class _Current:
    """Makes a device current within a ``with`` block."""

    def __init__(self, device: torch.device | str | int | None) -> None:
        index = torch.device(device).index if isinstance(device, str) else device
        self._index = getattr(index, "index", index)
        self._before = 0

    def __enter__(self) -> None:
        self._before = _LIBRARY.npu_current_device()
        if self._index is not None:
            _LIBRARY.npu_set_device(self._index)

    def __exit__(self, *error: object) -> None:
        _LIBRARY.npu_set_device(self._before)


def _module(library: ctypes.CDLL) -> types.ModuleType:
    """What is known as ``torch.npu``."""
    module = types.ModuleType(f"torch.{NAME}")
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: 2
    module.current_device = library.npu_current_device
    module.set_device = library.npu_set_device
    module.manual_seed_all = lambda seed: None
    module.get_amp_supported_dtype = lambda: [torch.float16, torch.bfloat16]
    module.get_rng_state = lambda device=NAME: torch.empty(0, dtype=torch.uint8)
    module.set_rng_state = lambda state, device=NAME: None
    module.synchronize = torch.accelerator.synchronize
    module.device = _Current
    return module


torch.utils.rename_privateuse1_backend(NAME)
_LIBRARY = _library()
torch._register_device_module(NAME, _module(_LIBRARY))
torch.utils.generate_methods_for_privateuse1_backend()


@contextmanager
def held(device: int = 0, stream: int = 0) -> Iterator[None]:
    """A queue that does nothing meanwhile, so that what does not wait for it is seen."""
    _LIBRARY.npu_hold(device, stream, True)
    try:
        yield
    finally:
        _LIBRARY.npu_hold(device, stream, False)


def pushed(device: int = 0, stream: int = 0) -> int:
    """How much work a queue was given so far."""
    return int(_LIBRARY.npu_pushed(device, stream))


@contextmanager
def untold_streams() -> Iterator[None]:
    """A backend that tells PyTorch no native handles of its streams, as PyTorch allows."""
    _LIBRARY.npu_tell_streams(False)
    try:
        yield
    finally:
        _LIBRARY.npu_tell_streams(True)
