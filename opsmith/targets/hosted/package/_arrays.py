"""Support arrays of any library with DLPack: convert results, and explain refused arguments."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from opsmith.compat.torch_modules import WITHOUT_VALUES

_CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}
_NAMES = (
    "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 "
    "float16 float32 float64 complex64 complex128"
).split()


def _key(dtype: np.dtype[Any]) -> int:
    """Return a dtype in DLPack's encoding, as one number."""
    bits = 8 * dtype.itemsize
    return _CODES[dtype.name.rstrip("0123456789")] << 8 | bits


_ML_DTYPES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e5m2": 12}
_FIXED = ("jax", "jaxlib", "tensorflow")

DTYPES = {_key(np.dtype(name)): np.dtype(name) for name in _NAMES}
"""NumPy's dtypes by DLPack's encoding."""

_TRACED = (
    "is a {}, which has no values, as in torch.export and other tracing. Call this function "
    "outside of it, or call the operator that it was exported from."
)

empty = np.empty
ndarray = np.ndarray

Importer = Callable[[Any], Any]
"""Makes an array from an object that provides its memory by ``__dlpack__``."""


def is_array(value: Any) -> bool:
    """Return whether a value is an array that shares its memory; a class of arrays is none."""
    return hasattr(value, "__dlpack__") and not isinstance(value, type)


def importer(array: Any) -> Importer | None:
    """Return a function that converts results to the library of `array`; `None` for NumPy."""
    if isinstance(array, np.ndarray | np.generic):
        return None
    found: Importer | None = None  # A memoryview, or another object that provides its memory.
    if _library(array) == "torch":
        found = importlib.import_module("torch").from_dlpack
    elif hasattr(array, "__array_namespace__"):
        found = array.__array_namespace__().from_dlpack
    return found


def writable(array: Any) -> bool:
    """Return whether the library's arrays are mutable, which DLPack does not tell reliably."""
    return _library(array) not in _FIXED


def viewed(array: Any) -> tuple[Any, int] | None:
    """Return an ml_dtypes array as integers in the same memory, and DLPack's type code."""
    name = array.dtype.name if isinstance(array, np.ndarray) else None
    if name not in _ML_DTYPES:
        return None
    return array.view(f"uint{8 * array.itemsize}"), _ML_DTYPES[name]


def empty_of(shape: tuple[int, ...], name: str) -> tuple[Any, Any]:
    """Return an array of a dtype of ml_dtypes, and an integer array of the same memory."""
    import ml_dtypes

    array = np.empty(shape, getattr(ml_dtypes, name))
    return array, array.view(f"uint{8 * array.itemsize}")


def why_not(value: Any, written: bool) -> str | None:
    """Return why an array is refused, as the end of a sentence; `None` if `value` is no array."""
    try:
        return _why_not(value, written)
    except Exception as error:  # A class may raise anything here.
        return f"shares no memory: {_said(error)}"


def _why_not(value: Any, written: bool) -> str | None:
    if isinstance(value, type):  # Its attributes say nothing of an array.
        return None
    if getattr(value, "requires_grad", False):
        return (
            "requires a gradient, and this function has no derivative. Pass x.detach(), or call "
            "the operator that it was exported from."
        )
    if not is_array(value):
        return None if not isinstance(value, np.generic | memoryview) else "has no memory to share."
    if type(value).__module__.startswith(WITHOUT_VALUES):
        return _TRACED.format(type(value).__name__)
    kind, index = value.__dlpack_device__()
    if int(kind) not in (1, 3, 11, 13):
        name = str(getattr(value, "device", f"device {int(kind)}:{index}"))
        return f"is on {name}, and this function runs on the CPU."
    if written and not writable(value):
        return f"is written into, and an array of {_library(value)} cannot be. Pass numpy.array(x)."
    if written and isinstance(value, np.ndarray) and not value.flags.writeable:
        return "is written into, and this array is read-only. Pass a copy."
    if hasattr(value, "is_neg") and value.is_neg():
        return "is a view that is negated when it is read. Pass x.resolve_neg()."
    value.__dlpack__()
    if hasattr(value, "data_ptr") and value.numel() and not value.data_ptr():
        return _TRACED.format("tensor without memory")
    if written and _exceeds_its_storage(value):
        return "has a storage that was resized to less than the tensor takes."
    if written:
        return "is written into, and this array is read-only. Pass a copy."
    return "does not begin at a multiple of its element's size in memory. Pass a copy."


def _exceeds_its_storage(value: Any) -> bool:
    """Return whether a tensor of PyTorch takes more memory than its storage has."""
    if not hasattr(value, "untyped_storage") or not value.numel():
        return False
    steps = zip(value.shape, value.stride(), strict=True)
    end = value.storage_offset() + sum((size - 1) * stride for size, stride in steps) + 1
    return bool(value.untyped_storage().nbytes() < end * value.element_size())


def called(array: Any) -> str:
    """Return the library's word for its arrays, with an article."""
    return "a tensor" if _library(array) == "torch" else "an array"


def _library(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


def _said(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text if text.endswith(".") else f"{text}."
