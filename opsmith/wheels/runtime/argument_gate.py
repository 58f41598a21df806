"""Replace ``opsmith.operators.dispatch.gates.argument_gate`` in an installed package.

Only kernels with ``api="torch"`` need the gate. They work with one PyTorch only, so no wheel
contains them.
"""

from __future__ import annotations

from typing import Any

ArgumentGate: Any = None
