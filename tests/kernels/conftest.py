"""Operators of these tests: declared with signature_of, built for real, defined in PyTorch."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from opsmith.kernels import Library, cache_folder, kernel_source
from opsmith.signature import Signature, signature_of

SOURCES = Path(__file__).parent / "sources"


@pytest.fixture(scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of this run's own, so that every build is a real one; its processes share it."""
    run = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        run = run.parent
    cache = run / "cache"
    cache.mkdir(exist_ok=True)
    # But for opsmith's own headers, precompiled: those of the other tests are the same.
    (cache_folder() / "precompiled").mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (cache / "precompiled").symlink_to(cache_folder() / "precompiled")
    return cache


@pytest.fixture(autouse=True, scope="module")
def cache(own_cache: Path) -> Iterator[Path]:
    """The cache of these tests; those of other folders have the usual one again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPSMITH_CACHE", str(own_cache))
        yield own_cache


@dataclass
class Built:
    """An operator with its C++ kernel registered."""

    signature: Signature
    library: Library
    definition: torch.library.Library

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        namespace = getattr(torch.ops, self.signature.namespace)
        return getattr(namespace, self.signature.name)(*args, **kwargs)


@pytest.fixture(scope="session")
def build() -> Iterator[Callable[..., Built]]:
    """Declares ``kernels_test::<name of the function>`` and builds ``sources/<file>``."""
    # pytest's processes share the tests out: a module may be left and come back to.
    built: dict[tuple[Any, ...], Built] = {}

    def make(
        function: Callable[..., Any],
        source: str | Path | None = None,
        *,
        strided: bool | tuple[str, ...] = False,
        flags: tuple[str, ...] = ("-O0",),
        **declared: Any,
    ) -> Built:
        name = function.__name__
        key = (function, source, strided, flags, repr(declared))
        if key in built:
            return built[key]
        signature = signature_of(function, f"kernels_test::{name}", **declared)
        path = SOURCES / (source or f"{name}.cpp")
        warnings = ("-Wall", "-Wextra", "-Werror")
        kernel = kernel_source(signature, "cpu", path, strided=strided, flags=(*warnings, *flags))
        library = kernel.load()
        definition = torch.library.Library("kernels_test", "FRAGMENT")
        definition.define(signature.schema())
        library.register()
        built[key] = Built(signature, library, definition)
        return built[key]

    yield make
    for operator in built.values():
        operator.library.unregister()
        operator.definition._destroy()


@pytest.fixture
def name() -> str:
    """An operator name that no other test has."""
    return f"op{next(_counter)}"


_counter = itertools.count()
