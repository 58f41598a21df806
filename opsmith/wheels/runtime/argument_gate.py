"""In an installed package, in place of ``opsmith.operators.dispatch.argument_gate``.

Sources with ``api="torch"`` bind to one PyTorch, and no wheel takes them.
"""

from __future__ import annotations

from typing import Any

ArgumentGate: Any = None
