"""Run a function when another package's module has been imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def when_imported(name: str, callback: Callable[[ModuleType], None]) -> None:
    """Call `callback` with a module when its import has ended; at once if it has been imported.

    Importing another module costs one comparison of names until then.
    """
    module = sys.modules.get(name)
    if module is not None:
        callback(module)
    else:
        sys.meta_path.insert(0, _Watch(name, callback))


class _Watch(MetaPathFinder):
    """A finder that makes one module's loader call a function after the import."""

    def __init__(self, name: str, callback: Callable[[ModuleType], None]) -> None:
        self._name, self._callback = name, callback

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders have for the awaited module."""
        del path, target
        if fullname != self._name or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader  # mypy allows no assignment to a method
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            # Only this instance's attribute was replaced. Remove it, so that the module's loader is
            # the original again.
            del loader.exec_module
            run(module)
            self._callback(module)

        loader.exec_module = exec_module
        return spec
