"""The module that an installed package imports as opsmith: opsmith itself, or the package's copy.

If opsmith is installed, its checks and exports see the operators; otherwise the copy suffices.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType


def _installed() -> ModuleType | None:
    """Return the installed opsmith if its version matches the copy's, else `None`."""
    try:
        import opsmith
    except ImportError:
        return None
    # Python also imports a mere folder of that name beside the program as a package.
    version = getattr(opsmith, "__version__", "")
    return opsmith if version.split(".")[:2] == VERSION.split(".")[:2] else None


VERSION = "{version}"

_opsmith = _installed()
if _opsmith is not None:
    from opsmith.kernels.libraries import prebuilt

    # The package brings its own gates.
    prebuilt.served.append(Path(__file__).parent)
    sys.modules[__name__] = _opsmith
else:
    from .system.temporarily import uncollected

    with uncollected():
        # The names that a declaration may import; additional names do no harm here.
        from .errors import *
        from .operators.core.operator import Operator
        from .operators.decorator import op
        from .signature.annotations import *
        from .signature.dtype_variables import DtypeVar


def __getattr__(name: str) -> object:
    # Few packages use these names, so import them on demand.
    if name == "Cost":
        from .operators.core.author_rules import Cost as found
    elif name == "onnx_translations":
        from .targets.onnx.translation_table import onnx_translations as found
    elif name == "philox":
        found = importlib.import_module(f"{__name__}.philox")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
