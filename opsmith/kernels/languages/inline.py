"""Kernels as text, for notebooks and short scripts: ``source=opsmith.cpp(...)``."""

from __future__ import annotations

from pathlib import Path

from opsmith.system.files import cache_folder, key_of, write_atomically


def cpp(text: str) -> Path:
    """Return the path of a file with a kernel in C++, for ``register_kernel(source=...)``.

    The file is kept in the cache, under a name that follows from the text: a text that was built
    before is not compiled again. Line numbers in a compiler's messages count from the line of the
    opening quotes.

    Args:
        text: the source, which includes ``<opsmith/kernel.h>`` and the operator's own header.

    Raises:
        StorageError: the cache cannot be written.

    Example:
        >>> import opsmith
        >>> from jaxtyping import Float
        >>> from torch import Tensor
        >>> @opsmith.op("docs::twice")
        ... def twice(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        ...     return 2 * x
        >>> twice.register_kernel(
        ...     "cpu",
        ...     source=opsmith.cpp(r'''
        ... #include <opsmith/kernel.h>
        ... #include "twice.h"
        ...
        ... template <typename T>
        ... void twice(const opsmith::Context& ctx, const docs::twice_args<T>& a) {
        ...   for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * a.x[i];
        ... }
        ... OPSMITH_KERNEL(docs, twice, cpu, float, double)
        ... '''),
        ... )
        >>> twice(torch.ones(2))
        tensor([2., 2.])
    """
    return _file(text, "kernel.cpp")


def cuda(text: str) -> Path:
    """Return the path of a file with a kernel in CUDA C++; see `cpp`."""
    return _file(text, "kernel.cu")


def _file(text: str, name: str) -> Path:
    path = cache_folder() / "sources" / key_of(text)[:16] / name
    write_atomically(path, text)
    return path
