"""What operators of an installed package import as opsmith: opsmith itself, or what came with them.

With opsmith installed its checks and exports know the operators; without it they need none of it.
"""

import sys
from pathlib import Path
from types import ModuleType


def _installed() -> ModuleType | None:
    """The installed opsmith, if it is one that reads what this was written for."""
    try:
        import opsmith
    except ImportError:
        return None
    # To Python a folder of that name is a package too, where one lies beside the program.
    version = getattr(opsmith, "__version__", "")
    return opsmith if version.split(".")[:2] == VERSION.split(".")[:2] else None


VERSION = "{version}"

_opsmith = _installed()
if _opsmith is not None:
    from opsmith.kernels import prebuilt

    # Its gates come with it.
    prebuilt.served.append(Path(__file__).parent)
    sys.modules[__name__] = _opsmith
else:
    from .compat.gc_pause import uncollected

    with uncollected():
        # What a declaration imports; more of it than that does no harm here.
        from .errors import *
        from .operators.core.operator import Operator
        from .operators.decorator import op
        from .signature.annotations import *


def __getattr__(name: str) -> object:
    # Few packages need them to be imported.
    if name == "Cost":
        from .operators.core.cost import Cost as found
    elif name == "onnx_translations":
        from .targets.onnx.translation_table import onnx_translations as found
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
